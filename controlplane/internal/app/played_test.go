package app

import (
	"context"
	"io"

	"slipway.dev/slipway/controlplane/internal/logs"
	"slipway.dev/slipway/pkg/task"
)

// noPods is a cluster in which every pod is gone.
type noPods struct{}

func (noPods) Logs(context.Context, task.Attempt, logs.Request) (io.ReadCloser, error) {
	return nil, task.ErrNotFound
}
