package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/pkg/api"
)

// wish is what the flags of submit ask for.
type wish struct {
	file, kind, name, params, lane, class, queue, key, onConflict, runIf string
	labels, after                                                        []string
	delay, deadline                                                      time.Duration
	attempts                                                             int32
	idempotent, wait, dryRun                                             bool
}

func (c *cli) submitVerb() *cobra.Command {
	var w wish
	cmd := &cobra.Command{
		Use:   "submit (-f FILE | [flags] [-- COMMAND…])",
		Short: "Submit a task",
		Example: "  slipway submit -n shop --wait -- sh -c 'echo hello'\n" +
			"  slipway submit -f task.yaml --key nightly-2026-11-30",
		RunE: func(cmd *cobra.Command, args []string) error { return c.submit(cmd, w, args) },
	}
	f := cmd.Flags()
	f.StringVarP(&w.file, "file", "f", "", "file with the task as the API takes it, YAML or JSON; - is the standard input")
	f.StringVar(&w.kind, "kind", "", "kind; default command.run where a command is given")
	f.StringVar(&w.name, "name", "", "name for people")
	f.StringVar(&w.params, "params", "", "parameters as a JSON object")
	f.StringArrayVar(&w.labels, "label", nil, "label as key=value; may be repeated")
	f.StringVar(&w.lane, "lane", "", "lane, as family:namespace/name")
	f.StringVar(&w.onConflict, "on-conflict", "", "queue, reject or replace")
	f.StringArrayVar(&w.after, "after", nil, "id of a task that must have ended before; may be repeated")
	f.StringVar(&w.runIf, "run-if", "", "beside --after: all_succeeded (default) or all_finished")
	f.StringVar(&w.class, "class", "", "critical, high, normal or low")
	f.StringVar(&w.queue, "queue", "", "queue")
	f.StringVar(&w.key, "key", "", "idempotency key: sending the same again gives the same task")
	f.DurationVar(&w.delay, "delay", 0, "do not run before so long from now")
	f.DurationVar(&w.deadline, "run-deadline", 0, "how long the handler may take")
	f.Int32Var(&w.attempts, "attempts", 0, "tries in all")
	f.BoolVar(&w.idempotent, "idempotent", false, "may be repeated by itself after it has started")
	f.BoolVar(&w.wait, "wait", false, "wait for the end; the exit code is the outcome")
	f.BoolVar(&w.dryRun, "dry-run", false, "ask what it would do, rights and cluster included, and store nothing")
	c.completeKindFlag(cmd)
	completeWords(cmd, "class", "critical", "high", "normal", "low")
	completeWords(cmd, "on-conflict", "queue", "reject", "replace")
	completeWords(cmd, "run-if", "all_succeeded", "all_finished")
	return cmd
}

func (c *cli) submit(cmd *cobra.Command, w wish, command []string) error {
	if w.wait && w.dryRun {
		return usageError{errors.New("--dry-run makes no task to --wait for")}
	}
	t, err := c.task(w, command)
	if err != nil {
		return usageError{err}
	}
	api, err := c.connect(cmd.Context())
	if err != nil {
		return err
	}
	if w.dryRun {
		t, err := api.Try(cmd.Context(), t, w.key)
		if err != nil {
			return err
		}
		return c.print(t, func(w io.Writer) error { return pairs(w, triedRows(t)) })
	}
	made, err := api.Submit(cmd.Context(), t, w.key)
	if err != nil {
		return err
	}
	if !w.wait {
		return c.printTask(made.Task)
	}
	return c.await(cmd.Context(), api, made.Task.ID)
}

// noID is the id of a task that was only tried.
const noID = "00000000-0000-0000-0000-000000000000"

