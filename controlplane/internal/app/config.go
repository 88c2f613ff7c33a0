package app

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/caarlos0/env/v11"
)

// Prefix begins the name of every variable.
const Prefix = "SLIPWAY_"

// Config is the whole configuration of a control plane. Each field is one environment variable; its doc is what
// --help prints.
type Config struct {
	DatabaseURL   string `env:"DATABASE_URL,required,notEmpty" doc:"PostgreSQL, as postgres://user:password@host/database. Not behind a transaction pooler. Secret."`
	DatabaseConns int32  `env:"DATABASE_CONNS" envDefault:"16" doc:"Most connections to PostgreSQL, besides two for notifications."`

	Listen         string   `env:"LISTEN" envDefault:":8080" doc:"Address to serve on."`
	TLSCert        string   `env:"TLS_CERT" doc:"Path of the certificate to serve with, its chain behind it, as PEM. Default: none."`
	TLSKey         string   `env:"TLS_KEY" doc:"Path of its key, as PEM. Default: none."`
	PlainHTTP      bool     `env:"PLAIN_HTTP" doc:"true serves without TLS: who can listen on the way reads every token. Default: false, and no start without a certificate."`
	TrustedProxies []string `env:"TRUSTED_PROXIES" doc:"Addresses or ranges, by comma, whose X-Forwarded-For is believed. Default: none."`
	Audiences      []string `env:"AUDIENCES" envDefault:"slipway" doc:"Audiences, by comma, that a user's token may be for."`
	CallerRate     float64  `env:"CALLER_RATE" envDefault:"200" doc:"Requests a second that one user may send to one replica; 0: no bound."`
	CallerBurst    int      `env:"CALLER_BURST" envDefault:"400" doc:"Requests that he may send at once after a pause."`
	Replica        string   `env:"REPLICA" doc:"Name of this replica, different from the others'. Default: the host name."`
	PodUID         string   `env:"POD_UID" doc:"Uid of the pod that this replica runs in: what an earlier process of the pod ran inline is then known to have ended. Default: none."`
	LogLevel       string   `env:"LOG_LEVEL" envDefault:"info" doc:"debug, info, warn or error."`

	Namespaces     []string `env:"NAMESPACES,required,notEmpty" doc:"Namespaces, by comma, where Jobs may run; * is all of them."`
	Kubeconfig     string   `env:"KUBECONFIG" doc:"Path of a kubeconfig. Default: the pod's own service account."`
	Kinds          string   `env:"KINDS" doc:"Path of a YAML file with kinds of your own. Default: none. It is read at the start; a bad entry is named and refused."`
	RunnerImage    string   `env:"RUNNER_IMAGE,required,notEmpty" doc:"Image of the runner."`
	RunnerURL      string   `env:"RUNNER_URL,required,notEmpty" doc:"Where a runner reaches this API, as https://slipway.slipway-system.svc:8080."`
	RunnerCA       string   `env:"RUNNER_CA" doc:"Path of the authority, as PEM, that runners trust there and no other; Jobs carry it. Default: those of the runner's image."`
	RunnerAccount  string   `env:"RUNNER_SERVICE_ACCOUNT" envDefault:"slipway-runner" doc:"Service account of Jobs whose kind names none."`
	InlineKinds    []string `env:"INLINE_KINDS" doc:"Kinds, by comma, that may run in this process: tasks that are idempotent and take at most 60 s. Only command.run has a handler in it, and its commands then have all rights of the control plane. Default: none."`
	Upkeep         string   `env:"UPKEEP_NAMESPACE" envDefault:"slipway-system" doc:"Namespace of the schedules that remove what is not kept any longer and check lanes; none makes none, removes nothing, and cleans up no snapshots."`
	PriorityPrefix string   `env:"PRIORITY_PREFIX" doc:"Prefix of the PriorityClasses, before critical, high, normal and low. Default: no PriorityClass."`

	TLSPoll      time.Duration `env:"TLS_POLL" envDefault:"10s" doc:"How often the files of TLS are read; a change is in use at most so much later."`
	Heartbeat    time.Duration `env:"HEARTBEAT" envDefault:"10s" doc:"How often runners are told to beat."`
	Poll         time.Duration `env:"POLL" envDefault:"1s" doc:"How often a queue is looked at without a wake-up."`
	Launches     int           `env:"LAUNCHES" envDefault:"32" doc:"Jobs that are created at the same time."`
	InlinePlaces int           `env:"INLINE_PLACES" envDefault:"8" doc:"Tasks that run in this process at the same time."`
	InlineAfter  time.Duration `env:"INLINE_AFTER" envDefault:"30s" doc:"How long no Job can be launched before what may run in this process does so."`
	Resync       time.Duration `env:"RESYNC" envDefault:"15s" doc:"How often every open attempt is looked at."`
	OthersWait   time.Duration `env:"OTHERS_WAIT" envDefault:"3s" doc:"How much longer than its claimer a replica waits with an attempt."`
	SweepEvery   time.Duration `env:"SWEEP_EVERY" envDefault:"1m" doc:"How often orphaned Jobs are looked for."`
	SweepAge     time.Duration `env:"SWEEP_AGE" envDefault:"1m" doc:"How old an orphan must be."`
	SettleTick   time.Duration `env:"SETTLE_EVERY" envDefault:"1s" doc:"How often due, expired and nudged tasks are looked for without a wake-up."`
	KeepJobs     int           `env:"KEEP_JOBS" envDefault:"2000" doc:"Closed Jobs that are kept for kubectl logs."`
	KeepFor      time.Duration `env:"KEEP_FOR" envDefault:"1h" doc:"How long each of them is kept at most."`
	AuthKeep     time.Duration `env:"AUTH_KEEP" envDefault:"10s" doc:"How long an answer about a token or a permission is good, at most 10s."`
	AuthOutage   time.Duration `env:"AUTH_OUTAGE" envDefault:"15m" doc:"How old such an answer may be, and still good for reading, while the API server does not answer."`
	WatchRenew   time.Duration `env:"WATCH_RENEW" envDefault:"30s" doc:"How often a watch of the cluster is renewed; one that went silent is found within 1.6 times that."`

	StartWait time.Duration `env:"START_WAIT" envDefault:"1m" doc:"How long to wait at the start for a database that does not answer."`
	Drain     time.Duration `env:"DRAIN" envDefault:"2s" doc:"How long to serve on after SIGTERM while /readyz says no."`
	Shutdown  time.Duration `env:"SHUTDOWN" envDefault:"25s" doc:"How long everything may take to end after that; then the process exits with 1."`
}

