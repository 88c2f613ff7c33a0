package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/pkg/api"
)

func (c *cli) whyVerb() *cobra.Command {
	return c.completeTasks(&cobra.Command{
		Use:   "why ID",
		Short: "Say what a task waits for, and when it may start",
		Args:  exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			calls, err := c.connect(cmd.Context())
			if err != nil {
				return err
			}
			t, err := calls.Get(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.print(t, func(w io.Writer) error { return pairs(w, whyRows(t)) })
		},
	}, isOpen)
}

func whyRows(t api.Task) [][2]string {
	rows := [][2]string{
		{"task", t.ID},
		{"state", shownState(t.State, t.Phase)},
		{"waits for", waiting(t)},
		{"runs after", strings.Join(t.After, ", ")},
		{"because", joined(": ", t.Reason, t.Message)},
	}
	if t.State == api.StateQueued && t.Waiting == nil && !t.RunAt.IsZero() {
		rows = append(rows, [2]string{"not before", instant(t.RunAt)})
	}
	e := t.Estimate
	switch {
	case e == nil:
		return rows
	case e.Unknown != "" || e.P50 == nil || e.P90 == nil:
		return append(rows, [2]string{"starts", joined(": ", "unknown", e.Unknown)})
	}
	text := "within " + rounded(*e.P50)
	if *e.P90 > *e.P50 {
		text += " with even chance, within " + rounded(*e.P90) + " in nine cases of ten"
	}
	return append(rows, [2]string{"starts", text},
		[2]string{"estimated from", fmt.Sprintf("%s before it, %d recent times of its own kind", count(int(e.Ahead), "task"), e.Samples)})
}

func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return strconv.Itoa(n) + " " + what
}

func rounded(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(100 * time.Millisecond).String()
}
