package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"slipway.dev/slipway/pkg/handler"
)

// drainWithin is how long output is still taken after the end of the process: one that left its process group may hold
// the pipes open for ever.
const drainWithin = 2 * time.Second

// errNotRunnable is a program file that the kernel does not take.
var errNotRunnable = errors.New("not a program that this machine can run")

// process is one running command with all that it started in its process group.
type process struct {
	cmd     *exec.Cmd
	feed    *os.File   // our end of its standard input; nil without one
	outputs []*os.File // our ends of its output
	copying sync.WaitGroup
}

// start runs the command in a process group of its own.
func start(t handler.Task, p Params) (*process, error) {
	env := childEnvironment(os.Environ(), t, p.Env)
	if p.file != "" {
		env = append(env, "SLIPWAY_PARAMS="+p.file)
	}
	path, err := lookUp(p.Command[0], p.Dir, env)
	if err != nil {
		return nil, err
	}
	proc := &process{cmd: &exec.Cmd{
		Path: path, Args: p.Command, Env: env, Dir: p.Dir, SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}}
	var theirs []*os.File
	defer func() {
		for _, file := range theirs {
			_ = file.Close() // the child has its own
		}
	}()
	for _, to := range []struct {
		end  *io.Writer
		sink io.Writer
	}{{&proc.cmd.Stdout, t.Stdout}, {&proc.cmd.Stderr, t.Stderr}} {
		ours, child, err := os.Pipe()
		if err != nil {
			return nil, proc.abandon(fmt.Errorf("make a pipe: %w", err))
		}
		*to.end = child
		theirs, proc.outputs = append(theirs, child), append(proc.outputs, ours)
		proc.copying.Go(func() { pass(to.sink, ours) })
	}
	if p.Stdin != "" {
		child, ours, err := os.Pipe()
		if err != nil {
			return nil, proc.abandon(fmt.Errorf("make a pipe: %w", err))
		}
		proc.cmd.Stdin, proc.feed, theirs = child, ours, append(theirs, child)
		proc.copying.Go(func() {
			_, _ = io.WriteString(ours, p.Stdin) // a command need not read all of it
			_ = ours.Close()
		})
	}
	if err := proc.cmd.Start(); err != nil {
		if errors.Is(err, syscall.ENOEXEC) {
			err = fmt.Errorf("%w: %w", errNotRunnable, err)
		}
		return nil, proc.abandon(err)
	}
	return proc, nil
}

// pass copies everything from the pipe, even if the sink breaks: the command must not block on its output.
func pass(sink io.Writer, from *os.File) {
	if _, err := io.Copy(sink, from); err != nil {
		_, _ = io.Copy(io.Discard, from)
	}
}

// abandon closes what a start that came to nothing has opened.
func (p *process) abandon(err error) error {
	p.closePipes()
	p.copying.Wait()
	return err
}

func (p *process) closePipes() {
	for _, file := range p.outputs {
		_ = file.Close() // only read
	}
	if p.feed != nil {
		_ = p.feed.Close() // nobody reads it any more
	}
}

// attend waits for the end of the process. When ctx ends, its group gets SIGTERM; when overdue is closed, SIGKILL. What
// the command has left behind in its group is killed with its end: nothing of an ended Task may run on.
func (p *process) attend(ctx context.Context, overdue <-chan struct{}) ended {
	exited := make(chan *os.ProcessState, 1)
	go func() {
		state, _ := p.cmd.Process.Wait() // nobody else waits for this process
		exited <- state
	}()
	var end ended
	stop := ctx.Done()
	for {
		select {
		case <-stop:
			stop, end.told = nil, true
			p.signal(syscall.SIGTERM)
		case <-overdue:
			overdue = nil
			p.signal(syscall.SIGKILL)
		case state := <-exited:
			p.signal(syscall.SIGKILL)
			p.drain()
			return read(end, state)
		}
	}
}

func read(end ended, state *os.ProcessState) ended {
	status, ok := state.Sys().(syscall.WaitStatus)
	if ok && status.Signaled() {
		end.signal = int(status.Signal())
		end.code = 128 + end.signal
		return end
	}
	end.code = state.ExitCode()
	return end
}

// signal reaches every process of the group.
func (p *process) signal(s syscall.Signal) {
	_ = syscall.Kill(-p.cmd.Process.Pid, s) // an empty group is no trouble
}

// drain waits until all output has been passed on.
func (p *process) drain() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.copying.Wait()
	}()
	timer := time.NewTimer(drainWithin)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
	p.closePipes()
	<-done
}

// reservedPrefix begins the names that carry a runner's own things.
const reservedPrefix = "SLIPWAY_"

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// childEnvironment is the runner's environment without Slipway's own variables, then what the Task asks for, then the
// four that every command may know.
func childEnvironment(own []string, t handler.Task, asked map[string]string) []string {
	var env []string
	path := false
	add := func(name, value string) {
		path = path || name == "PATH"
		env = append(env, name+"="+value)
	}
	for _, entry := range own {
		name, value, _ := strings.Cut(entry, "=")
		if _, replaced := asked[name]; !replaced && !strings.HasPrefix(name, reservedPrefix) {
			add(name, value)
		}
	}
	for name, value := range asked {
		add(name, value)
	}
	if !path {
		add("PATH", defaultPath)
	}
	add("SLIPWAY_TASK", t.ID)
	add("SLIPWAY_ATTEMPT_NUMBER", strconv.Itoa(t.Attempt))
	add("SLIPWAY_RESULT", filepath.Join(t.Dir, resultFile))
	add("SLIPWAY_PROGRESS", filepath.Join(t.Dir, progressFile))
	return env
}

// lookUp finds a program as a shell would, in the PATH that the child is given.
func lookUp(name, dir string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		if !filepath.IsAbs(name) {
			name = filepath.Join("/", dir, name)
		}
		return name, runnable(name)
	}
	for _, entry := range env {
		list, isPath := strings.CutPrefix(entry, "PATH=")
		if !isPath {
			continue
		}
		for _, folder := range filepath.SplitList(list) {
			file := filepath.Join(folder, name)
			if filepath.IsAbs(file) && runnable(file) == nil {
				return file, nil
			}
		}
	}
	return "", fmt.Errorf("%s: %w", name, exec.ErrNotFound)
}

func runnable(file string) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	if info.IsDir() || info.Mode().Perm()&0o111 == 0 {
		return fmt.Errorf("%s: %w", file, errNotRunnable)
	}
	return nil
}
