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
	"strings"
	"syscall"
	"time"
)

// lockFile keeps two installers of this machine apart; apt's own lock refuses instead of waiting.
const lockFile = "/run/lock/slipway-packages"

// Ensure installs those of names that are missing, with one progress line each way, and starts no service that they
// bring. It does nothing, and asks nobody, when all are there.
func Ensure(ctx context.Context, log io.Writer, names ...string) error {
	if len(missing(ctx, names)) == 0 {
		return nil
	}
	unlock, err := lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	absent := missing(ctx, names)
	if len(absent) == 0 {
		return nil
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("install %s: run as root, or install them with your system's package manager", strings.Join(absent, ", "))
	}
	began := time.Now()
	fmt.Fprintf(log, "packages: installing %s\n", strings.Join(absent, " "))
	if err := apt(ctx, "update", "-q"); err != nil {
		return err
	}
	restore, err := forbidServices()
	if err != nil {
		return err
	}
	defer restore()
	if err := apt(ctx, append([]string{"install", "-q", "-y", "--no-install-recommends"}, absent...)...); err != nil {
		return err
	}
	fmt.Fprintf(log, "packages: installed (%.1fs)\n", time.Since(began).Seconds())
	return nil
}

// missing asks dpkg which of names are not installed.
func missing(ctx context.Context, names []string) []string {
	var absent []string
	for _, name := range names {
		out, err := exec.CommandContext(ctx, "dpkg-query", "-W", "-f", "${db:Status-Status}", name).Output()
		if err != nil || string(out) != "installed" {
			absent = append(absent, name)
		}
	}
	return absent
}

func apt(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "apt-get", args...)
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
