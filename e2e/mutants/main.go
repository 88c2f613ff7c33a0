package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	escaped, err := run(ctx, ".", os.Getenv("ONLY"))
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
	}
	if err != nil || escaped > 0 {
		os.Exit(1)
	}
}

// run tries every mutant, or those whose names begin with one of only (comma-separated), and counts those that no test noticed.
func run(ctx context.Context, root, only string) (escaped int, err error) {
	all, err := load(root)
	if err != nil {
		return 0, err
	}
	if only != "" {
		all = slices.DeleteFunc(all, func(m mutant) bool {
			return !slices.ContainsFunc(strings.Split(only, ","), func(o string) bool { return strings.HasPrefix(m.Name, o) })
		})
	}
	copied, err := copyTree(ctx, root)
	defer copied.remove()
	if err != nil {
		return 0, err
	}
	if err := sound(ctx, copied, all); err != nil {
		return 0, err
	}
	for _, m := range all {
		began := time.Now()
		word, why, err := try(ctx, copied, m)
		if err != nil {
			return escaped, err
		}
		if word != "caught" {
			escaped++
		}
		fmt.Printf("mutant %s %s %.1fs %s: %s\n", m.Name, word, time.Since(began).Seconds(), strings.TrimSuffix(m.Breaks, "."), m.Test)
		if why != "" {
			fmt.Println(why)
		}
	}
	fmt.Printf("mutants: caught=%d escaped=%d\n", len(all)-escaped, escaped)
	return escaped, nil
}

// sound sees that every named test passes while nothing is broken.
func sound(ctx context.Context, t tree, all []mutant) error {
	tests := map[string][]string{}
	var pkgs []string
	for _, m := range all {
		if tests[m.Pkg] == nil {
			pkgs = append(pkgs, m.Pkg)
		}
		if !slices.Contains(tests[m.Pkg], m.Test) {
			tests[m.Pkg] = append(tests[m.Pkg], m.Test)
		}
	}
	for _, pkg := range pkgs {
		fmt.Printf("mutants: %s without a break\n", pkg)
		if failed, out, _ := t.test(ctx, pkg, tests[pkg]); len(failed) > 0 {
			return fmt.Errorf("test %s: %s did not pass without a break:\n%s", pkg, strings.Join(failed, ", "), tail(out))
		}
	}
	return nil
}

// try breaks t by m, runs the test and mends t.
func try(ctx context.Context, t tree, m mutant) (word, why string, err error) {
	if err := t.apply(ctx, m); err != nil {
		return "", "", err
	}
	failed, out, _ := t.test(ctx, m.Pkg, []string{m.Test})
	if err := t.apply(ctx, m, "-R"); err != nil {
		return "", "", err
	}
	switch {
	case ctx.Err() != nil:
		return "", "", ctx.Err()
	case !bytes.Contains(out, []byte("=== RUN   "+m.Test)):
		return "broken", "the patched tree does not build:\n" + tail(out), nil
	case len(failed) == 0:
		return "escaped", "", nil
	}
	return "caught", "", nil
}

// tail is the end of a test's output.
func tail(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return strings.Join(lines[max(0, len(lines)-25):], "\n")
}
