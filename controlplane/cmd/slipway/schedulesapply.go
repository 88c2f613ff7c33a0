package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/pkg/api"
	"slipway.dev/slipway/pkg/client"
)

// yamlBreak parts the documents of a bundle.
var yamlBreak = regexp.MustCompile(`(?m)^---[ \t]*(#.*)?$`)

// readBundle reads schedules: one YAML document each. Those that name no namespace are of the one in use.
func (c *cli) readBundle(file string) ([]api.CreateSchedule, error) {
	raw, err := c.readInput(file, "the schedules")
	if err != nil {
		return nil, err
	}
	var all []api.CreateSchedule
	seen := map[string]bool{}
	for i, part := range yamlBreak.Split(string(raw), -1) {
		var s api.CreateSchedule
		there, err := decodeStrict([]byte(part), &s)
		if err != nil {
			return nil, fmt.Errorf("read schedule %d of the file: %w", i+1, err)
		}
		if !there {
			continue
		}
		if s.Namespace == "" {
			if s.Namespace, err = c.inNamespace(); err != nil {
				return nil, err
			}
		}
		key := s.Namespace + "/" + s.Name
		if seen[key] {
			return nil, fmt.Errorf("schedule %s stands in the file twice", key)
		}
		seen[key] = true
		all = append(all, s)
	}
	return all, nil
}

// step is what apply would do to one schedule.
type step struct {
	want  api.CreateSchedule
	now   *api.Schedule  // nil: it is to be made
	patch map[string]any // empty: nothing is to be done
}

func (s step) verb() string {
	switch {
	case s.now == nil:
		return "create"
	case len(s.patch) > 0:
		return "change"
	}
	return "keep"
}

func (c *cli) scheduleApplyVerb() *cobra.Command {
	var file string
	var yes bool
	cmd := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Make schedules as a file has them: shows what would change, and does it with --yes",
		Long: "Make schedules as a file has them, one YAML document each. Without --yes it only shows what would change. What is\n" +
			"changed by others meanwhile is refused, and nothing that the file does not name is touched.",
		Example: "  slipway schedules export > schedules.yaml\n  slipway schedules apply -f schedules.yaml --yes",
		Args:    exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			wanted, err := c.readBundle(file)
			if err != nil {
				return usageError{err}
			}
			calls, err := c.connect(cmd.Context())
			if err != nil {
				return err
			}
			var steps []step
			for _, w := range wanted {
				s, err := planStep(cmd, calls, w)
				if err != nil {
					return err
				}
				steps = append(steps, s)
			}
			for _, s := range steps {
				if err := c.showStep(s); err != nil {
					return err
				}
				if yes {
					if err := doStep(cmd, calls, s); err != nil {
						return err
					}
				}
			}
			if changes := slices.ContainsFunc(steps, func(s step) bool { return s.verb() != "keep" }); changes && !yes {
				_, err = fmt.Fprintln(c.out, "nothing was done; --yes does it")
			}
			return err
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "file with the schedules; - is the input")
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	return cmd
}

func planStep(cmd *cobra.Command, calls *client.Client, want api.CreateSchedule) (step, error) {
	found, err := calls.Schedules(cmd.Context(), api.ListSchedulesParams{Namespace: &want.Namespace, Name: &want.Name})
	if err != nil || len(found) == 0 {
		return step{want: want}, err
	}
	now, err := asMap(ruleOf(found[0]))
	if err != nil {
		return step{}, err
	}
	then, err := asMap(withDefaults(want))
	return step{want: want, now: &found[0], patch: difference(now, then)}, err
}

// ruleOf is the part of a schedule that a file has.
func ruleOf(s api.Schedule) api.CreateSchedule {
	return api.CreateSchedule{
		Namespace: s.Namespace, Name: s.Name, Cron: s.Cron, Every: s.Every, Zone: s.Zone, Template: s.Template, Missed: s.Missed, UpTo: s.UpTo,
		Within: s.Within, Overlap: s.Overlap, Window: s.Window, Spread: s.Spread, Blackouts: s.Blackouts, Calendars: s.Calendars,
		Enabled: &s.Enabled, Description: s.Description, Owner: s.Owner, Labels: s.Labels, ExpectSuccessWithin: s.ExpectSuccessWithin,
	}
}

