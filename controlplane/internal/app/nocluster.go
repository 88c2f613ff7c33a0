package app

import (
	"context"
	"crypto/subtle"
	"io"
	"time"

	"slipway.dev/slipway/controlplane/internal/auth"
	"slipway.dev/slipway/controlplane/internal/httpapi"
	"slipway.dev/slipway/controlplane/internal/kube"
	"slipway.dev/slipway/pkg/task"
)

// noCluster stands where the cluster would: one user, whose token it knows, may do everything, and no Job can be launched.
type noCluster struct{ token string }

// localUser is whose the one token is.
const localUser = "dev"

// ReviewToken knows the one token.
func (n noCluster) ReviewToken(_ context.Context, token, audience string) (kube.Identity, bool, error) {
	ok := audience != auth.RunnerAudience && subtle.ConstantTimeCompare([]byte(token), []byte(n.token)) == 1
	if !ok {
		return kube.Identity{}, false, nil
	}
	return kube.Identity{User: localUser}, true, nil
}

// Allowed lets the one user do everything.
func (noCluster) Allowed(_ context.Context, id kube.Identity, _ kube.Access) (bool, string, error) {
	return id.User == localUser, "", nil
}

// PodOf finds no pod.
func (noCluster) PodOf(context.Context, string, string, string) (kube.PodLabels, error) {
	return kube.PodLabels{}, task.ErrNotFound
}

func (noCluster) refuse() error {
	return &task.Refusal{Cause: task.RefusedUnavailable, Message: "this control plane has no cluster"}
}

// Launch refuses.
func (n noCluster) Launch(context.Context, task.Task, task.Attempt) (name, uid string, err error) {
	return "", "", n.refuse()
}

// Left finds no Job.
func (noCluster) Left(context.Context, task.Attempt) (name, uid string, err error) {
	return "", "", nil
}

// DryRun refuses.
func (n noCluster) DryRun(context.Context, task.Task, task.Attempt) error { return n.refuse() }

// Rehearse refuses.
func (n noCluster) Rehearse(context.Context, task.Task, task.Attempt) error { return n.refuse() }

// Takes is asked about what runs in this process alone.
func (noCluster) Takes(context.Context, task.Task) error { return nil }

// Against finds nothing.
func (noCluster) Against(context.Context, task.Task) (map[string]string, error) { return nil, nil }

// Claims finds none.
func (noCluster) Claims(context.Context, string, string) ([]string, error) { return nil, nil }

// StorageUse says that there is none.
func (noCluster) StorageUse(context.Context, string) (map[string]int64, error) {
	return nil, httpapi.ErrNoCluster
}

// Serves nothing.
func (noCluster) Serves(context.Context, string) (bool, error) { return false, nil }

// CheckKind finds every pod as good as another.
func (noCluster) CheckKind(task.Kind) error { return nil }

// MakeRoom has nothing to delete.
func (noCluster) MakeRoom(context.Context, string, int) (int, error) { return 0, nil }

// Observe sees nothing.
func (noCluster) Observe(context.Context, task.Attempt, bool) (task.Seen, error) {
	return task.Seen{Live: true}, nil
}

// Halt has nothing to stop.
func (noCluster) Halt(context.Context, task.Task, task.Attempt, time.Duration) error { return nil }

// Close has nothing to let go.
func (noCluster) Close(context.Context, task.Attempt) error { return nil }

// Shows shows nothing.
func (noCluster) Shows(int64) bool { return false }

// Traces finds none.
func (noCluster) Traces() []task.Trace { return nil }

// Remove has nothing to remove.
func (noCluster) Remove(context.Context, task.Trace) error { return nil }

// Run hears nothing until ctx is done.
func (noCluster) Run(ctx context.Context, _ func(int64)) error {
	<-ctx.Done()
	return nil
}

// WaitSynced has nothing to wait for.
func (noCluster) WaitSynced(context.Context) error { return nil }

// Reopened never says anything.
func (noCluster) Reopened() <-chan struct{} { return nil }

// MaxFence knows none.
func (noCluster) MaxFence(context.Context) (int64, error) { return 0, nil }

// SyncAge is always fresh.
func (noCluster) SyncAge() (age time.Duration, ok bool) { return 0, true }

// Gap has none.
func (noCluster) Gap() time.Duration { return 0 }

// Shut has none.
func (noCluster) Shut() []string { return nil }

// Calls are none.
func (noCluster) Calls() map[kube.Call]int64 { return nil }

// Logs finds none.
func (noCluster) Logs(context.Context, task.Attempt, kube.LogOptions) (io.ReadCloser, error) {
	return nil, task.ErrNotFound
}

// Tail finds none.
func (noCluster) Tail(context.Context, task.Attempt, bool) ([]byte, error) { return nil, nil }

// WriteEvent has nowhere to write.
func (noCluster) WriteEvent(context.Context, kube.ObjectEvent) error { return nil }
