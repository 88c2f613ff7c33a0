package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/controlplane/cmd/slipway/cluster"
)

func (c *cli) releaseVerb() *cobra.Command {
	var all, yes bool
	var instance string
	cmd := &cobra.Command{
		Use:   "release (--namespace NS | --all)",
		Short: "Take Slipway's finalizer off pods, to uninstall it",
		Long: "Take the finalizer slipway.dev/evidence off the pods of tasks, so that they and their namespace can go when no\n" +
			"control plane is left to do it. Stop the control plane first: what a pod still tells is lost with it.",
		Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if all == (c.namespace != "") {
				return usageError{errors.New("say where: --namespace or --all")}
			}
			return c.release(cmd.Context(), instance, yes)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&all, "all", false, "in all namespaces")
	f.StringVar(&instance, "instance", "", "only pods of this installation (label slipway.dev/instance)")
	f.BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

func (c *cli) release(ctx context.Context, instance string, yes bool) error {
	in, err := c.cluster()
	if err != nil {
		return err
	}
	held, err := in.Held(ctx, c.namespace)
	if err != nil {
		return err
	}
	if instance != "" {
		held = slices.DeleteFunc(held, func(h cluster.Held) bool { return h.Instance != instance })
	}
	if len(held) == 0 {
		return c.say("no pod is held")
	}
	if found := instancesOf(held); len(found) > 1 {
		return usageError{fmt.Errorf("the pods belong to %d installations: choose with --instance %s", len(found), strings.Join(found, " or "))}
	}
	if !yes && !c.agreed(fmt.Sprintf("Pods to release: %d. Slipway may not have read how they ended. Type yes: ", len(held))) {
		return errors.New("nothing was released")
	}
	for _, h := range held {
		if err := in.Release(ctx, h); err != nil {
			return err
		}
		if err := c.say("released pod %s/%s", h.Namespace, h.Name); err != nil {
			return err
		}
	}
	return nil
}

func instancesOf(held []cluster.Held) []string {
	var found []string
	for _, h := range held {
		if !slices.Contains(found, h.Instance) {
			found = append(found, h.Instance)
		}
	}
	slices.Sort(found)
	return found
}

// agreed asks a person; only a typed yes is one.
func (c *cli) agreed(question string) bool {
	if _, err := fmt.Fprint(c.err, question); err != nil {
		return false
	}
	answer, _ := bufio.NewReader(c.in).ReadString('\n') // an end without a line is no yes
	return strings.TrimSpace(answer) == "yes"
}

// say prints one line.
func (c *cli) say(format string, args ...any) error {
	_, err := fmt.Fprintf(c.out, format+"\n", args...)
	return err
}
