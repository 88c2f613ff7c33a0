package app

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"slipway.dev/slipway/controlplane/internal/certs"
	"slipway.dev/slipway/controlplane/internal/dispatch"
	"slipway.dev/slipway/controlplane/internal/store"
)

// counts are what the process itself counts.
type counts struct {
	registry  *prometheus.Registry
	submitted *prometheus.CounterVec
	claimed   *prometheus.CounterVec
	finished  *prometheus.CounterVec
	lostRows  *prometheus.CounterVec
	told      *prometheus.CounterVec
	fires     *prometheus.CounterVec
	requests  *prometheus.HistogramVec
}

func newCounts() *counts {
	c := &counts{
		registry: prometheus.NewRegistry(),
		submitted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slipway_tasks_submitted_total", Help: "Tasks submitted here, by kind and what became of the submit.",
		}, []string{"kind", "result"}),
		claimed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slipway_attempts_claimed_total", Help: "Attempts claimed here.",
		}, []string{"queue"}),
		finished: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slipway_attempts_finished_total", Help: "Attempts ended here, by outcome and by the state that their Task moved to.",
		}, []string{"kind", "outcome", "task_state"}),
		lostRows: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slipway_attempts_lost_in_a_row_total",
			Help: "Attempts lost to infrastructure trouble as the third or later in a row of their Task: worth an alarm.",
		}, []string{"kind"}),
		told: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slipway_object_events_total", Help: "Events on the objects that Tasks name: sent, failed, or dropped because too many waited.",
		}, []string{"result"}),
		fires: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slipway_schedule_fires_total", Help: "Instants of schedules that were decided here, by what became of them.",
		}, []string{"outcome"}),
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "slipway_http_request_seconds", Help: "Requests, from the first byte to the answer.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"route", "method", "status"}),
	}
	c.registry.MustRegister(c.submitted, c.claimed, c.finished, c.lostRows, c.told, c.fires, c.requests, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return c
}

func (c *counts) request(route, method string, status int, took time.Duration) {
	c.requests.WithLabelValues(route, method, strconv.Itoa(status)).Observe(took.Seconds())
}

func (c *counts) handler() http.Handler {
	return promhttp.HandlerFor(c.registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})
}

// gauges reads at each scrape what store and cluster know.
type gauges struct {
	store   *store.Store
	cluster wholeCluster
	breaker func() dispatch.Breaker
}

const scrapeTimeout = 3 * time.Second

var (
	queuedDesc    = prometheus.NewDesc("slipway_queue_queued", "Tasks waiting in a queue.", []string{"queue"}, nil)
	runningDesc   = prometheus.NewDesc("slipway_queue_running", "Live attempts of a queue.", []string{"queue"}, nil)
	callsDesc     = prometheus.NewDesc("slipway_cluster_calls_total", "Requests to the API server.", []string{"verb", "resource"}, nil)
	syncDesc      = prometheus.NewDesc("slipway_cluster_sync_age_seconds", "Silence of the quietest watch; absent until each was filled.", nil, nil)
	fallbackDesc  = prometheus.NewDesc("slipway_inline_fallback", "1 while what may run inline does, because no Job can be launched.", nil, nil)
	schedulesDesc = prometheus.NewDesc("slipway_schedules_unhealthy", "Schedules that need somebody: broken, or late with a success that is expected.", []string{"because"}, nil)
	successDesc   = prometheus.NewDesc("slipway_schedule_last_success_timestamp_seconds", "When a task of a schedule last succeeded; of schedules of which a success is expected, absent until there was one.", []string{"schedule_namespace", "schedule"}, nil)
	nextDesc      = prometheus.NewDesc("slipway_schedule_next_timestamp_seconds", "When such a schedule is due next; absent where it never is.", []string{"schedule_namespace", "schedule"}, nil)
	overdueDesc   = prometheus.NewDesc("slipway_schedule_overdue", "1 while such a schedule had no success for longer than is expected.", []string{"schedule_namespace", "schedule"}, nil)
	deadlocksDesc = prometheus.NewDesc("slipway_database_deadlocks_total", "Transactions that the database ended as a deadlock.", nil, nil)
)

