package kube

import (
	"bytes"
	"context"
	"io"

	"slipway.dev/slipway/pkg/task"
)

// tailBytes is what Tail keeps.
const tailBytes = 64 << 10

// unavailableLog is what the kubelet answers, with 200, for a container that it has removed.
var unavailableLog = []byte("unable to retrieve container logs for ")

// Tail reads the end of the log of a's pod; with follow it reads until the container has ended. What was read before an
// error is given with it.
func (c *Client) Tail(ctx context.Context, a task.Attempt, follow bool) ([]byte, error) {
	const lines = 2000 // the kubelet begins that far from the end
	body, err := c.Logs(ctx, a, LogOptions{Follow: follow, Tail: lines})
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }() // nothing was written to it
	var kept []byte
	for buffer := make([]byte, 32<<10); ; {
		n, err := body.Read(buffer)
		kept = append(kept, buffer[:n]...)
		kept = kept[max(0, len(kept)-tailBytes):]
		if bytes.HasPrefix(kept, unavailableLog) {
			return nil, nil
		}
		if err == io.EOF {
			return kept, nil
		}
		if err != nil {
			return kept, unreached(err)
		}
	}
}
