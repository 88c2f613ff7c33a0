package store_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"slipway.dev/slipway/controlplane/internal/pgtest"
	"slipway.dev/slipway/controlplane/internal/store"
)

// pooler is the smallest transaction pooler: one server connection, handed to a client from its first message until
// the server is idle outside a transaction.
type pooler struct {
	turn    chan *pgconn.PgConn
	refuses map[string]bool // start-up parameters that it refuses; nil: none
}

func (p *pooler) serve(l net.Listener, done *sync.WaitGroup) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		done.Go(func() { p.client(conn) })
	}
}

func (p *pooler) client(conn net.Conn) {
	defer conn.Close()
	front := pgproto3.NewBackend(conn, conn)
	start, err := front.ReceiveStartupMessage()
	if err != nil {
		return
	}
	if m, ok := start.(*pgproto3.StartupMessage); ok {
		for name := range m.Parameters {
			if p.refuses[name] {
				front.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: "08P01", Message: "unsupported startup parameter: " + name})
				_ = front.Flush()
				return
			}
		}
	}
	front.Send(&pgproto3.AuthenticationOk{})
	front.Send(&pgproto3.ParameterStatus{Name: "standard_conforming_strings", Value: "on"})
	front.Send(&pgproto3.ParameterStatus{Name: "client_encoding", Value: "UTF8"})
	front.Send(&pgproto3.BackendKeyData{ProcessID: 4711, SecretKey: []byte{0, 0, 0, 1}})
	front.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	if front.Flush() != nil {
		return
	}
	for {
		m, err := front.Receive()
		if err != nil {
			return
		}
		if _, ok := m.(*pgproto3.Terminate); ok {
			return
		}
		server := <-p.turn
		ok := p.turnOf(front, server.Frontend(), m)
		p.turn <- server
		if !ok {
			return
		}
	}
}

// turnOf hands messages on until the server is idle again.
func (p *pooler) turnOf(front *pgproto3.Backend, server *pgproto3.Frontend, m pgproto3.FrontendMessage) bool {
	for {
		server.Send(m)
		if server.Flush() != nil {
			return false
		}
		if _, query := m.(*pgproto3.Query); query {
			for {
				answer, err := server.Receive()
				if err != nil {
					return false
				}
				front.Send(answer)
				if ready, ok := answer.(*pgproto3.ReadyForQuery); ok {
					if front.Flush() != nil || ready.TxStatus == 'I' {
						return true
					}
					break
				}
			}
		}
		var err error
		if m, err = front.Receive(); err != nil {
			server.Send(&pgproto3.Query{String: "ROLLBACK"})
			return false
		}
	}
}

func TestATransactionPoolerIsRefusedWithTheReason(t *testing.T) {
	for name, refuses := range map[string]map[string]bool{
		"that refuses session settings": {"statement_timeout": true, "search_path": true},
		"that shares its connections":   nil,
	} {
		t.Run(name, func(t *testing.T) {
			url := pgtest.URL(t)
			server, err := pgconn.Connect(t.Context(), url)
			if err != nil {
				t.Fatal(err)
			}
			p := &pooler{turn: make(chan *pgconn.PgConn, 1), refuses: refuses}
			p.turn <- server
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			var done sync.WaitGroup
			done.Go(func() { p.serve(l, &done) })
			t.Cleanup(func() {
				_ = l.Close()
				done.Wait()
				_ = server.Close(context.Background())
			})
			through := fmt.Sprintf("postgres://slipway@%s/any?sslmode=disable", l.Addr())
			if _, err := store.Open(t.Context(), store.Config{URL: through}); !errors.Is(err, store.ErrPooler) || !strings.Contains(err.Error(), "connect to PostgreSQL directly") {
				t.Fatalf("open: %v", err)
			}
			if err := store.Migrate(t.Context(), through, slog.New(slog.NewTextHandler(io.Discard, nil))); !errors.Is(err, store.ErrPooler) {
				t.Fatalf("migrate: %v", err)
			}
		})
	}
}
