package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"regexp"
	"runtime/debug"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"slipway.dev/slipway/controlplane/internal/auth"
)

// call is what is known of a request before its handler runs.
type call struct {
	identity auth.Identity // of a user or a pod
	token    string        // a session key
	body     any           // as parsed
	task     string        // id, for the log
	origin   Origin
}

// Origin is where a request came from, for the audit.
type Origin struct{ Peer, Request string }

// OriginOf finds where the request of a context came from; the zero Origin where it is of none.
func OriginOf(ctx context.Context) Origin {
	_, known := plain(ctx)
	return known.origin
}

type callKey struct{}

// plain leaves gin's context, which is used again after the request, for the request's own, and finds the call.
func plain(ctx context.Context) (context.Context, *call) {
	if c, ok := ctx.(*gin.Context); ok {
		ctx = c.Request.Context()
	}
	if found, ok := ctx.Value(callKey{}).(*call); ok {
		return ctx, found
	}
	return ctx, &call{}
}

// attempt is the id that a runner's body names.
func (k *call) attempt() string {
	if body, ok := k.body.(map[string]any); ok {
		if id, ok := body["attempt"].(json.Number); ok {
			return string(id)
		}
	}
	return ""
}

const requestKey = "slipway.request"

func requestID(c *gin.Context) string { return c.GetString(requestKey) }

var validRequestID = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// account gives the request its id and tells of its end.
func (s *server) account(c *gin.Context) {
	began := time.Now()
	id := c.GetHeader("X-Request-Id")
	if !validRequestID.MatchString(id) {
		id = newRequestID()
	}
	c.Set(requestKey, id)
	h := c.Writer.Header()
	h.Set("X-Request-Id", id)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	c.Next()
	route := c.FullPath()
	if route == "" {
		route = "none"
	}
	took, status := time.Since(began), c.Writer.Status()
	if s.observe != nil {
		s.observe(route, c.Request.Method, status, took)
	}
	level := slog.LevelDebug
	switch {
	case status >= http.StatusInternalServerError:
		level = slog.LevelWarn
	case c.Request.Method != http.MethodGet && !strings.HasPrefix(route, "/v1/runner/"):
		level = slog.LevelInfo
	}
	_, known := plain(c)
	if known.task == "" {
		known.task = c.Param("id")
	}
	s.log.LogAttrs(c.Request.Context(), level, "request", slog.String("request", id), slog.String("method", c.Request.Method),
		slog.String("route", route), slog.Int("status", status), slog.Duration("took", took),
		slog.String("caller", known.identity.User), slog.String("peer", c.ClientIP()),
		slog.String("task", known.task), slog.String("attempt", known.attempt()))
}

// recover answers a panic with 500 and keeps its text inside.
func (s *server) recover(c *gin.Context) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
			panic(p)
		}
		s.log.ErrorContext(c.Request.Context(), "request panicked", slog.Any("panic", p), slog.String("request", requestID(c)),
			slog.String("route", c.FullPath()), slog.String("stack", string(debug.Stack())))
		s.fail(c, errPanicked)
	}()
	c.Next()
}

var errPanicked = errors.New("a handler panicked")

// admit lets a request of the API through to its handler once its caller is known and its parts fit the document.
func (s *server) admit(c *gin.Context) {
	g, ok := s.operations[c.Request.Method+" "+c.FullPath()]
	if !ok {
		return // a probe, or no route
	}
	known := &call{origin: Origin{Peer: c.ClientIP(), Request: requestID(c)}}
	err := s.identify(c.Request, g.route, known)
	if err == nil && g.caller == user {
		if wait := s.pacer.take(known.identity.User, time.Now()); wait > 0 {
			err = &HastyError{RetryAfter: wait}
		}
	}
	if err == nil {
		err = g.operation.checkParameters(c.Request, c.Param)
	}
	if err == nil {
		known.body, err = readBody(c.Writer, c.Request, g)
	}
	c.Request = c.Request.WithContext(context.WithValue(c.Request.Context(), callKey{}, known))
	if err != nil {
		s.fail(c, err)
	}
}

// identify finds out who is calling.
func (s *server) identify(r *http.Request, as route, known *call) (err error) {
	switch as.caller {
	case anybody:
		return nil
	case user:
		known.identity, err = s.gate.User(r.Context(), tokenOf(r))
	case pod:
		known.identity, err = s.gate.Runner(r.Context(), tokenOf(r))
	case session:
		if known.token = tokenOf(r); !sessionShape.MatchString(known.token) {
			return auth.ErrNoIdentity
		}
	}
	return err
}

// sessionShape is what a session key looks like; anything else is refused before its body is read.
var sessionShape = regexp.MustCompile(`^[A-Za-z0-9_-]{43}$`)

// tokenOf finds the caller's token. Slipway-Authorization comes first: a proxy on the way may put a token of its own
// into the other.
func tokenOf(r *http.Request) string {
	for _, name := range []string{"Slipway-Authorization", "Authorization"} {
		values := r.Header.Values(name)
		if len(values) == 0 {
			continue
		}
		scheme, token, _ := strings.Cut(values[0], " ")
		if len(values) > 1 || !strings.EqualFold(scheme, "Bearer") {
			return ""
		}
		return strings.TrimSpace(token)
	}
	return ""
}

// readBody reads, parses and checks a body, and puts it back for the generated code to bind.
func readBody(w http.ResponseWriter, r *http.Request, g guarded) (any, error) {
	if g.operation.body == nil {
		return nil, nil
	}
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, g.body))
	switch {
	case err != nil:
		return nil, unreadable(err)
	case len(raw) == 0 && g.operation.required:
		return nil, badRequest("a body is needed")
	case len(raw) == 0:
		r.Body = http.NoBody
		return nil, nil
	}
	if err := checkHeaders(r); err != nil {
		return nil, err
	}
	p := &parser{data: raw, clean: g.clean}
	body, err := p.parse()
	if err != nil {
		return nil, err
	}
	if err := g.operation.checkBody(body); err != nil {
		return nil, err
	}
	if p.cleaned {
		if raw, err = json.Marshal(body); err != nil {
			return nil, fmt.Errorf("write a cleaned body: %w", err)
		}
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(raw)), int64(len(raw))
	return body, nil
}

func unreadable(err error) error {
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return err
	}
	return badRequest("the body could not be read to its end")
}

// checkHeaders refuses what is not plain JSON.
func checkHeaders(r *http.Request) error {
	if coding := r.Header.Get("Content-Encoding"); coding != "" && coding != "identity" {
		return &requestError{status: http.StatusUnsupportedMediaType, detail: "a body must not be compressed"}
	}
	kind, parameters, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	charset := strings.ToLower(parameters["charset"])
	if err != nil || kind != "application/json" || charset != "" && charset != "utf-8" {
		return &requestError{status: http.StatusUnsupportedMediaType, detail: "the body must be application/json in UTF-8"}
	}
	return nil
}
