package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	state func(ctx context.Context, c *cluster) (standing, error)
}

// standing is how far a workload has come.
type standing struct {
	ready, want int32
	image       string // that its pods are to run; a pod with another is on its way out
}

var parts = []part{
	{"PostgreSQL", "slipway-postgres", func(ctx context.Context, c *cluster) (standing, error) {
		set, err := c.api.AppsV1().StatefulSets(system).Get(ctx, "slipway-postgres", metav1.GetOptions{})
		if err != nil {
			return standing{}, err
		}
		ready := min(set.Status.ReadyReplicas, set.Status.UpdatedReplicas)
		if set.Status.ObservedGeneration < set.Generation {
			ready = 0
		}
		return standing{ready, *set.Spec.Replicas, set.Spec.Template.Spec.Containers[0].Image}, nil
	}},
	{"control plane", "slipway", func(ctx context.Context, c *cluster) (standing, error) {
		d, err := c.api.AppsV1().Deployments(system).Get(ctx, "slipway", metav1.GetOptions{})
		if err != nil {
			return standing{}, err
		}
		// A replica of the version before must be gone too.
		ready := min(d.Status.UpdatedReplicas, d.Status.AvailableReplicas)
		if d.Status.ObservedGeneration < d.Generation || d.Status.Replicas > d.Status.UpdatedReplicas {
			ready = 0
		}
		return standing{ready, *d.Spec.Replicas, d.Spec.Template.Spec.Containers[0].Image}, nil
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
		now, err := p.state(ctx, c)
		if err == nil && now.want > 0 && now.ready >= now.want {
			log.say("%s: %d of %d ready", p.title, now.ready, now.want)
			return nil
		}
		pods, line := p.look(ctx, c, now)
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

// look gives the pods that are to stay and a line with what they suffer from.
func (p part) look(ctx context.Context, c *cluster, now standing) ([]corev1.Pod, string) {
	line := fmt.Sprintf("%d of %d ready", now.ready, now.want)
	list, err := c.api.CoreV1().Pods(system).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + p.app})
	if err != nil {
		return nil, line + "; " + err.Error()
	}
	pods := slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool {
		return pod.DeletionTimestamp != nil || pod.Spec.Containers[0].Image != now.image
	})
	if why := troubles(pods); why != "" {
		line += "; " + why
	}
	return pods, line
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
