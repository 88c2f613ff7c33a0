package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"slipway.dev/slipway/controlplane/internal/kinds"
	"slipway.dev/slipway/pkg/api"
	"slipway.dev/slipway/pkg/task"
)

// Config is what the edge stands on.
type Config struct {
	Gate      Gate
	Submitter Submitter
	Finder    Finder
	Picker    Picker
	History   History
	Canceler  Canceler
	Holder    Holder
	Editor    Editor
	Queues    Queues
	Switches  Switches
	Standing  Standing
	Storage   Storage
	Freezer   Freezer
	Lanes     Lanes
	Audit     Audit
	Schedules Schedules
	Calendars Calendars
	Timer     Timer
	Logs      Logs
	Runners   Runners
	Pods      Pods
	Cluster   Cluster
	Kinds     *kinds.Registry

	// SessionKey is the secret of the session keys.
	SessionKey []byte
	// Heartbeat is how often runners are told to beat; zero means task.HeartbeatEvery.
	Heartbeat time.Duration
	// Ready returns why the process cannot serve, in words that may be shown, nil where it can; and what is amiss all the
	// same.
	Ready   func(ctx context.Context) (degraded string, err error)
	Metrics http.Handler
	Docs    http.Handler // at /docs, for everybody; nil: none
	// Observe is told of each request.
	Observe func(route, method string, status int, took time.Duration)
	// Pace bounds each user; runners are not bounded.
	Pace Pace
	// TrustedProxies are addresses or ranges whose X-Forwarded-For is believed; empty: none.
	TrustedProxies []string
	Version        api.Version
	Log            *slog.Logger
}

// server implements the generated StrictServerInterface.
type server struct {
	gate      Gate
	submitter Submitter
	finder    Finder
	picker    Picker
	history   History
	canceler  Canceler
	holder    Holder
	editor    Editor
	queues    Queues
	switches  Switches
	standing  Standing
	storage   Storage
	freezer   Freezer
	lanes     Lanes
	audit     Audit
	schedules Schedules
	calendars Calendars
	timer     Timer
	logs      Logs
	runners   Runners
	pods      Pods
	cluster   Cluster
	kinds     *kinds.Registry

	sessionKey []byte
	heartbeat  time.Duration
	ready      func(context.Context) (string, error)
	metrics    http.Handler
	docs       http.Handler
	observe    func(string, string, int, time.Duration)
	version    api.Version
	log        *slog.Logger

	pacer      *pacer
	operations map[string]guarded // by method and path as gin has it
	going      context.Context    // done once the server is being closed: streams end then
}

// guarded is a route with what the document says of it.
type guarded struct {
	route
	operation *operation
}

// Timeouts of the server. Streams lift those of reading and writing for themselves.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 30 * time.Second
	writeTimeout      = 60 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeader         = 32 * kib
)

// New makes the HTTP server; it does not listen.
func New(c Config) (*http.Server, error) {
	s := &server{
		gate: c.Gate, submitter: c.Submitter, finder: c.Finder, picker: c.Picker, history: c.History, canceler: c.Canceler,
		holder: c.Holder, editor: c.Editor, queues: c.Queues, switches: c.Switches, standing: c.Standing, freezer: c.Freezer, lanes: c.Lanes, audit: c.Audit,
		storage:   c.Storage,
		schedules: c.Schedules, calendars: c.Calendars, timer: c.Timer,
		logs: c.Logs, runners: c.Runners, pods: c.Pods, cluster: c.Cluster, kinds: c.Kinds, sessionKey: c.SessionKey, heartbeat: c.Heartbeat,
		ready: c.Ready, metrics: c.Metrics, docs: c.Docs, observe: c.Observe, version: c.Version, log: c.Log, pacer: newPacer(c.Pace),
	}
	if s.heartbeat <= 0 {
		s.heartbeat = task.HeartbeatEvery.Duration()
	}
	if s.metrics == nil {
		s.metrics = http.NotFoundHandler()
	}
	if err := s.guard(); err != nil {
		return nil, err
	}
	engine, err := s.engine(c.TrustedProxies)
	if err != nil {
		return nil, err
	}
	going, gone := context.WithCancel(context.Background())
	s.going = going
	h := &http.Server{
		Handler: engine, ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(c.Log.Handler(), slog.LevelDebug), // broken connections of clients
	}
	h.RegisterOnShutdown(gone)
	return h, nil
}

// guard joins the routes with the document.
func (s *server) guard() error {
	doc, err := theDocument()
	if err != nil {
		return err
	}
	s.operations = make(map[string]guarded, len(routes))
	for _, r := range routes {
		op := doc.operations[r.method+" "+r.path]
		if op == nil {
			return fmt.Errorf("route %s %s is not in openapi.yaml", r.method, r.path)
		}
		s.operations[r.method+" "+ginPath(r.path)] = guarded{route: r, operation: op}
	}
	if len(s.operations) != len(doc.operations) {
		return errors.New("openapi.yaml has operations that no route knows")
	}
	return nil
}

func (s *server) engine(trusted []string) (*gin.Engine, error) {
	gin.SetMode(gin.ReleaseMode)
	e := gin.New()
	e.RedirectTrailingSlash, e.RedirectFixedPath = false, false
	e.HandleMethodNotAllowed = true
	e.ContextWithFallback = true // else a handler never sees its client leave
	if err := e.SetTrustedProxies(trusted); err != nil {
		return nil, fmt.Errorf("read the trusted proxies: %w", err)
	}
	e.Use(s.account, s.recover, s.admit)
	e.NoRoute(func(c *gin.Context) {
		s.fail(c, &requestError{status: http.StatusNotFound, detail: "there is no such route"})
	})
	e.NoMethod(func(c *gin.Context) {
		s.fail(c, &requestError{status: http.StatusMethodNotAllowed, detail: "the route does not know this method"})
	})
	s.probes(e)
	refuse := func(c *gin.Context, _ error) { s.fail(c, badRequest("the request does not fit the API's document")) }
	RegisterHandlersWithOptions(e, NewStrictHandlerWithOptions(s, nil, StrictGinServerOptions{
		RequestErrorHandlerFunc: refuse, HandlerErrorFunc: s.fail, ResponseErrorHandlerFunc: s.fail,
	}), GinServerOptions{ErrorHandler: func(c *gin.Context, err error, _ int) { refuse(c, err) }})
	return e, nil
}

func (s *server) healthz(c *gin.Context) { c.String(http.StatusOK, "ok\n") }

func (s *server) readyz(c *gin.Context) {
	ctx, cancel := context.WithTimeout(c.Request.Context(), 3*time.Second)
	defer cancel()
	degraded, reason := s.ready(ctx)
	if s.going.Err() != nil {
		reason = errors.New("shutting down")
	}
	if reason != nil {
		c.String(http.StatusServiceUnavailable, "not ready: %v\n", reason)
		return
	}
	if degraded != "" {
		c.String(http.StatusOK, "ready, degraded: %s\n", degraded)
		return
	}
	c.String(http.StatusOK, "ready\n")
}

// GetVersion says what this server is.
func (s *server) GetVersion(context.Context, GetVersionRequestObject) (GetVersionResponseObject, error) {
	return GetVersion200JSONResponse(s.version), nil
}
