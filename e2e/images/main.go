// Command images builds Slipway's container images without a container engine: see package archive.
//
// Allowed imports: the standard library and e2e/images/archive.
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

	"slipway.dev/slipway/e2e/images/archive"
)

const usage = `usage: go run ./e2e/images [flags] [controlplane runner postgres | all]

Builds the images as docker archives into the cache and prints their names.

flags:
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		_, _ = fmt.Fprintln(os.Stderr, "images:", err) // nobody else to tell
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("images", flag.ContinueOnError)
	o := archive.Options{Log: out}
	flags.StringVar(&o.Out, "out", "", "also write NAME.tar for each image into this folder")
	flags.StringVar(&o.Version, "version", "dev", "version that the programs tell")
	registry := flags.String("push", "", "push to this registry and path, for example registry.example.com/team")
	flags.Usage = func() {
		_, _ = fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	// Flags may stand before and after the names.
	for len(args) > 0 {
		if err := flags.Parse(args); err != nil {
			return err
		}
		if args = flags.Args(); len(args) > 0 {
			o.Names, args = append(o.Names, args[0]), args[1:]
		}
	}
	if len(o.Names) == 1 && o.Names[0] == "all" {
		o.Names = nil
	}
	images, err := archive.Build(ctx, o)
	if err != nil {
		return err
	}
	for _, image := range images {
		if *registry != "" {
			if image, err = archive.Push(ctx, image, *registry); err != nil {
				return err
			}
		}
		_, _ = fmt.Fprintf(out, "%s %s %d bytes\n", image.Ref, image.Archive, image.Size)
	}
	return nil
}
