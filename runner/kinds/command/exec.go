package command

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"

	"slipway.dev/slipway/pkg/handler"
)

// Exec is the handler that runs argv whatever the kind: what a container was to run, with a runner around it. It keeps
// the container's environment and working directory. The parameters of the Task are in a file and nowhere else.
func Exec(argv []string) handler.Handler {
	return func(ctx context.Context, t handler.Task) (any, error) {
		dir, err := os.Getwd()
		if err != nil {
			return nil, fmt.Errorf("find the working directory: %w", err)
		}
		p := Params{Command: argv, Dir: dir}
		if err := p.check(); err != nil {
			return nil, handler.Permanent(err, handler.ReasonParams)
		}
		if p.file, err = writeParams(t); err != nil {
			return nil, err
		}
		return work(ctx, t, p)
	}
}

// writeParams writes the parameters so that only this user can read them, and nobody by mistake change them.
func writeParams(t handler.Task) (string, error) {
	params := bytes.TrimSpace(t.Params)
	if len(params) == 0 {
		params = []byte("{}")
	}
	file := filepath.Join(t.Dir, paramsFile)
	// A file that is there already may be readable by others, or be a link to elsewhere.
	if err := os.RemoveAll(file); err != nil {
		return "", fmt.Errorf("make room for the parameters: %w", err)
	}
	out, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o400)
	if err != nil {
		return "", fmt.Errorf("make the file of the parameters: %w", err)
	}
	_, err = out.Write(params)
	if closed := out.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return "", fmt.Errorf("write the parameters: %w", err)
	}
	return file, nil
}
