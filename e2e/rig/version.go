package rig

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"slipway.dev/slipway/e2e/cluster/local"
	"slipway.dev/slipway/e2e/images/archive"
)

// Version is a build of its own, as of another commit.
type Version struct {
	Controlplane string // the binary
	Runner       string // the image's name, once it is loaded
	runner       archive.Image
}

// Earlier builds control plane and runner of an earlier commit. It skips the test where this tree has no history of it.
func Earlier(t testing.TB, commit string) *Version {
	t.Helper()
	text := exec.CommandContext(t.Context(), "git", "archive", "--format=tar", commit)
	text.Dir = root()
	tree, err := text.Output()
	if err != nil {
		t.Skipf("this tree has no commit %s to build: %v", commit, err)
	}
	dir := t.TempDir()
	if err := unpack(tree, dir); err != nil {
		t.Fatalf("unpack commit %s: %v", commit, err)
	}
	v := &Version{Controlplane: filepath.Join(dir, "bin-controlplane")}
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", v.Controlplane, "./controlplane")
	build.Dir, build.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the control plane of commit %s: %v\n%s", commit, err, out)
	}
	images, err := archive.Build(t.Context(), archive.Options{Names: []string{"runner"}, Root: dir, Log: Progress})
	if err != nil {
		t.Fatalf("build the runner of commit %s: %v", commit, err)
	}
	v.runner, v.Runner = images[0], images[0].Ref
	return v
}

// Released builds the control plane of this tree as it is released: without failpoints and race detector.
func Released(t testing.TB) *Version {
	t.Helper()
	return build(t, "-trimpath")
}

// Unraced builds it with failpoints and without the race detector, which makes everything several times slower: for tests
// whose load counts.
func Unraced(t testing.TB) *Version {
	t.Helper()
	return build(t, "-tags", "failpoints")
}

func build(t testing.TB, flags ...string) *Version {
	t.Helper()
	v := &Version{Controlplane: filepath.Join(t.TempDir(), "controlplane")}
	cmd := exec.CommandContext(t.Context(), "go", append(append([]string{"build"}, flags...), "-o", v.Controlplane, "./controlplane")...)
	cmd.Dir, cmd.Env = root(), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the control plane: %v\n%s", err, out)
	}
	return v
}

func unpack(tree []byte, dir string) error {
	files := tar.NewReader(bytes.NewReader(tree))
	for {
		entry, err := files.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case entry.Typeflag != tar.TypeReg:
			continue
		}
		file := filepath.Join(dir, filepath.FromSlash(entry.Name))
		text, err := io.ReadAll(files)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, text, entry.FileInfo().Mode().Perm()); err != nil {
			return err
		}
	}
}

// load puts the version's runner on the node.
func (v *Version) load(t testing.TB, r *Rig) {
	t.Helper()
	if r.Cluster.Profile != local.Node || v.Runner == "" { // without one of its own, this tree's is there
		return
	}
	if err := r.Cluster.Load(t.Context(), v.runner.Archive); err != nil {
		t.Fatalf("load an earlier runner: %v", err)
	}
}

// Upgrade migrates the database with this tree's control plane; replicas that are added from now on are of this tree.
func (r *Rig) Upgrade(t testing.TB) {
	t.Helper()
	r.options.Version = nil
	if out, err := r.Migrate(t, r.Postgres.TCP(database)); err != nil {
		t.Fatalf("migrate: %v\n%s", err, out)
	}
}

// Runner is the image of this tree's runner.
func (r *Rig) Runner() string { return runnerImage(r.Cluster.Profile) }

// binary is the control plane of v; nil is this tree.
func (v *Version) binary(t testing.TB) string {
	t.Helper()
	if v != nil {
		return v.Controlplane
	}
	return controlplane(t)
}
