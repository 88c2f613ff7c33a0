package main

import (
	"io"
	"time"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/pkg/api"
)

func (c *cli) auditVerb() *cobra.Command {
	var p api.ListAuditParams
	var actor, verb, resource, name, cursor string
	var most int32
	var everywhere bool
	var since time.Duration
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "List who changed what, newest first",
		Long: "List who changed what, newest first. It takes the right to list audit in the namespace, which slipway-admin gives;\n" +
			"changes of queues and kinds, which all namespaces share, show with --all-namespaces, for which it takes that right\n" +
			"on the whole cluster.",
		Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !everywhere {
				namespace, err := c.inNamespace()
				if err != nil {
					return err
				}
				given(&p.Namespace, namespace)
			}
			given(&p.Actor, actor)
			given(&p.Verb, verb)
			given(&p.Resource, resource)
			given(&p.Name, name)
			given(&p.Cursor, cursor)
			p.Limit, p.CreatedAfter = &most, ago(since)
			calls, err := c.connect(cmd.Context())
			if err != nil {
				return err
			}
			page, err := calls.Audit(cmd.Context(), p)
			if err != nil {
				return err
			}
			return c.print(page, func(w io.Writer) error { return auditTable(w, page) })
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&everywhere, "all-namespaces", "A", false, "of all namespaces, and of what they share")
	f.StringVar(&actor, "actor", "", "user who did it")
	f.StringVar(&verb, "verb", "", "what was done, as create or cancel")
	f.StringVar(&resource, "resource", "", "to what sort of thing, as tasks or queues")
	f.StringVar(&name, "name", "", "to which one; that of a task is its id")
	f.DurationVar(&since, "since", 0, "done at most so long ago, as 90m")
	f.Int32Var(&most, "limit", 50, "most entries on the page")
	f.StringVar(&cursor, "cursor", "", "where to go on, as the page before says")
	completeWords(cmd, "resource", "tasks", "queues", "kinds", "lanes", "freezes")
	return cmd
}

func auditTable(w io.Writer, page api.AuditPage) error {
	if err := line(w, "AT", "ACTOR", "VERB", "RESOURCE", "NAMESPACE", "NAME", "FROM", "BEFORE", "AFTER"); err != nil {
		return err
	}
	for _, e := range page.Items {
		err := line(w, instant(e.At), e.Actor, e.Verb, e.Resource, e.Namespace, e.Name, e.Peer, string(e.Before), string(e.After))
		if err != nil {
			return err
		}
	}
	if page.Next != "" {
		return line(w, "more: --cursor "+page.Next)
	}
	return nil
}
