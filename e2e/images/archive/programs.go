package archive

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"slipway.dev/slipway/e2e/packages"
)

// nonRoot is the user that Slipway's own programs run as.
const nonRoot = 65532

// certificates is where Debian keeps the certificate authorities that it trusts.
const certificates = "/etc/ssl/certs/ca-certificates.crt"

// controlplane is the one static program, with the certificate authorities for what it calls over TLS.
func controlplane(ctx context.Context, o Options) (recipe, error) {
	if err := packages.Ensure(ctx, o.Log, packages.Need{File: certificates, Package: "ca-certificates"}); err != nil {
		return recipe{}, err
	}
	program, err := compile(ctx, o, "controlplane")
	if err != nil {
		return recipe{}, err
	}
	base := append(accounts("slipway", nonRoot, "/"),
		file{path: certificates, mode: 0o644, from: certificates},
		folder("/tmp", os.ModeSticky|0o777, 0),
	)
	return recipe{
		layers: []layer{base, {{path: "/controlplane", mode: 0o755, text: program}}},
		config: config{Entrypoint: []string{"/controlplane"}, User: fmt.Sprintf("%d:%d", nonRoot, nonRoot), WorkingDir: "/"},
	}, nil
}

// runner is the static runner and busybox, so that a command has a shell and the usual tools.
func runner(ctx context.Context, o Options) (recipe, error) {
	needs := []packages.Need{{File: "/bin/busybox", Package: "busybox-static"}, {File: certificates, Package: "ca-certificates"}}
	if err := packages.Ensure(ctx, o.Log, needs...); err != nil {
		return recipe{}, err
	}
	program, err := compile(ctx, o, "runner")
	if err != nil {
		return recipe{}, err
	}
	base, err := busybox(ctx)
	if err != nil {
		return recipe{}, err
	}
	base = append(base, accounts("slipway", nonRoot, "/")...)
	base = append(base,
		file{path: certificates, mode: 0o644, from: certificates},
		folder("/tmp", os.ModeSticky|0o777, 0),
		folder("/slipway", 0o777, nonRoot),
	)
	return recipe{
		layers: []layer{base, {{path: "/slipway-runner", mode: 0o755, text: program}}},
		config: config{
			Entrypoint: []string{"/slipway-runner"}, User: fmt.Sprintf("%d:%d", nonRoot, nonRoot), WorkingDir: "/",
			Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		},
	}, nil
}

// compile builds a static program of this module, with the zone data of the Go distribution inside.
func compile(ctx context.Context, o Options, folder string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "slipway-image-")
	if err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // a leftover in the temporary folder harms nobody
	out := filepath.Join(dir, folder)
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-tags", "timetzdata",
		"-ldflags", "-s -w -X main.version="+o.Version, "-o", out, "./"+folder)
	cmd.Dir = o.Root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOFLAGS=")
	if text, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compile %s: %w\n%s", folder, err, bytes.TrimSpace(text))
	}
	program, err := os.ReadFile(out)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", folder, err)
	}
	return program, nil
}

// busybox takes Debian's static build and a link for each tool in it.
func busybox(ctx context.Context) (layer, error) {
	const path = "/bin/busybox"
	if err := mustBeStatic(path); err != nil {
		return nil, err
	}
	list, err := exec.CommandContext(ctx, path, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("list the tools of busybox: %w", err)
	}
	l := layer{{path: path, mode: 0o755, from: path}}
	for _, tool := range strings.Fields(string(list)) {
		if tool != "busybox" {
			l = append(l, file{path: "/bin/" + tool, mode: 0o777, link: "busybox"})
		}
	}
	return append(l, file{path: "/usr/bin/env", mode: 0o777, link: "/bin/busybox"}), nil
}

// mustBeStatic refuses a program that needs a dynamic linker: the image has none.
func mustBeStatic(path string) error {
	program, err := elf.Open(path)
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	defer func() { _ = program.Close() }() // only read
	for _, p := range program.Progs {
		if p.Type == elf.PT_INTERP {
			return fmt.Errorf("%s is not static; install the Debian package busybox-static in its place", path)
		}
	}
	return nil
}

// accounts names root and one user, for programs that look themselves up.
func accounts(name string, id int, home string) layer {
	return layer{
		{path: "/etc/passwd", mode: 0o644, text: fmt.Appendf(nil, "root:x:0:0:root:/:/sbin/nologin\n%s:x:%d:%d:%s:%s:/sbin/nologin\n", name, id, id, name, home)},
		{path: "/etc/group", mode: 0o644, text: fmt.Appendf(nil, "root:x:0:\n%s:x:%d:\n", name, id)},
		{path: "/etc/nsswitch.conf", mode: 0o644, text: []byte("passwd: files\ngroup: files\nhosts: files dns\n")},
	}
}
