// Package packages installs the Debian packages that the rig needs. It is the one place that knows how.
//
// Allowed imports: the standard library.
package packages

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// lockFile keeps two installers of this machine apart; apt's own lock refuses instead of waiting.
const lockFile = "/run/lock/slipway-packages"

// Need is a file that the rig uses, by path or by name in SearchPath, and the Debian package that brings it.
type Need struct{ File, Package string }

// SearchPath is where programs are looked for, also when the caller's PATH lacks the folders of an administrator.
const SearchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Find gives the path of a program of the system; name itself where it is not there.
func Find(name string) string {
	if strings.Contains(name, "/") {
		return name
	}
	for _, dir := range filepath.SplitList(SearchPath) {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path
		}
	}
	return name
}

// Ensure installs the packages of those needs whose file is missing, with one progress line each way, and starts no
// service that they bring. It does nothing, and asks nobody, when every file is there.
func Ensure(ctx context.Context, log io.Writer, needs ...Need) error {
	if len(missing(needs)) == 0 {
		return nil
	}
	unlock, err := lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	absent := missing(needs)
	if len(absent) == 0 {
		return nil
	}
	byHand := "install " + strings.Join(absent, ", ")
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("%s with this machine's package tool: it has no apt-get", byHand)
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("%s, or run this as root", byHand)
	}
	began := time.Now()
	fmt.Fprintf(log, "packages: installing %s\n", strings.Join(absent, " "))
	restore, err := forbidServices()
	if err != nil {
		return err
	}
	defer restore()
	for _, args := range [][]string{{"update"}, append([]string{"install", "--yes", "--no-install-recommends"}, absent...)} {
		if err := apt(ctx, args...); err != nil {
			return err
		}
	}
	if absent := missing(needs); len(absent) > 0 {
		return fmt.Errorf("install packages: %s did not bring the files that are needed", strings.Join(absent, ", "))
	}
	fmt.Fprintf(log, "packages: installed (%.1fs)\n", time.Since(began).Seconds())
	return nil
}

// missing names the packages of needs whose file is not there; a file may be given as a pattern.
func missing(needs []Need) []string {
	var absent []string
	for _, n := range needs {
		path := Find(n.File)
		found, err := filepath.Glob(path)
		there := err == nil && len(found) > 0 && filepath.IsAbs(path)
		if !there && !slices.Contains(absent, n.Package) {
			absent = append(absent, n.Package)
		}
	}
	return absent
}

func apt(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "apt-get", append([]string{"-qq", "-o", "DPkg::Lock::Timeout=120"}, args...)...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		return fmt.Errorf("run apt-get %s: %w; its last lines:\n%s", args[0], err, strings.Join(lines[max(0, len(lines)-10):], "\n"))
	}
	return nil
}

// forbidServices keeps package scripts from starting daemons and from making a database cluster, and gives back what
// was there before.
func forbidServices() (restore func(), err error) {
	var undo []func()
	restore = func() {
		for _, f := range undo {
			f()
		}
	}
	for _, f := range []struct {
		path, text string
		mode       os.FileMode
	}{
		{"/usr/sbin/policy-rc.d", "#!/bin/sh\nexit 101\n", 0o755},
		{"/etc/postgresql-common/createcluster.conf", "create_main_cluster = false\n", 0o644},
	} {
		if _, err := os.Stat(f.path); err == nil {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(f.path), 0o755); err != nil {
			restore()
			return nil, fmt.Errorf("make the folder of %s: %w", f.path, err)
		}
		if err := os.WriteFile(f.path, []byte(f.text), f.mode); err != nil {
			restore()
			return nil, fmt.Errorf("write %s: %w", f.path, err)
		}
		undo = append(undo, func() { _ = os.Remove(f.path) }) // a leftover only keeps services from starting
	}
	return restore, nil
}

func lock(ctx context.Context) (unlock func(), err error) {
	f, err := os.OpenFile(lockFile, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", lockFile, err)
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		select {
		case <-ctx.Done():
			_ = f.Close()
			return nil, fmt.Errorf("wait for another installer: %w", ctx.Err())
		case <-time.After(200 * time.Millisecond):
		}
	}
}
