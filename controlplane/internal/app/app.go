package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"slipway.dev/slipway/controlplane/internal/auth"
	"slipway.dev/slipway/controlplane/internal/certs"
	"slipway.dev/slipway/controlplane/internal/dispatch"
	"slipway.dev/slipway/controlplane/internal/firing"
	"slipway.dev/slipway/controlplane/internal/httpapi"
	"slipway.dev/slipway/controlplane/internal/inline"
	"slipway.dev/slipway/controlplane/internal/kinds"
	"slipway.dev/slipway/controlplane/internal/kube"
	"slipway.dev/slipway/controlplane/internal/logs"
	"slipway.dev/slipway/controlplane/internal/reconcile"
	"slipway.dev/slipway/controlplane/internal/settle"
	"slipway.dev/slipway/controlplane/internal/store"
	"slipway.dev/slipway/controlplane/internal/tell"
	"slipway.dev/slipway/controlplane/internal/web"
	"slipway.dev/slipway/pkg/api"
	"slipway.dev/slipway/pkg/handler"
	"slipway.dev/slipway/pkg/task"
)

// Logger writes JSON lines. The level is one that the configuration has checked.
func Logger(w io.Writer, level string) *slog.Logger {
	l, err := logLevel(level)
	if err != nil {
		l = slog.LevelInfo
	}
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: l}))
}

// Version says what this binary is; version overrides what the build recorded, where set.
func Version(version string) api.Version {
	v := api.Version{Version: version, API: "v1", RunnerProtocols: []string{task.TerminationPrefix}, Go: runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if v.Version == "" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v.Commit = s.Value
		}
	}
	return v
}

// Migrate brings the database to the schema of this binary.
func Migrate(ctx context.Context, c MigrateConfig, log *slog.Logger) error {
	err := awaitDatabase(ctx, c.StartWait, log, func(ctx context.Context) error { return store.Migrate(ctx, c.DatabaseURL, log) })
	if err != nil {
		return fmt.Errorf("migrate the database: %w", err)
	}
	return nil
}

// Run serves until ctx is done and everything has ended in order.
func Run(ctx context.Context, c Config, version api.Version, log *slog.Logger) error {
	log = log.With("replica", c.Replica)
	log.Info("starting", "version", version.Version, "commit", version.Commit)
	users, err := userKinds(c.Kinds)
	if err != nil {
		return err
	}
	db, err := openStore(ctx, c, log)
	if err != nil {
		return err
	}
	defer db.Close()
	files, err := certs.Open(certs.Config{Cert: c.TLSCert, Key: c.TLSKey, CA: c.RunnerCA, Every: c.TLSPoll, Log: log})
	if err != nil {
		return err
	}
	cluster, err := kube.New(kube.Config{
		Kubeconfig: c.Kubeconfig, Replica: c.Replica, Instance: db.Instance(), Namespaces: c.Namespaces,
		RunnerImage: c.RunnerImage, RunnerURL: c.RunnerURL, RunnerServiceAccount: c.RunnerAccount, RunnerCA: files.CA,
		PriorityPrefix: c.PriorityPrefix, KeepJobs: c.KeepJobs, KeepFor: c.KeepFor,
		Renew: c.WatchRenew, Log: log.With("part", "cluster"),
	})
	if err != nil {
		return err
	}
	p := plane{config: c, version: version, log: log, store: db, cluster: cluster, counts: newCounts()}
	if p.kinds, err = allKinds(c.Kinds, users, c.upkeepKinds(), cluster); err != nil {
		return err
	}
	return p.run(ctx, files)
}

// run joins the parts and serves until ctx is done.
func (p plane) run(ctx context.Context, files *certs.Files) (err error) {
	c, log, db := p.config, p.log, p.store
	p.tell = tell.New(tell.Config{
		Writer: eventWriter{p.cluster}, Log: log.With("part", "tell"),
		Count: func(result string) { p.counts.told.WithLabelValues(result).Inc() },
	})
	if p.pool, err = p.inline(); err != nil {
		return err
	}
	asked := gatekeeper{p.cluster}
	p.gate = auth.New(auth.Config{Reviewer: asked, Accessor: asked, Audiences: c.Audiences, Keep: c.AuthKeep, Outage: c.AuthOutage})
	loops := p.loops()
	p.counts.registry.MustRegister(gauges{store: db, cluster: p.cluster, breaker: loops.dispatcher.Breaker}, tlsGauges{files})
	server, err := p.edge(ctx, loops.dispatcher)
	if err != nil {
		return err
	}
	if server.TLSConfig = files.Server(); server.TLSConfig == nil && p.ready == nil {
		log.Warn("serving without TLS, as SLIPWAY_PLAIN_HTTP says: who can listen on the way reads every token")
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", c.Listen, err)
	}
	defer func() { _ = listener.Close() }() // closed twice where it was served
	log.Info("listening", "address", listener.Addr().String(), "instance", db.Instance())
	if p.ready != nil {
		p.ready(listener.Addr().String())
	}
	return lifecycle{shutdown: c.Shutdown + c.Drain, log: log, parts: []part{
		{"store", db.Run},
		{"certificates", files.Run},
		{"cluster", func(ctx context.Context) error { return p.cluster.Run(ctx, loops.reconciler.Look) }},
		{"tell", ends{store: db, tell: p.tell, log: log.With("part", "tell")}.Run},
		{"reconcile", loops.reconciler.Run},
		{"settle", loops.settler.Run},
		{"upkeep", p.makeUpkeep},
		{"upkeep of volumes", p.makeVolumeSchedules},
		{"inline", until(ctx, p.pool.Run)},
		{"schedules", loops.schedules.Run},
		{"http", func(ctx context.Context) error { return serve(ctx, server, listener, c) }},
		{"dispatch", loops.dispatcher.Run},
	}}.run(ctx)
}

