package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// How long the parts may take to be ready, and how often the waiting is explained.
const (
	readyWithin  = 5 * time.Minute
	lookEvery    = 250 * time.Millisecond
	explainEvery = 30 * time.Second
)

// part is one workload of the installation.
type part struct {
	title string
	app   string // label app.kubernetes.io/name
	state func(ctx context.Context, c *cluster) (ready, want int32, err error)
}

var parts = []part{
	{"PostgreSQL", "slipway-postgres", func(ctx context.Context, c *cluster) (int32, int32, error) {
		set, err := c.api.AppsV1().StatefulSets(system).Get(ctx, "slipway-postgres", metav1.GetOptions{})
		if err != nil {
			return 0, 0, err
		}
		ready := min(set.Status.ReadyReplicas, set.Status.UpdatedReplicas)
		if set.Status.ObservedGeneration < set.Generation {
			ready = 0
		}
		return ready, *set.Spec.Replicas, nil
	}},
	{"control plane", "slipway", func(ctx context.Context, c *cluster) (int32, int32, error) {
		d, err := c.api.AppsV1().Deployments(system).Get(ctx, "slipway", metav1.GetOptions{})
		if err != nil {
			return 0, 0, err
		}
		// A replica of the version before must be gone too.
		ready := min(d.Status.UpdatedReplicas, d.Status.AvailableReplicas)
		if d.Status.ObservedGeneration < d.Generation || d.Status.Replicas > d.Status.UpdatedReplicas {
			ready = 0
		}
		return ready, *d.Spec.Replicas, nil
	}},
}

// ready waits for every part and says what each is waiting for.
func ready(ctx context.Context, c *cluster, log *progress) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	for _, p := range parts {
		if err := p.wait(ctx, c, log); err != nil {
			return err
		}
	}
	return nil
}

func (p part) wait(ctx context.Context, c *cluster, log *progress) error {
	var said string
	saidAt := time.Now()
	for {
		now, want, err := p.state(ctx, c)
		if err == nil && want > 0 && now >= want {
			log.say("%s: %d of %d ready", p.title, now, want)
			return nil
		}
		line := fmt.Sprintf("%d of %d ready", now, want)
		if err != nil {
			line = err.Error()
		} else if why := p.why(ctx, c); why != "" {
			line += "; " + why
		}
		if line != said && time.Since(saidAt) > 2*time.Second || time.Since(saidAt) > explainEvery {
			said, saidAt = line, time.Now()
			log.say("%s: %s", p.title, line)
		}
		if !sleep(ctx, lookEvery) {
			return p.tooLate(c, line)
		}
	}
}

func (p part) why(ctx context.Context, c *cluster) string {
	pods, err := c.api.CoreV1().Pods(system).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + p.app})
	if err != nil {
		return err.Error()
	}
	return troubles(pods.Items)
}

// tooLate ends the waiting with what the part itself says.
func (p part) tooLate(c *cluster, line string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	logs, err := c.kubectlRun(ctx, nil, "-n", system, "logs", "-l", "app.kubernetes.io/name="+p.app, "--all-containers", "--tail=10", "--prefix")
	if err != nil {
		logs = err.Error()
	}
	return fmt.Errorf("wait for %s: %s; its last words:\n%s", p.title, line, strings.TrimSpace(logs))
}

// sleep waits; false means that ctx is over.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return !errors.Is(ctx.Err(), context.Canceled)
	}
}
