package volume

import (
	"cmp"
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.dev/slipway/pkg/handler"
	"slipway.dev/slipway/pkg/retention"
)

// Cleaned is the result of volume.snapshot.cleanup.
type Cleaned struct {
	Rule     string               `json:"rule"`
	DryRun   bool                 `json:"dry_run,omitempty"`
	Good     int                  `json:"good"`
	Planned  int                  `json:"planned"` // removals
	Removed  int                  `json:"removed"`
	Removals []retention.Decision `json:"removals,omitempty"`
	Left     []string             `json:"left,omitempty"` // planned, and not removed, and why
	Warnings []string             `json:"warnings,omitempty"`
	Confirm  string               `json:"needs_confirmation,omitempty"` // of a dry run
	PlanIn   string               `json:"plan_in,omitempty"`
	Note     string               `json:"note,omitempty"` // why there was nothing to look at
}

type cleanupParams struct {
	Rule    string          `json:"rule"`
	Keep    retention.Rules `json:"keep"`
	Confirm int             `json:"confirm"`
	DryRun  bool            `json:"dry_run"`
}

// cleanup removes the snapshots that a rule does not keep. The whole plan is stored before the first of them.
func (w *world) cleanup(ctx context.Context) (any, error) {
	var p cleanupParams
	if err := w.task.Decode(&p); err != nil {
		return nil, err
	}
	if err := p.Keep.Check(); err != nil {
		return nil, handler.Permanent(fmt.Errorf("keep.%w", err), handler.ReasonParams)
	}
	w.say(0, 0, "listing the snapshots of namespace %s", w.task.Namespace)
	all, going, err := w.copies(ctx, p.Rule)
	if missing(err) { // a namespace without any, or that is not there, has an empty list
		note := "the cluster does not serve " + snapshots.GroupVersion().String() + ": there are no snapshots, and nothing to clean up"
		w.say(0, 0, "%s", note)
		return Cleaned{Rule: p.Rule, DryRun: p.DryRun, Note: note}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w; nothing was removed", err)
	}
	plan, err := retention.Make(all.copies, p.Keep, w.now())
	if err != nil {
		return nil, fmt.Errorf("plan: %w; nothing was removed", err)
	}
	out := Cleaned{Rule: p.Rule, DryRun: p.DryRun, Good: plan.Good, Planned: plan.Remove, Warnings: plan.Warnings}
	if w.show(plan); p.DryRun {
		out.Confirm = plan.Implausible
		out.Removals = first(plan.Removals())
		return out, nil
	}
	out.PlanIn = "ConfigMap " + PlansName + ", key " + p.Rule
	if err := w.keepPlan(ctx, p.Rule, plan); err != nil {
		return nil, fmt.Errorf("store the plan: %w; nothing was removed", err)
	}
	step("cleanup.planned")
	if plan.Implausible != "" && p.Confirm < plan.Remove {
		return nil, permanent(reasonConfirm, "the plan looks like a mistake: %s. Read it in %s; to carry it out, run this once with confirm: %d", plan.Implausible, out.PlanIn, plan.Remove)
	}
	s := &sweep{world: w, plan: plan, read: all.read, going: going, out: out}
	return s.carryOut(ctx)
}

// show prints the whole plan into the pod's log.
func (w *world) show(plan retention.Plan) {
	w.log("plan: %d snapshots, %d good ones under this rule, %d to remove", len(plan.Decisions), plan.Good, plan.Remove)
	for _, d := range plan.Decisions {
		w.log("  %s of %s: %s", d.Name, cmp.Or(d.Source, "a content that was given"), d.Reason)
	}
	for _, warning := range plan.Warnings {
		w.log("warning: %s", warning)
	}
}

// inventory is what there was when the plan was made.
type inventory struct {
	copies []retention.Copy
	read   map[string]*unstructured.Unstructured
}

// copies reads all snapshots of the namespace. going are those of the rule that are being deleted already.
func (w *world) copies(ctx context.Context, rule string) (all inventory, going []*unstructured.Unstructured, err error) {
	found, err := w.list(ctx, w.in(snapshots), metav1.ListOptions{})
	if err != nil {
		return all, nil, fmt.Errorf("list the snapshots: %w", err)
	}
	users, err := w.users(ctx)
	if err != nil {
		return all, nil, err
	}
	all.read = make(map[string]*unstructured.Unstructured, len(found))
	for i := range found {
		var is snap
		if err := read(&found[i], &is); err != nil {
			return all, nil, err
		}
		c := is.copy(rule)
		if by := users[c.Name]; by != "" {
			c.InUse = "PVC " + by
		}
		if is.Metadata.DeletionTimestamp != nil && !c.Foreign {
			going = append(going, &found[i])
		}
		all.copies = append(all.copies, c)
		all.read[c.Name] = &found[i]
	}
	return all, going, nil
}

// copy is a snapshot as the planner sees it.
func (s *snap) copy(rule string) retention.Copy {
	labels := s.Metadata.Labels
	c := retention.Copy{
		Name: s.Metadata.Name, Source: s.Spec.Source.PVC, UID: labels[labelPVC], State: retention.Unready, Pinned: s.pinned(),
		Foreign: labels[labelManager] != manager || labels[labelRule] != rule || s.Spec.Source.PVC == "",
	}
	switch {
	case s.Metadata.DeletionTimestamp != nil: // it can no more be restored from
		c.State = retention.Going
	case s.Status.Error != nil:
		c.State = retention.Failed
	case s.ready():
		c.State = retention.Good
	}
	if s.Status.Created != nil {
		c.Taken = s.Status.Created.Time
	}
	return c
}

func first(all []retention.Decision) []retention.Decision { return all[:min(len(all), maxListed)] }