// inline makes the places for what runs in this process, and marks the kinds that may.
func (p plane) inline() (*inline.Pool, error) {
	mine := map[string]handler.Handler{}
	if p.config.Upkeep != noUpkeep {
		mine = upkeep{p.store}.handlers()
	}
	for _, kind := range p.config.InlineKinds {
		h, has := handlers[kind]
		if !has || !p.kinds.AllowInline(kind) {
			return nil, fmt.Errorf(Prefix+"INLINE_KINDS: the control plane has no handler of kind %q; it has: %s", kind,
				strings.Join(slices.Sorted(maps.Keys(handlers)), ", "))
		}
		mine[kind] = h
	}
	return inline.New(inline.Config{
		Books: inlineBooks{p.store, p.tell}, Handlers: mine, Replica: p.config.Replica, Pod: p.config.PodUID, Places: p.config.InlinePlaces,
		Log: p.log.With("part", "inline"),
	}), nil
}

// openStore opens the store of a serving control plane.
func openStore(ctx context.Context, c Config, log *slog.Logger) (db *store.Store, err error) {
	err = awaitDatabase(ctx, c.StartWait, log, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, c.StartWait)
		defer cancel()
		db, err = store.Open(ctx, store.Config{URL: c.DatabaseURL, MaxConns: c.DatabaseConns, Replica: c.Replica})
		return err
	})
	return db, err
}

// awaitDatabase tries until the database answers, for as long as patience. What waiting cannot mend is told at once.
func awaitDatabase(ctx context.Context, patience time.Duration, log *slog.Logger, try func(context.Context) error) error {
	for began := time.Now(); ; {
		err := try(ctx)
		if err == nil || !errors.Is(err, store.ErrUnavailable) {
			return err
		}
		if time.Since(began) > patience {
			return fmt.Errorf("wait for the database for %v: %w", patience, err)
		}
		log.Warn("waiting for the database", "error", err)
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return fmt.Errorf("wait for the database: %w", err)
		}
	}
}

// plane holds what the parts are made of.
type plane struct {
	config  Config
	version api.Version
	log     *slog.Logger
	store   *store.Store
	cluster wholeCluster
	counts  *counts
	tell    *tell.Teller
	kinds   *kinds.Registry
	pool    *inline.Pool
	gate    *auth.Gate
	ready   func(address string) // nil: nobody asks
}

func (p plane) timetable() timetable {
	return timetable{store: p.store, kinds: p.kinds, gate: p.gate, counts: p.counts, cluster: p.cluster}
}

// edge makes the HTTP server; it is not ready once ctx is done.
func (p plane) edge(ctx context.Context, d *dispatch.Dispatcher) (*http.Server, error) {
	e := edge{store: p.store, counts: p.counts, here: here{d, p.pool}}
	times := p.timetable()
	return httpapi.New(httpapi.Config{ //nolint:contextcheck // each handler takes the context of its request
		Gate:      p.gate,
		Submitter: e, Finder: e, Picker: e, History: e, Canceler: e, Holder: e, Editor: e,
		Queues: standing{p.store}, Switches: standing{p.store}, Standing: standing{p.store}, Storage: standing{p.store}, Freezer: standing{p.store}, Lanes: standing{p.store}, Audit: e,
		Schedules: times, Calendars: times, Timer: times,
		Logs:       journal{logs.New(podLogs{p.cluster}, e)},
		Runners:    runners{p.store, p.tell},
		Pods:       pods{p.cluster},
		Cluster:    p.cluster,
		Kinds:      p.kinds,
		SessionKey: p.store.SessionKey(), Heartbeat: p.config.Heartbeat,
		Ready:   readiness{life: ctx, database: p.store, cluster: p.cluster, breaker: d.Breaker, silence: 2 * p.config.WatchRenew, log: p.log}.check,
		Metrics: p.counts.handler(), Docs: web.Docs(), Observe: p.counts.request,
		Pace:           httpapi.Pace{Rate: p.config.CallerRate, Burst: p.config.CallerBurst},
		TrustedProxies: p.config.TrustedProxies, Version: p.version, Log: p.log,
	})
}

