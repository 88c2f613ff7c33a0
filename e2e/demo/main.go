// Command demo is `make demo`: it brings Slipway up in a cluster, runs one command through it, and shows what came of it
// in Slipway's words and in the cluster's, and has a schedule fire twice. Repeating it is safe and skips what has not changed.
//
//	MARK            what the command prints; default: random
//	CLUSTER         current: use the cluster of the current kubeconfig and start none
//	IMAGE_REGISTRY  with CLUSTER=current: push the images there; unset: the nodes have them already
//
// Allowed imports: the standard library, manifests, the rig's parts (e2e/...), pkg/..., client-go.
package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		_, _ = fmt.Fprintln(os.Stderr, "demo:", err) // nobody else to tell
		os.Exit(1)
	}
}

// settings is what the environment and the flags say.
type settings struct {
	mark     string
	current  bool
	registry string
	name     string // of the local cluster
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	name := flags.String("name", "", "name of the local cluster; default: demo, and for down all of this machine")
	if err := flags.Parse(args); err != nil {
		return err
	}
	s := settings{
		mark: os.Getenv("MARK"), registry: os.Getenv("IMAGE_REGISTRY"), name: *name,
	}
	switch cluster := os.Getenv("CLUSTER"); cluster {
	case "":
	case "current":
		s.current = true
	default:
		return fmt.Errorf("CLUSTER=%s: leave it empty for a cluster of our own, or say current", cluster)
	}
	if s.registry != "" && !s.current {
		return errors.New("IMAGE_REGISTRY is for CLUSTER=current; the cluster of our own is given its images directly")
	}
	log := newProgress(out)
	switch flags.Arg(0) {
	case "":
		return up(ctx, s, log)
	case "down":
		return down(ctx, s, log)
	}
	return fmt.Errorf("unknown command %q: say nothing, or down", flags.Arg(0))
}

// up is the demonstration.
func up(ctx context.Context, s settings, log *progress) error {
	if s.mark == "" {
		mark, err := random(8)
		if err != nil {
			return err
		}
		s.mark = "mark-" + mark
	}
	c, err := connect(ctx, s, log)
	if err != nil {
		return err
	}
	if err := install(ctx, s, c, log); err != nil {
		return err
	}
	if err := ready(ctx, c, log); err != nil {
		return err
	}
	return show(ctx, s, c, log)
}

func random(bytes int) (string, error) {
	raw := make([]byte, bytes)
	if _, err := rand.Read(raw); err != nil {
		return "", fmt.Errorf("draw random bytes: %w", err)
	}
	return hex.EncodeToString(raw), nil
}

// progress prints one line per step with the seconds since the beginning.
type progress struct {
	out   io.Writer
	began time.Time
}

func newProgress(out io.Writer) *progress { return &progress{out: out, began: time.Now()} }

func (p *progress) say(format string, args ...any) {
	p.print("demo: %s (%.1fs)\n", fmt.Sprintf(format, args...), time.Since(p.began).Seconds())
}

// print writes as it is.
func (p *progress) print(format string, args ...any) {
	_, _ = fmt.Fprintf(p.out, format, args...) // nobody else to tell
}
