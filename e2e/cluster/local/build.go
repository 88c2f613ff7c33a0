package local

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// pausePackage is built next to the tools of e2e/cluster/kubernetes/go.mod.
const pausePackage = "./pause"

// set is programs that are compiled, and cached, together.
type set struct {
	name     string
	packages []string                                            // empty: every tool of the module that is in no other set, and pause
	source   string                                              // folder of a program of ours among them
	files    func(ctx context.Context, source, dir string) error // makes what else goes into the folder
}

// Only profile Fake needs kwok, and only a cluster with storage what storage.go lists.
var (
	kubernetesSet = set{name: "kubernetes", source: "pause"}
	kwokSet       = set{name: "kwok", packages: []string{"sigs.k8s.io/kwok/cmd/kwok"}}
)

// Build compiles the parts of Kubernetes that e2e/cluster/kubernetes/go.mod
// lists as tools, or finds them compiled, and returns their folder. The
// folder's name is a hash of all that goes in; it appears complete or not at all.
func Build(ctx context.Context, log io.Writer) (string, error) {
	return buildSet(ctx, log, kubernetesSet)
}

// list names the packages of a set.
func (s set) list(m moduleFile) []string {
	if len(s.packages) > 0 {
		return s.packages
	}
	others := slices.Concat(kwokSet.packages, sidecarSet.packages)
	return append(slices.DeleteFunc(m.packages(), func(pkg string) bool { return slices.Contains(others, pkg) }), pausePackage)
}

func buildSet(ctx context.Context, log io.Writer, s set) (string, error) {
	source, err := kubernetesSource()
	if err != nil {
		return "", err
	}
	module, err := readModule(ctx, source)
	if err != nil {
		return "", err
	}
	cache, err := cacheRoot()
	if err != nil {
		return "", err
	}
	key, err := buildKey(source, module, s)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, s.name+"-"+key)
	if isFolder(dir) {
		return dir, nil
	}
	p := newProgress("build", log)
	held, err := lock(ctx, dir+".lock", func() { p.say("another build of the same programs runs, waiting for it") })
	if err != nil {
		return "", err
	}
	defer func() { _ = held.Close() }()
	if isFolder(dir) {
		return dir, nil
	}
	return dir, buildAll(ctx, p, build{source: source, version: module.version(), dir: dir}, s, module)
}

// build is what is the same for all programs.
type build struct{ source, version, dir string }

func buildAll(ctx context.Context, p *progress, b build, s set, module moduleFile) error {
	target, packages := b.dir, s.list(module)
	b.dir += ".partial"
	if err := errors.Join(os.RemoveAll(b.dir), os.MkdirAll(b.dir, 0o755)); err != nil {
		return fmt.Errorf("prepare %s: %w", b.dir, err)
	}
	p.say("compiling %d programs for Kubernetes %s into %s; the first time takes minutes on 2 cores", len(packages), b.version, target)
	for i, pkg := range packages {
		if err := b.compile(ctx, p, pkg); err != nil {
			return err
		}
		p.say("%s ready, %d of %d", programName(pkg), i+1, len(packages))
	}
	if s.files != nil {
		if err := s.files(ctx, b.source, b.dir); err != nil {
			return err
		}
	}
	if err := os.Rename(b.dir, target); err != nil {
		return fmt.Errorf("publish build: %w", err)
	}
	return nil
}

func (b build) compile(ctx context.Context, p *progress, pkg string) error {
	var out bytes.Buffer
	args := append([]string{"build", "-o", filepath.Join(b.dir, programName(pkg))}, buildFlags(b.version)...)
	cmd := exec.CommandContext(ctx, "go", append(args, pkg)...)
	cmd.Dir, cmd.Env = b.source, buildEnv()
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the go command: %w", err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	heartbeat := time.NewTicker(15 * time.Second)
	defer heartbeat.Stop()
	for {
		select {
		case err := <-done:
			if err != nil {
				return fmt.Errorf("compile %s: %w; fix e2e/cluster/kubernetes/go.mod or the way to the module proxy:\n%s",
					programName(pkg), err, lastOf(out.String(), 15))
			}
			return nil
		case <-heartbeat.C:
			p.say("still compiling %s", programName(pkg))
		}
	}
}

func buildEnv() []string {
	return append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
}

// buildFlags sets the version in every program: the default cannot be parsed,
// and then "kubectl version" and skew checks fail.
func buildFlags(version string) []string {
	ldflags := "-s -w"
	number := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		ldflags += fmt.Sprintf(" -X %s.gitVersion=%s -X %s.gitMajor=%s -X %s.gitMinor=%s -X %s.gitTreeState=clean",
			pkg, version, pkg, number[0], pkg, number[1], pkg)
	}
	return []string{"-trimpath", "-buildvcs=false", "-mod=readonly", "-ldflags", ldflags}
}

// programName is the last element of a package path. etcd's main package is
// the root of its module, so its path does not end in its name.
func programName(pkg string) string {
	if strings.HasPrefix(pkg, "go.etcd.io/etcd/server/") {
		return "etcd"
	}
	return path.Base(pkg)
}

type moduleFile struct {
	Tool    []struct{ Path string }
	Require []struct{ Path, Version string }
}

func (m moduleFile) packages() []string {
	var all []string
	for _, tool := range m.Tool {
		all = append(all, tool.Path)
	}
	return all
}

func (m moduleFile) version() string {
	for _, r := range m.Require {
		if r.Path == "k8s.io/kubernetes" {
			return r.Version
		}
	}
	return "v0.0.0"
}

func readModule(ctx context.Context, source string) (moduleFile, error) {
	var m moduleFile
	cmd := exec.CommandContext(ctx, "go", "mod", "edit", "-json")
	cmd.Dir = source
	raw, err := cmd.Output()
	if err != nil {
		return m, fmt.Errorf("read %s/go.mod: %w", source, err)
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		return m, fmt.Errorf("read %s/go.mod: %w", source, err)
	}
	return m, nil
}

func buildKey(source string, m moduleFile, s set) (string, error) {
	hash := sha256.New()
	files := []string{"go.mod", "go.sum"}
	if s.source != "" {
		own, err := fs.Glob(os.DirFS(source), s.source+"/*.go")
		if err != nil {
			return "", fmt.Errorf("hash the build: %w", err)
		}
		files = append(files, own...)
	}
	for _, file := range files {
		raw, err := os.ReadFile(filepath.Join(source, file))
		if err != nil {
			return "", fmt.Errorf("hash the build: %w", err)
		}
		_, _ = fmt.Fprintf(hash, "%s %d\n%s", file, len(raw), raw)
	}
	_, _ = fmt.Fprintf(hash, "%q %s %s/%s", buildFlags(m.version()), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return hex.EncodeToString(hash.Sum(nil)[:16]), nil
}

// kubernetesSource finds the module next to this package's source, or, when
// the source moved since the compilation, above the working folder.
func kubernetesSource() (string, error) {
	_, file, _, _ := runtime.Caller(0)
	if dir := filepath.Join(filepath.Dir(file), "..", "kubernetes"); isFolder(dir) && filepath.IsAbs(dir) {
		return dir, nil
	}
	at, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find e2e/cluster/kubernetes: %w", err)
	}
	for ; ; at = filepath.Dir(at) {
		if dir := filepath.Join(at, "e2e", "cluster", "kubernetes"); isFolder(dir) {
			return dir, nil
		}
		if at == filepath.Dir(at) {
			return "", errors.New("find e2e/cluster/kubernetes: run this inside a clone of Slipway")
		}
	}
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
