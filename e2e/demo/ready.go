package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// How long the parts may take to be ready, and how often the waiting is explained.
const (
	readyWithin  = 5 * time.Minute
	lookEvery    = 250 * time.Millisecond
	explainEvery = 30 * time.Second // where nothing changes
	quietFor     = 5 * time.Second  // between two lines
	imageWithin  = 15 * time.Second // for a missing image to turn up
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
	said, saidAt := "", time.Now()
	var without time.Time // since when an image is missing
	for {
		now, want, err := p.state(ctx, c)
		if err == nil && want > 0 && now >= want {
			log.say("%s: %d of %d ready", p.title, now, want)
			return nil
		}
		pods, line := p.look(ctx, c, fmt.Sprintf("%d of %d ready", now, want))
		if err != nil {
			line = err.Error()
		}
		switch {
		case !noImage(pods):
			without = time.Time{}
		case without.IsZero():
			without = time.Now()
		case time.Since(without) > imageWithin:
			return fmt.Errorf("wait for %s: %s\n%s", p.title, line, imageHint)
		}
		if quiet := time.Since(saidAt); line != said && quiet > quietFor || quiet > explainEvery {
			said, saidAt = line, time.Now()
			log.say("%s: %s", p.title, line)
		}
		if !sleep(ctx, lookEvery) {
			return p.tooLate(c, line)
		}
	}
}

// look adds to a line what the part's pods suffer from.
func (p part) look(ctx context.Context, c *cluster, line string) ([]corev1.Pod, string) {
	pods, err := c.api.CoreV1().Pods(system).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + p.app})
	if err != nil {
		return nil, line + "; " + err.Error()
	}
	if why := troubles(pods.Items); why != "" {
		line += "; " + why
	}
	return pods.Items, line
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
