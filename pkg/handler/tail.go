package handler

import (
	"io"
	"sync"
)

// tail keeps the last bytes of everything that is written to its streams, in the order of the writes.
type tail struct {
	mu   sync.Mutex
	kept []byte
}

// stream passes writes through to next unchanged and keeps the end of them.
func (t *tail) stream(next io.Writer) io.Writer { return &stream{tail: t, next: next} }

// bytes gives what is kept.
func (t *tail) bytes() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]byte(nil), t.kept...)
}

func (t *tail) add(p []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p = p[max(0, len(p)-maxTail):]
	if over := len(t.kept) + len(p) - maxTail; over > 0 {
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
	t.kept = append(t.kept, p...)
}

type stream struct {
	tail *tail
	next io.Writer
}

// Write keeps p even if next does not take it.
func (s *stream) Write(p []byte) (int, error) {
	s.tail.add(p)
	return s.next.Write(p)
}
