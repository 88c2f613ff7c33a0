// Package recorder writes down what handlers say they do: a small HTTP server outside of Slipway that stamps each entry
// on arrival, by its one clock, and appends it to a file, one JSON object a line. Whether two handlers were at work at
// the same time is then a question to that file and to nobody who might be wrong about it.
//
//	POST /entries   one Entry; answered with 204 once it is in the file
//	GET  /entries   the file
//
// e2e/recorder/work is a handler that writes here.
//
// Allowed imports: the standard library.
package recorder

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// What an Entry says.
const (
	Begin = "begin" // a handler is about to work
	Alive = "alive" // it is at work
	End   = "end"   // it will do nothing more
)

// Entry is one line of the file.
type Entry struct {
	At      time.Time `json:"at"` // when it arrived; what a handler writes here is not read
	What    string    `json:"what"`
	Task    string    `json:"task"`
	Lane    string    `json:"lane,omitempty"`
	Attempt int       `json:"attempt"`
	Fence   int64     `json:"fence"`
	Pod     string    `json:"pod"`
	Note    string    `json:"note,omitempty"`
}

// Recorder is the server.
type Recorder struct {
	Address string // host:port
	File    string

	server *http.Server
	began  time.Time // carries the monotonic reading that every stamp is counted from
	done   chan struct{}

	mu  sync.Mutex
	out *os.File
}

// Start serves on a free port of host and appends to file.
func Start(ctx context.Context, host, file string) (*Recorder, error) {
	out, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the recorder's file: %w", err)
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen for handlers: %w", err), out.Close())
	}
	r := &Recorder{Address: l.Addr().String(), File: file, began: time.Now(), done: make(chan struct{}), out: out}
	routes := http.NewServeMux()
	routes.HandleFunc("POST /entries", r.take)
	routes.HandleFunc("GET /entries", func(w http.ResponseWriter, q *http.Request) { http.ServeFile(w, q, file) })
	r.server = &http.Server{Handler: routes, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		defer close(r.done)
		_ = r.server.Serve(l) // it ends by Close
	}()
	return r, nil
}

// Close ends the server; the file stays.
func (r *Recorder) Close() error {
	err := r.server.Close()
	<-r.done
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.Join(err, r.out.Close())
}

func (r *Recorder) take(w http.ResponseWriter, q *http.Request) {
	at := r.began.Add(time.Since(r.began))
	var e Entry
	if err := json.NewDecoder(http.MaxBytesReader(w, q.Body, 64<<10)).Decode(&e); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	e.At = at
	if err := r.write(e); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (r *Recorder) write(e Entry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, err = r.out.Write(append(line, '\n'))
	return err
}
