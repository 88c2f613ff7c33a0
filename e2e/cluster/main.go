// Command cluster runs a real Kubernetes on this machine: see package local.
// Imports: the standard library and local.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"slipway.dev/slipway/e2e/cluster/local"
)

const usage = `usage: go run ./e2e/cluster COMMAND [flags]

  up               start a cluster, or what is missing of it
  down             remove it with everything it left
  status           show clusters and their parts
  load IMAGE.tar   import image archives into the node
  kubeconfig       print the path of the administrator's kubeconfig
  build            only compile Kubernetes, into the cache

flags:
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("cluster", flag.ContinueOnError)
	name := flags.String("name", "demo", "name of the cluster")
	profile := flags.String("profile", string(local.Node), "api: control plane only; fake: with nodes that run nothing; node: with a node on this machine (root)")
	tuned := flags.Bool("tuned", false, "raise client rates and worker counts, for throughput figures")
	fsync := flags.Bool("fsync", false, "let etcd sync to disk")
	storage := flags.Bool("storage", false, "with volumes, in profile node")
	flags.Usage = func() {
		_, _ = fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	words, err := parse(flags, args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	if len(words) == 0 {
		flags.Usage()
		return errors.New("which command?")
	}
	switch words[0] {
	case "up":
		_, err := local.Up(ctx, local.Options{
			Name: *name, Profile: local.Profile(*profile), Log: out, Tuned: *tuned, Fsync: *fsync, Storage: *storage,
		})
		return err
	case "down":
		return down(ctx, out, *name)
	case "status":
		return status(ctx, out)
	case "build":
		dir, err := local.Build(ctx, out)
		if err == nil {
			_, _ = fmt.Fprintln(out, dir)
		}
		return err
	case "load", "kubeconfig":
		return withCluster(ctx, out, *name, words)
	}
	flags.Usage()
	return fmt.Errorf("command %q is not known", words[0])
}

// parse lets flags stand before and after words.
func parse(flags *flag.FlagSet, args []string) ([]string, error) {
	var words []string
	for {
		if err := flags.Parse(args); err != nil {
			return nil, err
		}
		if flags.NArg() == 0 {
			return words, nil
		}
		words, args = append(words, flags.Arg(0)), flags.Args()[1:]
	}
}

func withCluster(ctx context.Context, out io.Writer, name string, words []string) error {
	c, err := local.Open(name)
	if err != nil {
		return err
	}
	if words[0] == "kubeconfig" {
		_, _ = fmt.Fprintln(out, c.Kubeconfig)
		return nil
	}
	if len(words) < 2 {
		return errors.New("load which image archive?")
	}
	for _, archive := range words[1:] {
		start := time.Now()
		if err := c.Load(ctx, archive); err != nil {
			return err
		}
		_, _ = fmt.Fprintf(out, "cluster %s: loaded %s (%.1fs)\n", name, archive, time.Since(start).Seconds())
	}
	return nil
}

func down(ctx context.Context, out io.Writer, name string) error {
	start := time.Now()
	if err := local.Down(ctx, name); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "cluster %s: down (%.1fs)\n", name, time.Since(start).Seconds())
	return nil
}

// status fails if a part of any cluster does not answer.
func status(ctx context.Context, out io.Writer) error {
	names, err := local.List()
	if err != nil {
		return err
	}
	if len(names) == 0 {
		_, _ = fmt.Fprintln(out, "no cluster")
	}
	ill := 0
	for _, name := range names {
		c, err := local.Open(name)
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(out, "cluster %s: profile %s, %s, KUBECONFIG=%s\n", c.Name, c.Profile, c.APIServer, c.Kubeconfig)
		for _, part := range c.Status(ctx) {
			word := "ok"
			if part.Error != nil {
				word = part.Error.Error()
				ill++
			}
			_, _ = fmt.Fprintf(out, "  %-24s pid %-8d %s\n", part.Name, part.PID, word)
		}
	}
	if ill > 0 {
		return fmt.Errorf("%d parts do not answer: run up to start them again", ill)
	}
	return nil
}
