package postgres

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"slipway.dev/slipway/e2e/packages"
)

// Needs is what a private server takes from the distribution.
var Needs = []packages.Need{{File: "/usr/lib/postgresql/*/bin/postgres", Package: "postgresql"}}

// ErrNotInstalled says that the host has no PostgreSQL server.
var ErrNotInstalled = errors.New("no PostgreSQL server found in PATH or /usr/lib/postgresql/*/bin")

// Binaries finds the folder that holds initdb and postgres: the newest packaged version, else the one in PATH.
func Binaries() (string, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if err != nil {
		return "", fmt.Errorf("look for PostgreSQL: %w", err)
	}
	if len(found) > 0 {
		slices.SortFunc(found, func(a, b string) int { return version(a) - version(b) })
		return filepath.Dir(found[len(found)-1]), nil
	}
	if path, err := exec.LookPath("postgres"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			return filepath.Dir(path), nil
		}
	}
	return "", ErrNotInstalled
}

// version reads the major version from a packaged path; 0 where there is none.
func version(path string) int {
	n, err := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
	if err != nil {
		return 0
	}
	return n
}

// account gives the user that the server runs as: ourselves, or an unprivileged one where we are root, since
// PostgreSQL refuses to run as root.
func account() (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, errUID := strconv.ParseUint(u.Uid, 10, 32)
		gid, errGID := strconv.ParseUint(u.Gid, 10, 32)
		if errUID == nil && errGID == nil {
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
		}
	}
	return nil, errors.New("running as root, and neither user postgres nor nobody exists")
}
