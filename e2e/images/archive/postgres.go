package archive

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"slipway.dev/slipway/e2e/packages"
	"slipway.dev/slipway/e2e/postgres"
)

// The user of the database server: postgres, as in the usual images of PostgreSQL.
const (
	postgresUser = 999
	postgresHome = "/var/lib/postgresql"
)

//go:embed postgres.sh
var postgresEntrypoint []byte

// postgresImage is the database server of Debian's package with the libraries it needs, and a shell, since initdb uses
// one.
func postgresImage(ctx context.Context, o Options) (recipe, error) {
	needs := []packages.Need{
		{File: "/usr/lib/postgresql/*/bin/postgres", Package: "postgresql"},
		{File: "/bin/busybox", Package: "busybox-static"},
		{File: "/usr/share/zoneinfo/UTC", Package: "tzdata"},
	}
	if err := packages.Ensure(ctx, o.Log, needs...); err != nil {
		return recipe{}, err
	}
	bin, err := postgres.Binaries()
	if err != nil {
		return recipe{}, err
	}
	files, err := serverFiles(ctx, bin)
	if err != nil {
		return recipe{}, err
	}
	shell, err := busybox(ctx)
	if err != nil {
		return recipe{}, err
	}
	base := slices.Concat(shell, accounts("postgres", postgresUser, postgresHome))
	base = append(base,
		folder("/tmp", os.ModeSticky|0o777, 0),
		folder(postgresHome, 0o700, postgresUser),
		folder("/var/run/postgresql", 0o775, postgresUser),
	)
	return recipe{
		layers: []layer{base, files, {{path: "/entrypoint", mode: 0o755, text: postgresEntrypoint}}},
		config: config{
			Entrypoint: []string{"/entrypoint"}, User: fmt.Sprintf("%d:%d", postgresUser, postgresUser), WorkingDir: "/", StopSignal: "SIGINT",
			Env: []string{"PATH=" + bin + ":/usr/sbin:/usr/bin:/sbin:/bin", "PGDATA=" + postgresHome + "/data", "LC_ALL=C.UTF-8"},
		},
	}, nil
}

// serverFiles takes programs, modules, shared files, zone data, one locale, and every library that they need.
func serverFiles(ctx context.Context, bin string) (layer, error) {
	home := filepath.Dir(bin)
	share := filepath.Join("/usr/share/postgresql", filepath.Base(home))
	var all layer
	for _, root := range []string{home, share, "/usr/share/zoneinfo", "/usr/lib/locale/C.utf8"} {
		tree, err := treeOf(root, dispensable)
		if err != nil {
			return nil, err
		}
		all = append(all, tree...)
	}
	var programs []string
	for _, f := range all {
		if f.from != "" && strings.HasPrefix(f.path, home) && (filepath.Dir(f.path) == bin || strings.HasSuffix(f.path, ".so")) {
			programs = append(programs, f.from)
		}
	}
	libraries, err := needed(ctx, programs)
	if err != nil {
		return nil, err
	}
	for _, path := range libraries {
		all = append(all, file{path: path, mode: 0o755, from: path})
	}
	return all, nil
}

// dispensable leaves out what a server does not need to run: the compiler of queries with its copy of LLVM, what
// extensions are built with, manuals, translations, and the zone data's second form.
func dispensable(path string) bool {
	switch name := filepath.Base(path); name {
	case "bitcode", "pgxs", "llvmjit.so", "llvmjit_types.bc", "man", "locale", "sepgsql.so", "right", "posix", "pg_upgrade", "pgbench":
		return true
	}
	return false
}

// needed lists the libraries that the dynamic linker would load for the programs.
func needed(ctx context.Context, programs []string) ([]string, error) {
	cmd := exec.CommandContext(ctx, "ldd", programs...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list the libraries of PostgreSQL: %w", err)
	}
	var paths []string
	for line := range bytes.Lines(out) {
		text := strings.TrimSpace(string(line))
		if strings.Contains(text, "not found") {
			return nil, fmt.Errorf("list the libraries of PostgreSQL: %s", text)
		}
		if _, after, found := strings.Cut(text, "=> "); found {
			text = after
		}
		// What is left is a path and an address; headings end with a colon, the kernel's own object has no path.
		path, address, _ := strings.Cut(text, " ")
		if strings.HasPrefix(path, "/") && strings.HasPrefix(address, "(") {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths), nil
}
