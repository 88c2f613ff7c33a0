package app

import (
	"context"
	"io"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"slipway.dev/slipway/controlplane/internal/auth"
	"slipway.dev/slipway/controlplane/internal/dispatch"
	"slipway.dev/slipway/controlplane/internal/httpapi"
	"slipway.dev/slipway/controlplane/internal/kube"
	"slipway.dev/slipway/controlplane/internal/logs"
	"slipway.dev/slipway/controlplane/internal/reconcile"
	"slipway.dev/slipway/controlplane/internal/store"
	"slipway.dev/slipway/pkg/task"
)

// cluster is what the ports below need of *kube.Client.
type cluster interface {
	ReviewToken(ctx context.Context, token, audience string) (kube.Identity, bool, error)
	Allowed(ctx context.Context, id kube.Identity, a kube.Access) (bool, string, error)
	PodOf(ctx context.Context, namespace, name, uid string) (kube.PodLabels, error)
}

// wholeCluster is everything that a control plane wants of *kube.Client.
type wholeCluster interface {
	cluster
	dispatch.Cluster
	dispatch.Shelf
	reconcile.Sight
	reconcile.Hand
	reconcile.Remains
	patcher
	httpapi.Cluster
	Run(ctx context.Context, look func(attempt int64)) error
	WaitSynced(ctx context.Context) error
	Reopened() <-chan struct{}
	MaxFence(ctx context.Context) (int64, error)
	SyncAge() (age time.Duration, ok bool)
	Gap() time.Duration
	Shut() []string
	Calls() map[kube.Call]int64
	Logs(ctx context.Context, a task.Attempt, o kube.LogOptions) (io.ReadCloser, error)
	Tail(ctx context.Context, a task.Attempt, follow bool) ([]byte, error)
	WriteEvent(ctx context.Context, e kube.ObjectEvent) error
	Serves(ctx context.Context, groupVersion string) (bool, error)
}

// gatekeeper is the cluster as auth wants it.
type gatekeeper struct{ cluster cluster }

// ReviewToken asks whose token it is.
func (g gatekeeper) ReviewToken(ctx context.Context, token, audience string) (auth.Identity, bool, error) {
	id, ok, err := g.cluster.ReviewToken(ctx, token, audience)
	return auth.Identity{
		User: id.User, UID: id.UID, Groups: id.Groups, Extra: id.Extra,
		Namespace: id.Namespace, PodName: id.PodName, PodUID: id.PodUID, Node: id.Node,
	}, ok, err
}

// Allowed asks whether somebody may do something.
func (g gatekeeper) Allowed(ctx context.Context, id auth.Identity, a auth.Access) (bool, error) {
	ok, _, err := g.cluster.Allowed(ctx, kube.Identity{User: id.User, UID: id.UID, Groups: id.Groups, Extra: id.Extra}, kube.Access(a))
	return ok, err
}

// podLogs is the cluster as logs wants it.
type podLogs struct{ cluster wholeCluster }

// Logs opens the log of a pod.
func (p podLogs) Logs(ctx context.Context, a task.Attempt, want logs.Request) (io.ReadCloser, error) {
	if a.Executor == task.ExecutorInline {
		return nil, task.ErrNotFound // there is no pod: its end is kept when it has ended
	}
	body, err := p.cluster.Logs(ctx, a, kube.LogOptions{Follow: want.Follow, Tail: int64(want.Tail)})
	if apierrors.IsBadRequest(err) {
		return nil, task.ErrNotFound // its container has not started
	}
	return body, err
}

// tails is cluster and store as reconcile wants them for the ends of logs.
type tails struct {
	wholeCluster
	store *store.Store
}

// KeepLog stores the end of a log.
func (t tails) KeepLog(ctx context.Context, attempt int64, tail []byte) error {
	return known(t.store.KeepLog(ctx, attempt, tail))
}
