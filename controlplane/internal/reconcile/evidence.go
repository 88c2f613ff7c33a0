package reconcile

import (
	"encoding/json"
	"strings"
	"time"

	"slipway.dev/slipway/pkg/task"
)

// record is what `slipway explain` shows: what a verdict was made from, and the rule that fired.
type record struct {
	Rule    string        `json:"rule"`
	Why     string        `json:"why"`
	Source  string        `json:"source"` // cache or server; replica: it ran inline
	State   string        `json:"state"`
	Stop    string        `json:"stop,omitempty"`
	Report  string        `json:"report,omitempty"` // its outcome
	Late    bool          `json:"late_report,omitempty"`
	Silence float64       `json:"seconds_since_heartbeat,omitempty"`
	Job     *recordedJob  `json:"job,omitempty"`
	Pods    []recordedPod `json:"pods,omitempty"`
	Refusal string        `json:"refusal,omitempty"`
}

type recordedJob struct {
	Name     string `json:"name"`
	UID      string `json:"uid"`
	Ended    bool   `json:"ended,omitempty"`
	Deleting bool   `json:"deleting,omitempty"`
}

type recordedPod struct {
	Name          string              `json:"name"`
	UID           string              `json:"uid"`
	Node          string              `json:"node,omitempty"`
	Phase         string              `json:"phase"`
	Reason        string              `json:"reason,omitempty"`
	Message       string              `json:"message,omitempty"`
	Deleting      bool                `json:"deleting,omitempty"`
	Disruption    string              `json:"disruption,omitempty"`
	Unschedulable string              `json:"unschedulable,omitempty"`
	NodeGone      bool                `json:"node_gone,omitempty"`
	NodeSilent    bool                `json:"node_silent,omitempty"`
	Containers    []recordedContainer `json:"containers,omitempty"`
}

type recordedContainer struct {
	Name     string `json:"name"`
	Running  bool   `json:"running,omitempty"`
	Waiting  string `json:"waiting,omitempty"`
	ExitCode *int   `json:"exit_code,omitempty"`
	Signal   int    `json:"signal,omitempty"`
	Reason   string `json:"reason,omitempty"`
	Message  string `json:"message,omitempty"`
}

// evidence renders what a decision was made from. Texts are cut; Pods beyond a few are left out.
func evidence(v view, d task.Decision) json.RawMessage {
	const mostPods = 4
	r := record{
		Rule: d.Verdict.Rule, Why: d.Why, Source: "cache", State: string(v.a.State), Stop: string(v.a.Stop), Late: v.a.Late,
	}
	switch {
	case v.a.Executor == task.ExecutorInline:
		r.Source = "replica"
	case v.s.Live:
		r.Source = "server"
	}
	if v.a.Report != nil {
		r.Report = string(v.a.Report.Outcome)
	}
	if !v.a.Beat.IsZero() {
		r.Silence = v.now.Sub(v.a.Beat).Round(time.Millisecond).Seconds()
	}
	if j := v.s.Job; j != nil {
		r.Job = &recordedJob{Name: j.Name, UID: j.UID, Ended: j.Ended, Deleting: j.Deleting}
	}
	if v.s.Refusal != nil {
		r.Refusal = cut(v.s.Refusal.Error())
	}
	for _, p := range v.s.Pods[:min(len(v.s.Pods), mostPods)] {
		r.Pods = append(r.Pods, recordPod(p))
	}
	raw, err := json.Marshal(r)
	if err != nil {
		return nil // strings and numbers alone: it cannot fail
	}
	return raw
}

func recordPod(p task.SeenPod) recordedPod {
	r := recordedPod{
		Name: p.Name, UID: p.UID, Node: p.Node, Phase: p.Phase, Reason: p.Reason, Message: cut(p.Message),
		Deleting: p.Deleting, Disruption: p.Disruption, Unschedulable: cut(p.Unschedulable), NodeGone: p.NodeGone, NodeSilent: p.NodeSilent,
	}
	for _, c := range p.Containers {
		seen := recordedContainer{Name: c.Name, Running: c.Running, Waiting: c.Waiting}
		if end := c.Terminated; end != nil {
			seen.ExitCode, seen.Signal, seen.Reason, seen.Message = &end.ExitCode, end.Signal, end.Reason, cut(end.Message)
		}
		r.Containers = append(r.Containers, seen)
	}
	return r
}

// cut shortens a text and takes out what a database does not store.
func cut(text string) string {
	text = text[:min(len(text), evidenceLimit)]
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}
