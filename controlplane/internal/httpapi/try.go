package httpapi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"slipway.dev/slipway/controlplane/internal/kinds"
	"slipway.dev/slipway/pkg/api"
	"slipway.dev/slipway/pkg/task"
)

// Cluster is asked before something is stored.
type Cluster interface {
	// Takes asks, in a dry run, whether the API server would take the pod of a Task. A no is a *task.Refusal; any other error
	// says that nothing was found out.
	Takes(ctx context.Context, t task.Task) error
	// Against says what stands against a Task, by JSON pointers into its submit. An error says that nothing was found out.
	Against(ctx context.Context, t task.Task) (map[string]string, error)
	// Claims names the bound PersistentVolumeClaims of a namespace that a selector matches, in order.
	Claims(ctx context.Context, namespace, selector string) ([]string, error)
	// StorageUse reads what each PersistentVolumeClaim of a namespace asks for, or has or is being given where that is more, in bytes.
	StorageUse(ctx context.Context, namespace string) (map[string]int64, error)
}

// Bounds of what one dry run asks of the cluster.
const (
	tryTime   = 5 * time.Second
	tryPods   = 20 // different pods
	tryAtOnce = 4
)

// What a dry run warns of.
const (
	warnQuota     = "quota"
	warnRefused   = "refused"
	warnUnchecked = "unchecked"
)

// tried asks the cluster for the pods of what a dry run would store: the store has answered and holds nothing of it. What
// can never run is refused; what would wait, or could not be found out, is a warning.
func (s *server) tried(ctx context.Context, pods []*triedPod) ([]api.Warning, error) {
	s.ask(ctx, pods)
	if ctx.Err() != nil {
		return nil, fmt.Errorf("ask the cluster: %w", ctx.Err())
	}
	var wrong []kinds.FieldError
	var warnings []api.Warning
	for _, p := range pods {
		for _, at := range p.pointers {
			field, warning := p.said()
			switch {
			case field != nil && len(wrong) < maxFields:
				wrong = append(wrong, kinds.FieldError{Pointer: at + field.Pointer, Reason: field.Reason})
			case warning != nil && len(warnings) < maxFields:
				warnings = append(warnings, api.Warning{Pointer: at, Reason: warning.Reason, Message: warning.Message})
			}
		}
	}
	if len(wrong) > 0 {
		return nil, &kinds.InvalidError{Fields: wrong}
	}
	return warnings, nil
}

// triedPod is a pod that some items have in common, and what the cluster said to it.
type triedPod struct {
	task     task.Task
	pointers []string
	asked    bool
	err      error
}

// podsOf finds the different pods of what was accepted. An item that repeats an earlier request makes none, and a
// composite Task has only those of its children.
func (in intake) podsOf(sub built, done []Accepted) []*triedPod {
	var all []*triedPod
	byKey := map[string]*triedPod{}
	add := func(t task.Task, at string) {
		key := t.PodKey()
		p := byKey[key]
		if p == nil {
			p = &triedPod{task: t}
			byKey[key] = p
			all = append(all, p)
		}
		p.pointers = append(p.pointers, at)
	}
	for i, d := range done {
		if d.Result == api.ResultRepeated {
			continue
		}
		children := sub.Items[i].Children
		for c, child := range children {
			add(child.Task, childPointer(in.at(i), c))
		}
		if len(children) == 0 {
			add(d.Task, in.at(i))
		}
	}
	return all
}

// ask asks for the first pods, some at once, and gives up after tryTime.
func (s *server) ask(ctx context.Context, pods []*triedPod) {
	ctx, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	slots := make(chan struct{}, tryAtOnce)
	var asking sync.WaitGroup
	for _, p := range pods[:min(len(pods), tryPods)] {
		slots <- struct{}{}
		asking.Go(func() {
			defer func() { <-slots }()
			p.asked, p.err = true, s.cluster.Takes(ctx, p.task)
		})
	}
	asking.Wait()
}

// said is what the cluster's answer means: a field that is wrong, a warning, or nothing.
func (p *triedPod) said() (*kinds.FieldError, *api.Warning) {
	var no *task.Refusal
	switch {
	case !p.asked:
		return nil, &api.Warning{Reason: warnUnchecked, Message: fmt.Sprintf("the cluster was asked for %d different pods only", tryPods)}
	case p.err == nil:
		return nil, nil
	case !errors.As(p.err, &no):
		return nil, &api.Warning{Reason: warnUnchecked, Message: "the cluster did not answer in time"}
	}
	switch no.Cause {
	case task.RefusedInvalid:
		return &kinds.FieldError{Pointer: "/spec", Reason: "makes a pod that the cluster refuses: " + short(no.Message)}, nil
	case task.RefusedNamespace:
		return &kinds.FieldError{Pointer: "/namespace", Reason: "takes no pods: " + short(no.Message)}, nil
	case task.RefusedQuota:
		return nil, &api.Warning{Reason: warnQuota, Message: "it would wait for room in a quota: " + short(no.Message)}
	case task.RefusedUnknown:
		return nil, &api.Warning{Reason: warnRefused, Message: "it would wait until the cluster takes its pod: " + short(no.Message)}
	case task.RefusedUnavailable:
	}
	return nil, &api.Warning{Reason: warnUnchecked, Message: "the cluster could not be asked"}
}

// short bounds what the API server says.
func short(text string) string {
	const most = 500
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
