package handler

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"slipway.dev/slipway/pkg/task"
)

// signalBase is what a shell adds to the number of the signal that ended a process.
const signalBase = 128

// standAsInit is process 1 of a container: the runner itself is its child. So orphans are reaped without taking the
// end of a process from a handler that waits for it.
func standAsInit() int {
	self, err := os.Executable()
	if err != nil {
		return initFailed("find its own program", err)
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
	child, err := syscall.ForkExec(self, os.Args, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}}) //nolint:gosec // itself, as it was started
	if err != nil {
		return initFailed("start itself", err)
	}
	go func() {
		for s := range signals {
			if number, ok := s.(syscall.Signal); ok {
				_ = syscall.Kill(child, number) // it may be gone already
			}
		}
	}()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return initFailed("wait for the runner", err)
		case pid == child && status.Signaled():
			return signalBase + int(status.Signal())
		case pid == child && status.Exited():
			return status.ExitStatus()
		}
	}
}

func initFailed(doing string, err error) int {
	_, _ = fmt.Fprintf(os.Stderr, "slipway: %s: %v\n", doing, err) // a broken log cannot be reported anywhere
	return task.ExitUnreachable
}
