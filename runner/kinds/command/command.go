// Package command runs one process as the work of a Task: [Run] the one that the parameters of kind command.run name,
// [Exec] the one that the container was given, for any kind. Its output is the pod's log, its exit code the outcome, and
// files carry what there is to say besides.
//
//   - $SLIPWAY_RESULT (/slipway/result.json): JSON, stored as the result of the Task.
//   - $SLIPWAY_PROGRESS (/slipway/progress): a line `done/total message`, or JSON {"done", "total", "message"}; the last
//     line counts.
//   - $SLIPWAY_PARAMS (/slipway/params.json), with Exec: the parameters of the Task, readable by the command's user alone,
//     with the values of secret ones in their places.
//
// SIGTERM reaches the whole process group when the Task is to stop, SIGKILL when its grace period is over. An exit with
// 0 after SIGTERM counts as success only if the result file is there: most programs exit with 0 when told to stop.
//
// Allowed imports: the standard library, pkg/task and pkg/handler.
package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"slipway.dev/slipway/pkg/handler"
	"slipway.dev/slipway/pkg/task"
)

// Params are the parameters of command.run.
type Params struct {
	Command []string          `json:"command"` // program and arguments; no shell in between
	Env     map[string]string `json:"env,omitempty"`
	Dir     string            `json:"dir,omitempty"`
	Stdin   string            `json:"stdin,omitempty"`

	file string // where the Task's parameters stand; empty: nowhere
}

// Files of the hand-over folder, and how much of them is read.
const (
	resultFile   = "result.json"
	progressFile = "progress"
	paramsFile   = "params.json"
	maxResult    = 64 << 10
)

// Run is the handler.
func Run(ctx context.Context, t handler.Task) (any, error) {
	var p Params
	if err := t.Decode(&p); err != nil {
		return nil, err
	}
	if err := p.check(); err != nil {
		return nil, handler.Permanent(err, handler.ReasonParams)
	}
	return work(ctx, t, p)
}

// work runs the process to its end.
func work(ctx context.Context, t handler.Task, p Params) (any, error) {
	killsBefore := oomKills()
	proc, err := start(t, p)
	if err != nil {
		return nil, notStarted(err)
	}
	stopWatching := watchProgress(filepath.Join(t.Dir, progressFile), t.Progress)
	end := proc.attend(ctx, t.Overdue)
	stopWatching()
	end.outOfMemory = oomKills() > killsBefore
	return conclude(end, filepath.Join(t.Dir, resultFile))
}

func (p Params) check() error {
	if len(p.Command) == 0 || p.Command[0] == "" {
		return errors.New("command is empty; give the program and its arguments as a list")
	}
	for _, word := range p.Command {
		if strings.ContainsRune(word, 0) {
			return errors.New("command holds a NUL character, which no program can be given")
		}
	}
	for name, value := range p.Env {
		switch {
		case name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(value, 0):
			return fmt.Errorf("env %q is no name and value that a process can be given", name)
		case strings.HasPrefix(name, reservedPrefix):
			return fmt.Errorf("env %s: names that begin with %s are Slipway's own", name, reservedPrefix)
		}
	}
	return nil
}

// notStarted tells a command that cannot be run, and never will be, from a machine that has no room at the moment.
func notStarted(err error) error {
	code := 126
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		code = 127
	case errors.Is(err, fs.ErrPermission), errors.Is(err, errNotRunnable):
	default:
		return fmt.Errorf("start the command: %w", err)
	}
	failure := &handler.Failure{Reason: task.ReasonCannotRun, Message: "start the command: " + err.Error(), ExitCode: &code}
	return handler.Permanent(failure, task.ReasonCannotRun)
}

// ended is how the process came to its end.
type ended struct {
	code        int  // 128 + number if a signal ended it
	signal      int  // 0: it exited by itself
	told        bool // our SIGTERM came first
	outOfMemory bool // the kernel killed a process of this container for memory while it ran
}

// conclude says what an end means.
func conclude(end ended, result string) (any, error) {
	fail := func(reason task.Reason, format string, args ...any) (any, error) {
		return nil, &handler.Failure{Reason: reason, Message: fmt.Sprintf(format, args...), ExitCode: &end.code}
	}
	switch {
	case end.outOfMemory && !end.told:
		if end.code == 0 {
			return fail(task.ReasonOOMKilled, "a process of the command was killed for memory, although the command exited with 0")
		}
		return fail(task.ReasonOOMKilled, "the command was killed for memory")
	case end.signal != 0:
		return fail(task.ReasonSignal, "the command was ended by signal %d", end.signal)
	case end.code != 0:
		return fail(task.ReasonExitCode, "the command exited with %d", end.code)
	}
	answer, err := readResult(result)
	switch {
	case err != nil:
		return fail(handler.ReasonResult, "%v", err)
	case answer == nil && end.told:
		return fail(task.ReasonSignal, "the command exited with 0 after SIGTERM and left no result")
	case answer == nil:
		return nil, nil
	}
	return answer, nil
}

// readResult gives what the command left as its result; nil if it left none.
func readResult(path string) (json.RawMessage, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the result: %w", err)
	}
	defer func() { _ = file.Close() }() // only read
	raw, err := io.ReadAll(io.LimitReader(file, maxResult+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the result: %w", err)
	case len(raw) > maxResult:
		return nil, fmt.Errorf("%s has more than %d bytes", path, maxResult)
	case !json.Valid(raw):
		return nil, fmt.Errorf("%s is no JSON", path)
	}
	return raw, nil
}
