package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/controlplane/cmd/slipway/cluster"
)

func (c *cli) namespaceVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "namespace (enable | disable) NS",
		Short: "Let tasks run in a namespace, or no longer",
		Args:  exactly(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return usageError{fmt.Errorf("unknown command %q: want enable or disable", args[0])}
		},
	}
	cmd.AddCommand(c.enableVerb(), c.disableVerb())
	return cmd
}

func (c *cli) enableVerb() *cobra.Command {
	var t cluster.Tenant
	var roll bool
	cmd := &cobra.Command{
		Use:   "enable NS",
		Short: "Let tasks run in a namespace",
		Long: "Apply what a namespace needs for tasks to run in it: the account of runners, and a RoleBinding that gives the\n" +
			"control plane slipway-launcher there. The control plane reads at its start which namespaces it works in\n" +
			"(SLIPWAY_NAMESPACES); with --roll that list is changed too, and the replicas are replaced one by one.",
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			levels := []string{"", "privileged", "baseline", "restricted"}
			if !slices.Contains(levels, t.PodSecurity) {
				return usageError{fmt.Errorf("--pod-security %s: want %s", t.PodSecurity, strings.Join(levels[1:], ", "))}
			}
			t.Namespace = args[0]
			return c.enable(cmd.Context(), t, roll)
		},
	}
	f := cmd.Flags()
	f.StringVar(&t.PodSecurity, "pod-security", "", "label the namespace to enforce this level; default: leave it as it is")
	f.BoolVar(&t.Network, "network-policy", false, "let runners call the control plane, in a namespace whose pods may call nothing")
	f.BoolVar(&t.Volumes, "volumes", true, "make the accounts of the kinds volume.*, which takes rights in the whole cluster")
	f.BoolVar(&roll, "roll", false, "change the control plane's list of namespaces, which rolls it")
	return cmd
}

func (c *cli) enable(ctx context.Context, t cluster.Tenant, roll bool) error {
	in, err := c.cluster()
	if err != nil {
		return err
	}
	done, err := in.Enable(ctx, t)
	for _, what := range done {
		if err := c.say("applied %s", what); err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	watched, err := in.Watched(ctx)
	switch {
	case err != nil && roll:
		return err
	case err != nil: // not ours to see
		return c.say("next: name %s in SLIPWAY_NAMESPACES of the control plane, beside those that are there, as with\n  %s", t.Namespace, in.Command("…,"+t.Namespace))
	case watched.Has(t.Namespace):
		return c.say("the control plane has %s in its list", t.Namespace)
	}
	return c.relist(ctx, in, watched.With(t.Namespace), roll)
}

func (c *cli) disableVerb() *cobra.Command {
	var roll, force bool
	cmd := &cobra.Command{
		Use:   "disable NS",
		Short: "Let no more tasks run in a namespace",
		Long: "Take back what `enable` applied. As long as Jobs of open tasks are there this is refused: without its rights the\n" +
			"control plane could neither watch nor stop them.",
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error { return c.disable(cmd.Context(), args[0], roll, force) },
	}
	cmd.Flags().BoolVar(&roll, "roll", false, "change the control plane's list of namespaces first, which rolls it")
	cmd.Flags().BoolVar(&force, "force", false, "also while Jobs of open tasks are there")
	return cmd
}

func (c *cli) disable(ctx context.Context, namespace string, roll, force bool) error {
	in, err := c.cluster()
	if err != nil {
		return err
	}
	if !force {
		open, err := in.Open(ctx, namespace)
		if err != nil {
			return err
		}
		if open > 0 {
			return fmt.Errorf("disable namespace %s: %d Jobs of open tasks are there; cancel these or wait, or say --force", namespace, open)
		}
	}
	watched, err := in.Watched(ctx)
	if err != nil && roll {
		return err
	}
	if err == nil && slices.Contains(watched.Namespaces, namespace) {
		if err := c.relist(ctx, in, watched.Without(namespace), roll); err != nil {
			return err
		}
	}
	done, err := in.Disable(ctx, namespace)
	for _, what := range done {
		if err := c.say("deleted %s", what); err != nil {
			return err
		}
	}
	return err
}

// relist gives the control plane another list of namespaces, or says how to.
func (c *cli) relist(ctx context.Context, in *cluster.Cluster, w cluster.Watched, roll bool) error {
	list := strings.Join(w.Namespaces, ",")
	if !roll {
		return c.say("next: the control plane has to be told, by --roll or with\n  %s", in.Command(list))
	}
	if err := in.Watch(ctx, w); err != nil {
		return err
	}
	return c.say("the control plane rolls to SLIPWAY_NAMESPACES=%s", list)
}
