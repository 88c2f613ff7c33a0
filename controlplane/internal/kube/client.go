package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"slipway.dev/slipway/pkg/task"
)

// Config is what a Client needs.
type Config struct {
	REST       *rest.Config // nil: from Kubeconfig
	Kubeconfig string       // path; empty: the pod's own service account

	Replica    string   // who we are, in Events
	Instance   string   // uuid of this Slipway; part of every label and selector
	Namespaces []string // where Jobs run; AllNamespaces alone: everywhere

	RunnerImage          string
	RunnerURL            string        // where a runner finds the control plane
	RunnerCA             func() string // the authority, in PEM, that runners trust there; nil or empty: their image's
	RunnerServiceAccount string        // of kinds that name none; default `slipway-runner`
	// PriorityPrefix and the name of a Task's class make the PriorityClass of its pod; empty: no PriorityClass.
	PriorityPrefix string

	KeepJobs int           // closed Jobs kept at the same time; default 2,000
	KeepFor  time.Duration // how long a closed Job is kept at most; default 1 h
	Timeout  time.Duration // of one call; default 10 s
	Renew    time.Duration // how often a watch is renewed, give or take a quarter; default 30 s

	Log *slog.Logger // when the cluster is not heard, and what client-go says; nil: slog's own
}

// AllNamespaces in Config.Namespaces watches the whole cluster.
const AllNamespaces = "*"

const (
	defaultServiceAccount = "slipway-runner"
	defaultKeepJobs       = 2000
	defaultKeepFor        = time.Hour
	defaultTimeout        = 10 * time.Second
	defaultRenew          = 30 * time.Second
)

// Client is the control plane's access to a cluster.
type Client struct {
	cfg   Config
	api   kubernetes.Interface
	calls *calls
	cache *cached
	kept  *kept
}

// New makes a Client. It starts nothing and calls nothing: see Run.
func New(cfg Config) (*Client, error) {
	if cfg.Instance == "" || cfg.RunnerImage == "" || cfg.RunnerURL == "" {
		return nil, errors.New("set up the cluster client: Instance, RunnerImage and RunnerURL are needed")
	}
	if len(cfg.Namespaces) == 0 {
		return nil, errors.New("set up the cluster client: name the namespaces, or * for all")
	}
	if slices.Contains(cfg.Namespaces, AllNamespaces) {
		cfg.Namespaces = []string{""}
	}
	cfg.Replica = or(cfg.Replica, "slipway")
	cfg.RunnerServiceAccount = or(cfg.RunnerServiceAccount, defaultServiceAccount)
	cfg.KeepJobs = or(cfg.KeepJobs, defaultKeepJobs)
	cfg.KeepFor = or(cfg.KeepFor, defaultKeepFor)
	cfg.Timeout = or(cfg.Timeout, defaultTimeout)
	cfg.Renew = or(cfg.Renew, defaultRenew)
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	} else {
		klog.SetSlogLogger(cfg.Log)
	}
	access, err := access(cfg)
	if err != nil {
		return nil, err
	}
	c := &Client{cfg: cfg, calls: newCalls(), kept: newKept(cfg.KeepJobs, cfg.KeepFor)}
	access.Wrap(patient)
	access.Wrap(c.calls.wrap)
	rereadToken(access)
	if c.api, err = kubernetes.NewForConfig(access); err != nil {
		return nil, fmt.Errorf("set up the cluster client: %w", err)
	}
	c.cache, err = newCached(c)
	return c, err
}

func or[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}

// bounded gives one call its time.
func (c *Client) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.cfg.Timeout)
}

// Calls counts the requests sent so far.
func (c *Client) Calls() map[Call]int64 { return c.calls.snapshot() }

// namespaced tells whether Jobs may run in ns.
func (c *Client) namespaced(ns string) bool {
	return c.cfg.Namespaces[0] == "" || slices.Contains(c.cfg.Namespaces, ns)
}

// unreached marks trouble of the connection or the server, so that callers may tell it from an answer.
func unreached(err error) error {
	if unavailable(err) {
		return fmt.Errorf("%w: %w", task.ErrUnavailable, err)
	}
	return err
}
