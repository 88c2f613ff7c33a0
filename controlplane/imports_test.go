package main

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "slipway.dev/slipway/"

// concerns are the packages that only app joins (DESIGN 10.1).
var concerns = []string{"store", "schedule", "dispatch", "kube", "reconcile", "httpapi", "settle", "auth", "logs", "tell", "inline", "firing", "web"}

// mayImport lists, per package below the module, the packages of ours that it may import. What is not listed here is
// refused, so that a new arrow is a decision.
var mayImport = map[string][]string{
	"pkg/task":                        nil,
	"pkg/api":                         nil,
	"pkg/client":                      {"pkg/api", "pkg/task"},
	"pkg/retention":                   nil,
	"pkg/handler":                     {"pkg/task", "pkg/handler/internal/protocol"},
	"pkg/handler/internal/protocol":   {"pkg/task"},
	"migrations":                      nil,
	"controlplane/internal/loop":      nil,
	"controlplane/internal/failpoint": nil,
	"controlplane/internal/certs":     nil,
	"controlplane/internal/store":     {"pkg/task", "migrations", "controlplane/internal/failpoint", "controlplane/internal/loop"},
	"controlplane/internal/kube":      {"pkg/task", "controlplane/internal/loop"},
	"controlplane/internal/dispatch":  {"pkg/task", "controlplane/internal/loop", "controlplane/internal/failpoint"},
	"controlplane/internal/reconcile": {"pkg/task", "controlplane/internal/loop", "controlplane/internal/failpoint"},
	"controlplane/internal/dev":       {"controlplane/internal/app", "pkg/api", "e2e/postgres"},
	"controlplane/internal/inline":    {"pkg/task", "pkg/handler"},
	"controlplane/internal/schedule":  nil,
	"controlplane/internal/settle":    {"controlplane/internal/loop"},
	"controlplane/internal/firing":    {"pkg/task", "controlplane/internal/loop", "controlplane/internal/schedule"},
	"controlplane/internal/kinds":     {"pkg/task", "pkg/retention", "manifests/rights"},
	"controlplane/internal/auth":      {"pkg/task"},
	"controlplane/internal/tell":      {"pkg/task"},
	"controlplane/internal/logs":      {"pkg/task"},
	"controlplane/internal/web":       nil,
	"controlplane/internal/httpapi":   {"pkg/task", "pkg/api", "controlplane/internal/kinds", "controlplane/internal/auth"},

	"controlplane/internal/schedule/oracle": nil, // the second opinion must not know the first
}

// clusterOnly are the packages of the control plane that may name client-go, and the one that may name GORM and pgx.
var (
	clusterOnly  = []string{"controlplane/internal/kube", "controlplane/cmd/slipway/cluster", "runner/kinds/volume"}
	databaseOnly = []string{"controlplane/internal/store", "controlplane/internal/pgtest", "migrations"}
)

// privateServer are the packages that start a private PostgreSQL as the test rig does.
var privateServer = []string{"controlplane/internal/pgtest", "controlplane/internal/dev"}

func TestPackagesImportOnlyWhatTheTableAllows(t *testing.T) {
	root := ".."
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && file != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "node_modules") {
			return fs.SkipDir
		}
		if !d.IsDir() && strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			checkImports(t, root, file)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("walk the module: %v", err)
	}
}

func checkImports(t *testing.T, root, file string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
	if err != nil {
		t.Errorf("parse %s: %v", file, err)
		return
	}
	rel, err := filepath.Rel(root, filepath.Dir(file))
	if err != nil {
		t.Fatalf("place %s: %v", file, err)
	}
	pkg := filepath.ToSlash(rel)
	for _, spec := range parsed.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatalf("read an import of %s: %v", file, err)
		}
		if why := refused(pkg, imported); why != "" {
			t.Errorf("%s imports %s: %s", file, imported, why)
		}
	}
}

// refused says why pkg may not import imported; empty means that it may.
func refused(pkg, imported string) string {
	product := strings.HasPrefix(pkg, "controlplane/") || strings.HasPrefix(pkg, "pkg/") || strings.HasPrefix(pkg, "runner")
	if pkg == "controlplane/bench" { // the part of the bench that needs internal packages
		product = false
	}
	ours, own := strings.CutPrefix(imported, module)
	switch {
	case product && strings.HasPrefix(imported, "k8s.io/client-go") && !slices.Contains(clusterOnly, pkg):
		return "only kube talks to the cluster"
	case product && (strings.HasPrefix(imported, "gorm.io/") || strings.HasPrefix(imported, "github.com/jackc/")) && !slices.Contains(databaseOnly, pkg):
		return "only store talks to the database"
	case !own:
		return ""
	case product && strings.HasPrefix(ours, "e2e/") && !slices.Contains(privateServer, pkg):
		return "the product does not know its test rig"
	case strings.HasPrefix(pkg, "runner") && strings.HasPrefix(ours, "controlplane/"):
		return "the runner does not know the control plane"
	}
	allowed, listed := mayImport[pkg]
	if listed && !slices.Contains(allowed, ours) {
		return "not in the import table"
	}
	if slices.Contains(concerns, path.Base(pkg)) && !listed {
		return "a concern needs its row in the import table"
	}
	return ""
}

func TestTheImportTableRefusesWhatDesignForbids(t *testing.T) {
	for _, c := range []struct{ pkg, imported string }{
		{"controlplane/internal/dispatch", module + "controlplane/internal/store"},
		{"controlplane/internal/store", module + "controlplane/internal/kube"},
		{"controlplane/internal/httpapi", "gorm.io/gorm"},
		{"controlplane/internal/reconcile", "k8s.io/client-go/kubernetes"},
		{"pkg/task", module + "pkg/api"},
		{"runner/kinds/command", module + "controlplane/internal/store"},
		{"controlplane/internal/store", module + "e2e/postgres"},
	} {
		if refused(c.pkg, c.imported) == "" {
			t.Errorf("%s may import %s, and should not", c.pkg, c.imported)
		}
	}
}
