package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cmdcluster "slipway.dev/slipway/controlplane/cmd/slipway/cluster"
	"slipway.dev/slipway/e2e/cluster/local"
)

// goneWithin is how long a namespace may take to go.
const goneWithin = 3 * time.Minute

// down removes everything that up made: the whole local cluster, or what was applied to the current one.
func down(ctx context.Context, s settings, log *progress) error {
	if !s.current {
		return downLocal(ctx, s, log)
	}
	c, err := current(ctx, log)
	if err != nil {
		return err
	}
	return remove(ctx, c, log)
}

// downLocal removes the named cluster, or all of this machine: those of tests too.
func downLocal(ctx context.Context, s settings, log *progress) error {
	names := []string{s.name}
	if s.name == "" {
		var err error
		if names, err = local.List(); err != nil {
			return err
		}
	}
	for _, name := range names {
		if err := local.Down(ctx, name); err != nil {
			return err
		}
		log.say("cluster %s and all that it kept are gone", name)
	}
	if len(names) == 0 {
		log.say("there is no cluster of ours on this machine")
	}
	return nil
}

// remove takes Slipway out of a cluster that stays. First the control plane, so that nothing is launched any more; then
// the Jobs; then the finalizers, which nobody else would release; then the rest.
func remove(ctx context.Context, c *cluster, log *progress) error {
	for _, name := range []string{system, tenant} {
		if err := mayUse(ctx, c, name); err != nil {
			return err
		}
	}
	foreground := metav1.DeletePropagationForeground
	err := c.api.AppsV1().Deployments(system).Delete(ctx, "slipway", metav1.DeleteOptions{PropagationPolicy: &foreground})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete the control plane: %w", err)
	}
	if err := gone(ctx, "the control plane", func() error {
		_, err := c.api.AppsV1().Deployments(system).Get(ctx, "slipway", metav1.GetOptions{})
		return err
	}); err != nil {
		return err
	}
	log.say("control plane stopped")
	if err := release(ctx, c); err != nil {
		return err
	}
	log.say("jobs deleted, pods released")
	text, err := render(c.overlay, nil, secrets{})
	if err != nil {
		return err
	}
	if _, err := c.kubectlRun(ctx, text, "delete", "--ignore-not-found", "--wait=false", "-f", "-"); err != nil {
		return err
	}
	for _, name := range []string{tenant, system} {
		if err := gone(ctx, "namespace "+name, func() error {
			// A pod that the Job controller was about to make may have come late.
			if err := release(ctx, c); err != nil {
				return err
			}
			_, err := c.api.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
			return err
		}); err != nil {
			return err
		}
	}
	log.say("everything that was applied is gone")
	return nil
}

// release deletes the Jobs that Slipway made in the tenant and lets their pods go.
func release(ctx context.Context, c *cluster) error {
	ours := metav1.ListOptions{LabelSelector: "app.kubernetes.io/managed-by=slipway"}
	background := metav1.DeletePropagationBackground
	err := c.api.BatchV1().Jobs(tenant).DeleteCollection(ctx, metav1.DeleteOptions{PropagationPolicy: &background}, ours)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete the Jobs: %w", err)
	}
	pods, err := cmdcluster.HeldPods(ctx, c.api, tenant)
	if err != nil {
		return err
	}
	for _, pod := range pods {
		if err := cmdcluster.ReleasePod(ctx, c.api, pod); err != nil {
			return err
		}
	}
	return nil
}

// gone waits until look says that there is nothing.
func gone(ctx context.Context, what string, look func() error) error {
	ctx, cancel := context.WithTimeout(ctx, goneWithin)
	defer cancel()
	for {
		err := look()
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err == nil {
			err = errors.New("it is still there")
		}
		if !sleep(ctx, lookEvery) {
			return fmt.Errorf("wait until %s is gone: %w", what, err)
		}
	}
}
