package local

import (
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

// packages is all that profile Node needs from the distribution: a file, by
// path or by name in the search path, and the Debian package that brings it.
var packages = []struct{ file, name string }{
	{"containerd", "containerd"},
	{"containerd-shim-runc-v2", "containerd"},
	{"ctr", "containerd"},
	{"runc", "runc"},
	{"/usr/lib/cni/ptp", "containernetworking-plugins"},
	{"/usr/lib/cni/host-local", "containernetworking-plugins"},
	{"nft", "nftables"},
	{"ip", "iproute2"},
	{"unshare", "util-linux"},
	{"nsenter", "util-linux"},
	{"mount", "mount"},
	{"losetup", "mount"},
	{"mkfs.ext4", "e2fsprogs"},
}

func missingPackages() []string {
	var missing []string
	for _, p := range packages {
		if _, err := os.Stat(tool(p.file)); err != nil && !slices.Contains(missing, p.name) {
			missing = append(missing, p.name)
		}
	}
	return missing
}

// installPackages installs what is missing and starts no service.
func installPackages(ctx context.Context, p *progress) error {
	missing := missingPackages()
	if len(missing) == 0 {
		return nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("profile node needs %s: install them with this machine's package tool", strings.Join(missing, ", "))
	}
	allow, err := forbidServices()
	if err != nil {
		return err
	}
	defer allow()
	p.say("installing Debian packages %s", strings.Join(missing, ", "))
	install := append([]string{"install", "--yes", "--no-install-recommends"}, missing...)
	for _, args := range [][]string{{"update"}, install} {
		cmd := exec.CommandContext(ctx, "apt-get", append([]string{"-qq", "-o", "DPkg::Lock::Timeout=120"}, args...)...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("install packages: apt-get %s: %w; install %s by hand:\n%s",
				args[0], err, strings.Join(missing, ", "), lastOf(string(out), 10))
		}
	}
	if missing := missingPackages(); len(missing) > 0 {
		return fmt.Errorf("install packages: %s did not bring what is needed, see local/packages.go", strings.Join(missing, ", "))
	}
	p.say("packages installed")
	return nil
}

// servicePolicy is asked by Debian's packages whether they may start services.
const servicePolicy = "/usr/sbin/policy-rc.d"

// forbidServices puts a "no" there, unless the machine has a policy of its own.
func forbidServices() (allow func(), err error) {
	const ours = "#!/bin/sh\n# Slipway's local cluster installs packages; remove this file if none is being installed.\nexit 101\n"
	if raw, err := os.ReadFile(servicePolicy); err == nil && string(raw) != ours {
		return func() {}, nil
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("keep services from being started: %w", err)
	}
	if err := os.WriteFile(servicePolicy, []byte(ours), 0o755); err != nil {
		return nil, fmt.Errorf("keep services from being started: %w", err)
	}
	return func() { _ = os.Remove(servicePolicy) }, nil
}

// tool finds a program of the system also when the caller's PATH lacks the
// folders of an administrator.
func tool(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	for _, dir := range filepath.SplitList(searchPath) {
		if path := filepath.Join(dir, name); isFile(path) {
			return path
		}
	}
	return name
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
