package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"slipway.dev/slipway/e2e/packages"
)

// PoolerNeeds is what a pooler takes from the distribution.
var PoolerNeeds = []packages.Need{{File: "pgbouncer", Package: "pgbouncer"}}

// Pooler is a pgbouncer before a server, which hands out its connections by transaction.
type Pooler struct {
	port int
	cmd  *exec.Cmd
	dir  string
}

// Pool starts one for a database of the server.
func (s *Server) Pool(ctx context.Context, database string) (*Pooler, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	p := &Pooler{port: port}
	if p.dir, err = os.MkdirTemp("", "slipway-pooler-"); err != nil {
		return nil, fmt.Errorf("make the pooler's folder: %w", err)
	}
	config := filepath.Join(p.dir, "pgbouncer.ini")
	text := fmt.Sprintf("[databases]\n%s = host=127.0.0.1 port=%d user=%s password=%s\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"+
		"listen_port = %d\nunix_socket_dir =\nauth_type = any\npool_mode = transaction\nlogfile = %s\n",
		database, s.port, User, s.password, port, filepath.Join(p.dir, "log"))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("write the pooler's settings: %w", err), p.Stop())
	}
	if s.account != nil {
		for _, path := range []string{p.dir, config} {
			if err := os.Chown(path, int(s.account.Uid), int(s.account.Gid)); err != nil {
				return nil, errors.Join(fmt.Errorf("hand over the pooler's settings: %w", err), p.Stop())
			}
		}
	}
	p.cmd = exec.Command(packages.Find("pgbouncer"), "-q", config)
	p.cmd.Dir = p.dir
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.account}
	if err := p.cmd.Start(); err != nil {
		p.cmd = nil
		return nil, errors.Join(fmt.Errorf("start the pooler: %w", err), p.Stop())
	}
	if err := p.answers(ctx); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return p, nil
}

func (p *Pooler) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	var dialer net.Dialer
	for {
		c, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port)))
		if err == nil {
			return c.Close()
		}
		if ctx.Err() != nil {
			return fmt.Errorf("start the pooler: no answer: %w", err)
		}
		pause(ctx, 50*time.Millisecond)
	}
}

// URL gives the connection string of the database through the pooler.
func (p *Pooler) URL(database string) string {
	return fmt.Sprintf("postgres://%s@127.0.0.1:%d/%s?sslmode=disable", User, p.port, database)
}

// Stop ends the pooler and removes its folder.
func (p *Pooler) Stop() error {
	if p.cmd != nil {
		_ = p.cmd.Process.Kill() // its end is awaited next
		_ = p.cmd.Wait()
	}
	return os.RemoveAll(p.dir)
}