// ReadConfig reads the environment. Its error names every variable at fault and no value.
func ReadConfig(environ []string) (Config, error) {
	var c Config
	var wrong []error
	if err := env.ParseWithOptions(&c, options(environ)); err != nil {
		wrong = named(err)
	}
	if c.Replica == "" {
		host, err := os.Hostname()
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%sREPLICA: not set, and the host has no name", Prefix))
		}
		c.Replica = host
	}
	wrong = append(wrong, c.check()...)
	return c, errors.Join(firstOfEach(wrong)...)
}

// firstOfEach sorts errors by variable and keeps one for each.
func firstOfEach(wrong []error) []error {
	name := func(err error) string {
		name, _, _ := strings.Cut(err.Error(), ":")
		return name
	}
	slices.SortStableFunc(wrong, func(a, b error) int { return strings.Compare(name(a), name(b)) })
	return slices.CompactFunc(wrong, func(a, b error) bool { return name(a) == name(b) })
}

// MigrateConfig is the part of Config that a migration needs.
type MigrateConfig struct {
	DatabaseURL string        `env:"DATABASE_URL,required,notEmpty"`
	LogLevel    string        `env:"LOG_LEVEL" envDefault:"info"`
	StartWait   time.Duration `env:"START_WAIT" envDefault:"1m"`
}

// ReadMigrateConfig reads what a migration needs.
func ReadMigrateConfig(environ []string) (MigrateConfig, error) {
	var c MigrateConfig
	if err := env.ParseWithOptions(&c, options(environ)); err != nil {
		return c, errors.Join(named(err)...)
	}
	if _, err := logLevel(c.LogLevel); err != nil {
		return c, fmt.Errorf(Prefix+"LOG_LEVEL: %w", err)
	}
	return c, nil
}

func options(environ []string) env.Options {
	return env.Options{Environment: env.ToMap(environ), Prefix: Prefix}
}

// named turns the parser's errors, which name Go fields and show values, into ours.
func named(err error) []error {
	var all env.AggregateError
	if !errors.As(err, &all) {
		return []error{err}
	}
	var out []error
	for _, e := range all.Errors {
		var parse env.ParseError
		var unset env.VarIsNotSetError
		var empty env.EmptyVarError
		switch {
		case errors.As(e, &parse):
			f, _ := reflect.TypeFor[Config]().FieldByName(parse.Name)
			out = append(out, fmt.Errorf("%s: is no %s", variable(f), valueName(parse.Type)))
		case errors.As(e, &unset):
			out = append(out, fmt.Errorf("%s: is not set", unset.Key))
		case errors.As(e, &empty):
			out = append(out, fmt.Errorf("%s: is empty", empty.Key))
		default:
			out = append(out, e)
		}
	}
	return out
}