// readiness is what decides whether this replica should get requests.
type readiness struct {
	life     context.Context // done once the process is to end
	database interface {
		Ready(ctx context.Context) error
	}
	cluster interface {
		SyncAge() (age time.Duration, ok bool)
		Gap() time.Duration
		Shut() []string
	}
	breaker func() dispatch.Breaker
	silence time.Duration // how long the cluster may be unheard before that is said
	log     *slog.Logger
}

// check says in plain words why it should get none, and what is amiss although it should. A cluster that is not heard is
// no reason to get none: reads answer from the database, and the reports of runners have to arrive.
func (r readiness) check(ctx context.Context) (degraded string, err error) {
	if r.life.Err() != nil {
		return "", errors.New("shutting down")
	}
	if err := r.database.Ready(ctx); err != nil {
		r.log.Warn("the database is not ready", "error", err)
		var known *store.NotReadyError
		if errors.As(err, &known) {
			return "", errors.New("the database " + known.Why)
		}
		return "", errors.New("the database cannot be reached or written")
	}
	inline := ""
	if r.breaker().Open() {
		inline = "; no job can be launched: what may run inline does"
	}
	age, filled := r.cluster.SyncAge()
	gap := r.cluster.Gap()
	switch {
	case !filled:
		return "", errors.New("cluster: the first reading of Jobs and pods is not complete")
	case gap > 0 || age > r.silence:
		return fmt.Sprintf("cluster: not heard for %v", max(age, gap).Round(time.Second)) + inline, nil
	}
	if shut := r.cluster.Shut(); len(shut) > 0 {
		return "cluster: no access to " + strings.Join(shut, ", ") + ": deleted, or not enabled any more" + inline, nil
	}
	return strings.TrimPrefix(inline, "; "), nil
}

// loops are the background parts that hear of each other.
type loops struct {
	reconciler *reconcile.Reconciler
	dispatcher *dispatch.Dispatcher
	settler    *settle.Settler
	schedules  *firing.Runner
}

func (p plane) loops() loops {
	b := books{store: p.store, counts: p.counts, log: p.log, tell: p.tell}
	truth := truthBooks{b}
	var l loops
	l.reconciler = reconcile.New(reconcile.Config{
		Reader: truth, Ender: truth, Noter: truth, Ledger: truth,
		Sight: p.cluster, Hand: p.cluster, Remains: p.cluster, Tails: tails{p.cluster, p.store}, ClusterFence: p.cluster.MaxFence,
		Wakes: p.store.AttemptWakes(), Doubts: p.store.Doubts(), Reopened: p.cluster.Reopened(),
		Synced: p.cluster.WaitSynced, Log: p.log.With("part", "reconcile"),
		Resync: p.config.Resync, OthersWait: p.config.OthersWait, SweepEvery: p.config.SweepEvery, SweepAge: p.config.SweepAge,
	})
	l.dispatcher = dispatch.New(dispatch.Config{
		Queues: b, Records: launchBooks{b}, Cluster: p.cluster, Shelf: p.cluster, Inline: p.pool, Replica: p.config.Replica,
		Wakes: p.store.QueueWakes(), After: l.reconciler.Ready(), Follow: l.reconciler.Follow, Log: p.log.With("part", "dispatch"),
		Poll: p.config.Poll, Concurrent: p.config.Launches, InlineAfter: p.config.InlineAfter, NoFallback: !slices.ContainsFunc(p.pool.Kinds(), p.elsewhere),
	})
	l.settler = settle.New(settle.Config{
		Steps: p.store, Nudges: p.store.NudgeWakes(), Log: p.log.With("part", "settle"), Poll: p.config.SettleTick,
	})
	times := p.timetable()
	l.schedules = firing.New(firing.Config{
		Book: times, Rights: times, Wakes: p.store.ScheduleWakes(), Log: p.log.With("part", "schedules"), Poll: p.config.SettleTick,
	})
	return l
}

// elsewhere reports whether what runs here could be a Job as well.
func (plane) elsewhere(kind string) bool { return kind != kinds.Retention && kind != kinds.Check }

// serve answers requests until ctx is done, then for a while those that come because nobody knows yet, then those that
// are under way.
func serve(ctx context.Context, server *http.Server, l net.Listener, c Config) error {
	ended := make(chan error, 1)
	go func() { ended <- listen(server, l) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve HTTP: %w", err)
	case <-ctx.Done():
	}
	time.Sleep(c.Drain)
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.Shutdown*4/5)
	defer cancel()
	err := server.Shutdown(last)
	if err != nil {
		err = errors.Join(fmt.Errorf("end requests: %w", err), server.Close())
	}
	if end := <-ended; !errors.Is(end, http.ErrServerClosed) {
		err = errors.Join(err, end)
	}
	return err
}

// listen serves with TLS where the server has a certificate. HTTP/1 alone: the limits on slow and endless clients are
// made for it.
func listen(server *http.Server, l net.Listener) error {
	if server.TLSConfig == nil {
		return server.Serve(l)
	}
	server.Protocols = new(http.Protocols)
	server.Protocols.SetHTTP1(true)
	return server.ServeTLS(l, "", "")
}
