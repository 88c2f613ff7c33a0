package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// folder holds the patches, from the module's root.
const folder = "e2e/mutants"

// mutant is one patch.
type mutant struct {
	Name   string // of the file, without its end: 03-stale-beat
	Breaks string
	Pkg    string // as `go test` takes it: ./pkg/task
	Test   string // the name of one test function
	Path   string
}

// load reads every patch below root.
func load(root string) ([]mutant, error) {
	root, err := filepath.Abs(root) // the patches are applied in another folder
	if err != nil {
		return nil, fmt.Errorf("find the patches: %w", err)
	}
	paths, err := filepath.Glob(filepath.Join(root, folder, "*.patch"))
	if err != nil {
		return nil, fmt.Errorf("list the patches: %w", err)
	}
	var all []mutant
	for _, path := range paths {
		m, err := parse(path)
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

func parse(path string) (mutant, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return mutant{}, fmt.Errorf("read a patch: %w", err)
	}
	m := mutant{Name: strings.TrimSuffix(filepath.Base(path), ".patch"), Path: path}
	for lines := bufio.NewScanner(bytes.NewReader(raw)); lines.Scan(); {
		line := lines.Text()
		if strings.HasPrefix(line, "diff --git ") {
			break
		}
		if text, ok := strings.CutPrefix(line, "Breaks: "); ok {
			m.Breaks = text
		}
		if text, ok := strings.CutPrefix(line, "Caught by: "); ok {
			m.Pkg, m.Test, _ = strings.Cut(text, " ")
		}
	}
	if m.Breaks == "" || m.Pkg == "" || !strings.HasPrefix(m.Test, "Test") {
		return mutant{}, fmt.Errorf("read %s: its head needs the lines `Breaks: …` and `Caught by: ./package TestName`", m.Name)
	}
	return m, nil
}

// tree is a copy of the module that may be broken.
type tree struct{ dir string }

// copyTree copies what git knows or would take up, so that uncommitted work is tried too.
func copyTree(ctx context.Context, root string) (tree, error) {
	dir, err := os.MkdirTemp("", "slipway-mutants-")
	if err != nil {
		return tree{}, fmt.Errorf("make a folder for the copy: %w", err)
	}
	list := exec.CommandContext(ctx, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = root
	names, err := list.Output()
	if err != nil {
		return tree{dir}, fmt.Errorf("list the tree's files: %w", err)
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(names), "\x00"), "\x00") {
		body, err := os.ReadFile(filepath.Join(root, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted, and not committed yet
		}
		if err != nil {
			return tree{dir}, fmt.Errorf("copy the tree: %w", err)
		}
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return tree{dir}, fmt.Errorf("copy the tree: %w", err)
		}
		if err := os.WriteFile(to, body, 0o755); err != nil {
			return tree{dir}, fmt.Errorf("copy the tree: %w", err)
		}
	}
	return tree{dir}, nil
}

func (t tree) remove() { _ = os.RemoveAll(t.dir) } // a folder in the temporary one

// apply breaks the copy by m, or with "-R" mends it.
func (t tree) apply(ctx context.Context, m mutant, flags ...string) error {
	cmd := exec.CommandContext(ctx, "git", append(append([]string{"apply", "-C1"}, flags...), m.Path)...)
	cmd.Dir = t.dir
	cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(t.dir))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("apply %s: %w: %s", m.Name, err, bytes.TrimSpace(out))
	}
	return nil
}

// test runs tests of a package of the copy; failed names those that did not pass.
func (t tree) test(ctx context.Context, pkg string, names []string) (failed []string, out []byte, err error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-tags", "failpoints", "-count=1", "-timeout", "5m", "-v",
		"-run", "^("+strings.Join(names, "|")+")$", pkg)
	cmd.Dir = t.dir
	out, err = cmd.CombinedOutput()
	for _, name := range names {
		if !slices.ContainsFunc(strings.Split(string(out), "\n"), func(line string) bool {
			return strings.HasPrefix(line, "--- PASS: "+name+" ")
		}) {
			failed = append(failed, name)
		}
	}
	return failed, out, err
}