func valueName(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return "duration, as 10s or 1m30s"
	case t.Kind() == reflect.Bool:
		return "true or false"
	}
	return "number"
}

func variable(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("env"), ",")
	return Prefix + name
}

var namespaceName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// check finds values that are of the right type and still wrong.
func (c Config) check() []error {
	var wrong []error
	bad := func(name, format string, args ...any) {
		wrong = append(wrong, fmt.Errorf(Prefix+name+": "+format, args...))
	}
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		bad("LISTEN", "is no address, as :8080 or 127.0.0.1:8080")
	}
	if u, err := url.Parse(c.RunnerURL); c.RunnerURL != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
		bad("RUNNER_URL", "is no http or https URL")
	}
	if !(c.CallerRate >= 0 && c.CallerRate <= 1e6) {
		bad("CALLER_RATE", "must be between 0 and 1000000")
	}
	for _, ns := range c.Namespaces {
		if ns != "*" && !namespaceName.MatchString(ns) || ns == "*" && len(c.Namespaces) > 1 {
			bad("NAMESPACES", "must be names of namespaces, or * alone")
			break
		}
	}
	if !namespaceName.MatchString(c.Upkeep) {
		bad("UPKEEP_NAMESPACE", "must be the name of a namespace, or none")
	}
	for _, proxy := range c.TrustedProxies {
		_, errRange := netip.ParsePrefix(proxy)
		_, errAddr := netip.ParseAddr(proxy)
		if errRange != nil && errAddr != nil {
			bad("TRUSTED_PROXIES", "must be addresses or ranges, as 10.0.0.0/8")
			break
		}
	}
	if slices.Contains(c.Audiences, "slipway-runner") {
		bad("AUDIENCES", "must not hold slipway-runner, which is the runners'")
	}
	if _, err := logLevel(c.LogLevel); err != nil {
		bad("LOG_LEVEL", "%w", err)
	}
	return slices.Concat(wrong, c.checkTLS(), c.checkNumbers())
}

// checkTLS refuses to send tokens in the clear unless that was asked for.
func (c Config) checkTLS() []error {
	var wrong []error
	bad := func(name, why string) { wrong = append(wrong, errors.New(Prefix+name+": "+why)) }
	plainRunners := strings.HasPrefix(c.RunnerURL, "http:")
	switch has := c.TLSCert != "" || c.TLSKey != ""; {
	case has && c.PlainHTTP:
		bad("PLAIN_HTTP", "is true, and a certificate is set: one of the two")
	case has && c.TLSCert == "":
		bad("TLS_CERT", "is not set, and SLIPWAY_TLS_KEY is")
	case has && c.TLSKey == "":
		bad("TLS_KEY", "is not set, and SLIPWAY_TLS_CERT is")
	case !has && !c.PlainHTTP:
		bad("TLS_CERT", "is not set: name a certificate and its key (SLIPWAY_TLS_CERT, SLIPWAY_TLS_KEY), or say SLIPWAY_PLAIN_HTTP=true")
	case has && plainRunners:
		bad("RUNNER_URL", "is plain http, and this serves TLS")
	}
	if c.RunnerCA != "" && plainRunners {
		bad("RUNNER_CA", "is set, and SLIPWAY_RUNNER_URL is plain http")
	}
	return wrong
}

// checkNumbers refuses what is not above zero, and Drain below it.
func (c Config) checkNumbers() []error {
	var wrong []error
	v := reflect.ValueOf(c)
	for f := range v.Fields() {
		value := v.FieldByIndex(f.Index)
		if !value.CanInt() {
			continue
		}
		switch n := value.Int(); {
		case f.Name == "Drain" && n < 0:
			wrong = append(wrong, fmt.Errorf("%s: must not be below zero", variable(f)))
		case f.Name != "Drain" && n <= 0:
			wrong = append(wrong, fmt.Errorf("%s: must be above zero", variable(f)))
		}
	}
	return wrong
}

func logLevel(name string) (slog.Level, error) {
	var level slog.Level
	if !slices.Contains([]string{"debug", "info", "warn", "error"}, name) {
		return level, errors.New("must be debug, info, warn or error")
	}
	return level, level.UnmarshalText([]byte(name))
}

// Help prints every variable with its meaning and default.
func Help(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for f := range reflect.TypeFor[Config]().Fields() {
		given := ""
		switch {
		case strings.Contains(f.Tag.Get("env"), "required"):
			given = "(required)"
		case f.Tag.Get("envDefault") != "":
			given = "(" + f.Tag.Get("envDefault") + ")"
		}
		if _, err := fmt.Fprintf(table, "  %s\t%s\t%s\n", variable(f), given, f.Tag.Get("doc")); err != nil {
			return err
		}
	}
	return table.Flush()
}