func withDefaults(s api.CreateSchedule) api.CreateSchedule {
	for field, usual := range map[*string]string{&s.Zone: "UTC", &s.Missed: "latest", &s.Overlap: "forbid"} {
		if *field == "" {
			*field = usual
		}
	}
	if s.Enabled == nil {
		yes := true
		s.Enabled = &yes
	}
	return s
}

func asMap(v any) (map[string]any, error) {
	raw, err := json.Marshal(v)
	var out map[string]any
	if err == nil {
		err = json.Unmarshal(raw, &out)
	}
	if err != nil {
		return nil, fmt.Errorf("compare schedules: %w", err)
	}
	return out, nil
}

// difference is the JSON merge patch that makes one object the other.
func difference(now, then map[string]any) map[string]any {
	patch := map[string]any{}
	for name := range now {
		if _, stays := then[name]; !stays {
			patch[name] = nil
		}
	}
	for name, want := range then {
		has, there := now[name]
		deep, isObject := want.(map[string]any)
		was, wasObject := has.(map[string]any)
		switch {
		case there && isObject && wasObject:
			if inner := difference(was, deep); len(inner) > 0 {
				patch[name] = inner
			}
		case !there || !reflect.DeepEqual(has, want):
			patch[name] = want
		}
	}
	return patch
}

func (c *cli) showStep(s step) error {
	if _, err := fmt.Fprintf(c.out, "%s %s/%s\n", s.verb(), s.want.Namespace, s.want.Name); err != nil || s.now == nil {
		return err
	}
	now, err := asMap(ruleOf(*s.now))
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(s.patch)) {
		for _, l := range changeLines(name, now[name], s.patch[name]) {
			if _, err := fmt.Fprintln(c.out, "  "+l); err != nil {
				return err
			}
		}
	}
	return nil
}

// changeLines say what a patch does to one field, or to each field below it.
func changeLines(name string, was, patch any) []string {
	inner, object := patch.(map[string]any)
	before, objects := was.(map[string]any)
	if !object || !objects {
		return []string{name + ": " + short(was) + " → " + short(patch)}
	}
	var all []string
	for _, below := range slices.Sorted(maps.Keys(inner)) {
		all = append(all, changeLines(name+"."+below, before[below], inner[below])...)
	}
	return all
}

func short(v any) string {
	if v == nil {
		return "-"
	}
	const most = 80
	raw, err := json.Marshal(v)
	if err != nil {
		return "?"
	}
	if len(raw) > most {
		return strings.ToValidUTF8(string(raw[:most]), "") + "…"
	}
	return string(raw)
}

func doStep(cmd *cobra.Command, calls *client.Client, s step) error {
	switch s.verb() {
	case "create":
		_, err := calls.CreateSchedule(cmd.Context(), s.want)
		return err
	case "change":
		patch, err := json.Marshal(s.patch)
		if err != nil {
			return fmt.Errorf("write a change: %w", err)
		}
		_, err = calls.ChangeSchedule(cmd.Context(), s.now.ID, s.now.Revision, patch)
		return err
	}
	return nil
}

func (c *cli) scheduleExportVerb() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use: "export", Short: "Write schedules as `apply` takes them", Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, found, err := c.schedules(cmd.Context(), all, "")
			if err != nil {
				return err
			}
			for _, s := range found {
				raw, err := json.Marshal(ruleOf(s))
				if err == nil {
					raw, err = yaml.JSONToYAML(raw)
				}
				if err != nil {
					return fmt.Errorf("write schedule %s: %w", s.Name, err)
				}
				if _, err := fmt.Fprintf(c.out, "---\n%s", raw); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVarP(&all, "all-namespaces", "A", false, "of every namespace")
	return cmd
}