// triedRows say what a submit would do.
func triedRows(t api.Task) [][2]string {
	what := "nothing was stored; it would be a new task"
	if t.ID != noID {
		what = "nothing was stored; it is or would become part of the task below"
	}
	cluster := "takes its pod"
	for _, w := range t.Warnings {
		cluster = "does not take its pod now"
		if w.Reason == "unchecked" {
			cluster = "not checked"
		}
	}
	rows := [][2]string{{"dry run", what}, {"cluster", cluster}}
	for _, w := range t.Warnings {
		rows = append(rows, [2]string{"warning", w.Reason + ": " + w.Message})
	}
	for _, row := range taskRows(t) {
		switch row[0] {
		case "id", "state", "phase", "created", "attempts":
			if t.ID == noID {
				continue
			}
		}
		rows = append(rows, row)
	}
	if t.ID == noID {
		rows = append(rows, [2]string{"queue", t.Queue}, [2]string{"class", string(t.Class)}, [2]string{"image", t.Spec.Image})
	}
	return rows
}

// task makes the submit: from the file, with what the flags say laid over it.
func (c *cli) task(w wish, command []string) (api.SubmitTask, error) {
	var t api.SubmitTask
	if w.file != "" {
		var err error
		if t, err = c.readTask(w.file); err != nil {
			return t, err
		}
	}
	if len(command) > 0 {
		if w.params != "" || len(t.Params) > 0 {
			return t, errors.New("give a command or parameters, not both")
		}
		params, err := json.Marshal(map[string]any{"command": command})
		if err != nil {
			return t, err
		}
		t.Params = params
		if t.Kind == "" {
			t.Kind = "command.run"
		}
	}
	if w.params != "" {
		if !json.Valid([]byte(w.params)) {
			return t, errors.New("--params is not JSON")
		}
		t.Params = json.RawMessage(w.params)
	}
	if err := w.lay(&t); err != nil {
		return t, err
	}
	if t.Kind == "" {
		return t, errors.New("say what to run: -f, --kind or a command after --")
	}
	return t, c.place(&t)
}

// place settles the namespace: the flag's, the file's, the context's. A child without one goes where its parent does.
func (c *cli) place(t *api.SubmitTask) error {
	lay(&t.Namespace, c.namespace)
	if t.Namespace == "" {
		namespace, err := c.inNamespace()
		if err == nil && namespace == "" {
			err = errors.New("say where to run it: --namespace")
		}
		if err != nil {
			return err
		}
		t.Namespace = namespace
	}
	for i := range t.Children {
		if child := &t.Children[i]; child.Namespace == "" {
			child.Namespace = t.Namespace
		}
	}
	return nil
}

func lay[T ~string](field *T, value T) {
	if value != "" {
		*field = value
	}
}

// lay puts what was given by flags over t.
func (w wish) lay(t *api.SubmitTask) error {
	lay(&t.Kind, w.kind)
	lay(&t.Name, w.name)
	lay(&t.Lane, w.lane)
	lay(&t.Queue, w.queue)
	lay(&t.Class, api.Class(w.class))
	lay(&t.OnConflict, api.OnConflict(w.onConflict))
	lay(&t.RunIf, api.RunIf(w.runIf))
	t.After = append(t.After, w.after...)
	if w.delay > 0 {
		t.Delay = w.delay.Seconds()
	}
	if w.deadline > 0 {
		seconds := w.deadline.Seconds()
		t.Spec.RunDeadline = &seconds
	}
	if w.attempts > 0 {
		t.Spec.Retry.Attempts = &w.attempts
	}
	if w.idempotent {
		t.Spec.Idempotent = &w.idempotent
	}
	return addLabels(&t.Labels, w.labels)
}

// addLabels reads labels that are written key=value.
func addLabels(to *api.Labels, written []string) error {
	for _, label := range written {
		key, value, ok := strings.Cut(label, "=")
		if !ok {
			return fmt.Errorf("label %q is not key=value", label)
		}
		if *to == nil {
			*to = api.Labels{}
		}
		(*to)[key] = value
	}
	return nil
}

func (c *cli) readTask(file string) (t api.SubmitTask, err error) {
	const what = "the task"
	raw, err := c.readInput(file, what)
	if err != nil {
		return t, err
	}
	if _, err := decodeStrict(raw, &t); err != nil {
		return t, fmt.Errorf("read %s: %w", what, err)
	}
	return t, nil
}