// Describe implements prometheus.Collector.
func (g gauges) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{queuedDesc, runningDesc, callsDesc, syncDesc, deadlocksDesc, fallbackDesc, schedulesDesc, successDesc, nextDesc, overdueDesc} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (g gauges) Collect(out chan<- prometheus.Metric) {
	for call, n := range g.cluster.Calls() {
		out <- prometheus.MustNewConstMetric(callsDesc, prometheus.CounterValue, float64(n), call.Verb, call.Resource)
	}
	if age, ok := g.cluster.SyncAge(); ok {
		out <- prometheus.MustNewConstMetric(syncDesc, prometheus.GaugeValue, age.Seconds())
	}
	fallback := 0.
	if g.breaker().Open() {
		fallback = 1
	}
	out <- prometheus.MustNewConstMetric(fallbackDesc, prometheus.GaugeValue, fallback)
	out <- prometheus.MustNewConstMetric(deadlocksDesc, prometheus.CounterValue, float64(g.store.Deadlocks()))
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	if h, err := g.store.ScheduleHealth(ctx); err == nil {
		out <- prometheus.MustNewConstMetric(schedulesDesc, prometheus.GaugeValue, float64(h.Broken), "broken")
		out <- prometheus.MustNewConstMetric(schedulesDesc, prometheus.GaugeValue, float64(h.Late), "late")
	}
	g.promised(ctx, out)
	queues, err := g.store.Queues(ctx)
	if err != nil {
		return // the rest of the scrape is worth more than an error
	}
	for _, q := range queues {
		out <- prometheus.MustNewConstMetric(queuedDesc, prometheus.GaugeValue, float64(q.Queued), q.Name)
		out <- prometheus.MustNewConstMetric(runningDesc, prometheus.GaugeValue, float64(q.Running), q.Name)
	}
}

// promised tells of schedules of which a success is expected.
func (g gauges) promised(ctx context.Context, out chan<- prometheus.Metric) {
	const most = 1000 // series of each kind: slipway_schedules_unhealthy counts them all
	all, err := g.store.PromisedSchedules(ctx, most)
	if err != nil {
		return // the rest of the scrape is worth more than an error
	}
	for _, s := range all {
		for desc, at := range map[*prometheus.Desc]time.Time{successDesc: s.LastSuccessAt, nextDesc: s.NextAt} {
			if !at.IsZero() {
				out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(at.UnixMilli())/1000, s.Namespace, s.Name)
			}
		}
		overdue := 0.
		if s.Overdue {
			overdue = 1
		}
		out <- prometheus.MustNewConstMetric(overdueDesc, prometheus.GaugeValue, overdue, s.Namespace, s.Name)
	}
}

// tlsGauges reads at each scrape how the files of TLS are doing.
type tlsGauges struct{ files *certs.Files }

var (
	tlsReloadsDesc  = prometheus.NewDesc("slipway_tls_reloads_total", "Changes of the TLS files that were taken.", nil, nil)
	tlsFailuresDesc = prometheus.NewDesc("slipway_tls_reload_failures_total", "Readings of the TLS files that could not be used.", nil, nil)
	tlsStaleDesc    = prometheus.NewDesc("slipway_tls_stale", "1 while the TLS files cannot be used and what they held before is.", nil, nil)
	tlsNotAfterDesc = prometheus.NewDesc("slipway_tls_not_after_seconds", "When the certificate in use runs out; absent without TLS.", nil, nil)
)

// Describe implements prometheus.Collector.
func (g tlsGauges) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{tlsReloadsDesc, tlsFailuresDesc, tlsStaleDesc, tlsNotAfterDesc} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (g tlsGauges) Collect(out chan<- prometheus.Metric) {
	now := g.files.Standing()
	stale := 0.
	if now.Stale {
		stale = 1
	}
	out <- prometheus.MustNewConstMetric(tlsReloadsDesc, prometheus.CounterValue, float64(now.Reloads))
	out <- prometheus.MustNewConstMetric(tlsFailuresDesc, prometheus.CounterValue, float64(now.Failures))
	out <- prometheus.MustNewConstMetric(tlsStaleDesc, prometheus.GaugeValue, stale)
	if !now.NotAfter.IsZero() {
		out <- prometheus.MustNewConstMetric(tlsNotAfterDesc, prometheus.GaugeValue, float64(now.NotAfter.Unix()))
	}
}
