package proxy

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"
)

// ahead is how many events of a watch may be read and not yet passed on.
const ahead = 4096

// read is an event that the server sent, or how its stream ended.
type read struct {
	event event
	at    time.Time
	err   error
}

// stream is one watch.
type stream struct {
	api   *API
	call  APICall
	w     http.ResponseWriter
	shape shape
	about string // what it watches, for the past
	began time.Time
}

// watch passes the events of a watch on, one by one.
func (p *API) watch(w http.ResponseWriter, r *http.Request, call APICall, answer *http.Response) {
	media := answer.Header.Get("Content-Type")
	s := &stream{api: p, call: call, w: w, shape: lines, about: media + " " + r.URL.Path, began: time.Now()}
	if strings.Contains(media, "protobuf") {
		s.shape = frames
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	events := make(chan read, ahead)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.read(ctx, answer.Body, events)
	}()
	err := s.run(ctx, events)
	_ = answer.Body.Close() // ends the reading
	cancel()
	<-ended
	if err != nil {
		panic(http.ErrAbortHandler)
	}
}

func (s *stream) read(ctx context.Context, body io.Reader, events chan<- read) {
	next := s.shape.reader(body)
	for {
		raw, err := next()
		got := read{at: time.Now(), err: err}
		if err == nil {
			got.event, got.err = s.shape.parse(raw)
		}
		select {
		case events <- got:
		case <-ctx.Done():
			return
		}
		if got.err != nil {
			return
		}
	}
}

// run passes events on until the stream ends; nil is a clean end.
func (s *stream) run(ctx context.Context, events <-chan read) error {
	if err := s.flush(nil); err != nil {
		return err
	}
	for {
		got, ok, err := s.next(ctx, events)
		if !ok || err != nil {
			return err
		}
		if err := s.wait(ctx, got); err != nil {
			return err
		}
		switch {
		case errors.Is(got.err, io.EOF):
			return nil
		case got.err != nil:
			return got.err
		}
		if err := s.flush(got.event.raw); err != nil {
			return err
		}
		if err := s.again(got.event); err != nil {
			return err
		}
	}
}

// next waits for an event; false without an error means that the watch is to end.
func (s *stream) next(ctx context.Context, events <-chan read) (read, bool, error) {
	for {
		end, changed := s.api.faults.standing(s.call, APIEndedWatch)
		var over <-chan time.Time
		if end != nil {
			over = time.After(time.Until(s.began.Add(end.For)))
		}
		select {
		case got := <-events:
			return got, true, nil
		case <-changed:
		case <-over:
			if err := s.audible(ctx); err != nil {
				return read{}, false, err
			}
			if s.api.faults.draw(s.call, APIEndedWatch) == nil {
				s.began = time.Now() // chance spared it, for another while
				continue
			}
			return read{}, false, nil
		case <-ctx.Done():
			return read{}, false, ctx.Err()
		}
	}
}

// wait keeps an event, or the end of the stream, as long as faults want.
func (s *stream) wait(ctx context.Context, got read) error {
	if got.err == nil {
		if f := s.api.faults.draw(s.call, APIDelayedEvent); f != nil {
			if left := time.Until(got.at.Add(f.For)); left > 0 && !sleep(ctx, left, f.gone) {
				return ctx.Err()
			}
		}
	}
	return s.audible(ctx)
}

// audible waits while the watch is silent.
func (s *stream) audible(ctx context.Context) error {
	f := s.api.faults.draw(s.call, APISilentRequests)
	if f == nil || sleep(ctx, 0, f.gone) {
		return nil
	}
	return ctx.Err()
}

// again sends an older event where a fault wants one.
func (s *stream) again(just event) error {
	s.api.past.keep(s.about, just)
	if f, _ := s.api.faults.standing(s.call, APIOlderEvent); f == nil {
		return nil
	}
	older := s.api.past.older(s.about)
	if len(older) == 0 || s.api.faults.draw(s.call, APIOlderEvent) == nil {
		return nil
	}
	return s.flush(s.shape.modified(older[s.api.faults.pick(len(older))]))
}

func (s *stream) flush(raw []byte) error {
	if len(raw) > 0 {
		if _, err := s.w.Write(raw); err != nil {
			return err
		}
	}
	return http.NewResponseController(s.w).Flush()
}
