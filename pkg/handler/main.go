package handler

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"slipway.dev/slipway/pkg/handler/internal/protocol"
	"slipway.dev/slipway/pkg/task"
)

// Main is the whole main function of a runner with the given handlers, by kind. It does not return: the process exits
// with 0 if the handler succeeded, with the code of the handler's command or 1 if not, with 121 if the start was
// refused and 122 if the control plane could not be reached before anything ran.
//
// As process 1 of a container it stands aside as an init: it starts itself once more, hands on signals and reaps what
// is orphaned.
func Main(handlers map[string]Handler) {
	if os.Getpid() == 1 {
		os.Exit(standAsInit())
	}
	os.Exit(mainIn(environment{get: os.Getenv, secrets: takeSecrets(), stdout: os.Stdout, stderr: os.Stderr}, handlers))
}

// AnyKind stands, in the handlers that Main is given, for the handler of every kind that has none of its own.
const AnyKind = "*"

// Gate asks for the start of its Attempt and exits: with 0 if it was granted, else as [Main] would. It stands before a
// container that has no runner inside.
func Gate() {
	os.Exit(mainIn(environment{get: os.Getenv, stdout: os.Stdout, stderr: os.Stderr, gate: true}, nil))
}

// environment is what a runner finds around it.
type environment struct {
	get            func(name string) string
	secrets        map[string]string // values by parameter
	stdout, stderr io.Writer
	gate           bool
}

// Where a runner finds its things, unless its environment says otherwise.
const (
	defaultToken       = "/var/run/secrets/slipway/token" //nolint:gosec // a path
	defaultTermination = "/dev/termination-log"
	defaultDir         = "/slipway"
)

func mainIn(env environment, handlers map[string]Handler) int {
	logf := func(format string, args ...any) {
		_, _ = fmt.Fprintf(env.stderr, "slipway: "+format+"\n", args...) // a broken log cannot be reported anywhere
	}
	message := func(text string) {
		path := env.or("SLIPWAY_TERMINATION_LOG", defaultTermination)
		// In place: the file is a mount of its own.
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			logf("write the termination message: %v", err)
		}
	}
	id, within, err := env.identity()
	var client *protocol.Client
	if err == nil {
		client, err = env.client(id)
	}
	if err != nil {
		logf("%v", err)
		message(err.Error())
		return task.ExitUnreachable
	}
	defer client.Close()
	told, release := untilTerm()
	defer release()
	r := &runner{
		plane: client, id: id, handlers: handlers, told: told, message: message, logf: logf,
		stdout: env.stdout, stderr: env.stderr, dir: env.or("SLIPWAY_DIR", defaultDir), startWithin: within,
		secrets: env.secrets, gate: env.gate,
	}
	return r.run()
}

func (e environment) or(name, otherwise string) string {
	if v := e.get(name); v != "" {
		return v
	}
	return otherwise
}

// client makes the client of the control plane.
func (e environment) client(id protocol.Identity) (*protocol.Client, error) {
	client, err := protocol.New(protocol.Place{
		Base: e.get("SLIPWAY_URL"), TokenFile: e.or("SLIPWAY_TOKEN_FILE", defaultToken), CA: e.get("SLIPWAY_CA"),
	}, id)
	if err != nil {
		return nil, fmt.Errorf("read SLIPWAY_CA: %w", err)
	}
	return client, nil
}

// identity reads which Attempt this is and how long to try for its start.
func (e environment) identity() (protocol.Identity, time.Duration, error) {
	id := protocol.Identity{PodUID: e.get("SLIPWAY_POD_UID")}
	within := startWithin
	var errs []error
	if e.get("SLIPWAY_URL") == "" {
		errs = append(errs, errors.New("SLIPWAY_URL is not set: a runner is started by Slipway, in a pod that it makes"))
	}
	number := func(name string, into *int64) {
		n, err := strconv.ParseInt(e.get(name), 10, 64)
		if err != nil {
			errs = append(errs, fmt.Errorf("read %s: %w", name, err))
		}
		*into = n
	}
	number("SLIPWAY_ATTEMPT", &id.Attempt)
	number("SLIPWAY_FENCE", &id.Fence)
	if e.get("SLIPWAY_START_SECONDS") != "" {
		var seconds int64
		number("SLIPWAY_START_SECONDS", &seconds)
		within = max(time.Duration(seconds)*time.Second, time.Second)
	}
	return id, within, errors.Join(errs...)
}

// untilTerm gives a context that SIGTERM or SIGINT cancels, with the time as its cause. A second signal changes
// nothing: the grace period is the kubelet's to end.
func untilTerm() (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for range signals {
			cancel(&termination{at: time.Now()})
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(signals)
		<-gone
		cancel(nil)
	}
}
