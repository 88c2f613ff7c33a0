package httpapi

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"slipway.dev/slipway/controlplane/internal/kinds"
	"slipway.dev/slipway/pkg/task"
)

// against asks the cluster what stands against the Tasks of a submit: a volume that cannot grow is refused here, before it
// stands in a lane. What is not found out within tryTime is for the handler to see.
func (s *server) against(ctx context.Context, in intake, items []Item) error {
	type asked struct {
		task task.Task
		at   string
	}
	var all []asked
	for i, item := range items {
		if len(item.Children) == 0 {
			all = append(all, asked{item.Task, in.at(i)})
		}
		for c, child := range item.Children {
			all = append(all, asked{child.Task, childPointer(in.at(i), c)})
		}
	}
	ctx, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	found := make([]map[string]string, len(all))
	slots := make(chan struct{}, tryAtOnce)
	var asking sync.WaitGroup
	for i, a := range all {
		slots <- struct{}{}
		asking.Go(func() {
			defer func() { <-slots }()
			wrong, err := s.cluster.Against(ctx, a.task)
			if err != nil {
				s.log.DebugContext(ctx, "a submit was not held against the cluster", slog.String("kind", a.task.Kind), slog.Any("error", err))
				return
			}
			found[i] = wrong
		})
	}
	asking.Wait()
	var refused []kinds.FieldError
	for i, wrong := range found {
		for _, pointer := range slices.Sorted(maps.Keys(wrong)) {
			if len(refused) < maxFields {
				refused = append(refused, kinds.FieldError{Pointer: all[i].at + pointer, Reason: wrong[pointer]})
			}
		}
	}
	if len(refused) > 0 {
		return &kinds.InvalidError{Fields: refused}
	}
	return nil
}
