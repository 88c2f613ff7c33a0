package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

const root = "../.."

func TestEveryMutantAppliesAndNamesATestThatIsThere(t *testing.T) {
	all, err := load(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 12 {
		t.Errorf("%d mutants", len(all))
	}
	copied, err := copyTree(t.Context(), root)
	t.Cleanup(copied.remove)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		if err := copied.apply(t.Context(), m, "--check"); err != nil {
			t.Error(err)
		}
		if !hasTest(t, filepath.Join(root, m.Pkg), m.Test) {
			t.Errorf("%s: there is no %s in %s", m.Name, m.Test, m.Pkg)
		}
	}
}

func hasTest(t *testing.T, dir, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	declared := regexp.MustCompile(`(?m)^func ` + regexp.QuoteMeta(name) + `\(`)
	for _, file := range files {
		body, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if declared.Match(body) {
			return true
		}
	}
	return false
}

// small is a module with one rule and its test.
var small = map[string]string{
	"go.mod":       "module small\n\ngo 1.26\n",
	"rule.go":      "package small\n\nfunc rule() int { return 1 }\n\nfunc idle() int { return 1 }\n",
	"rule_test.go": "package small\n\nimport \"testing\"\n\nfunc TestRule(t *testing.T) {\n\tif rule() != 1 {\n\t\tt.Fatal()\n\t}\n\t_ = idle()\n}\n",
}

func TestAMutantIsCaughtEscapesOrDoesNotBuild(t *testing.T) {
	for word, change := range map[string]string{
		"caught":  "-func rule() int { return 1 }\n+func rule() int { return 2 }\n \n func idle() int { return 1 }\n",
		"escaped": " func rule() int { return 1 }\n \n-func idle() int { return 1 }\n+func idle() int { return 2 }\n",
		"broken":  "-func rule() int { return 1 }\n+func rule() int { return }\n \n func idle() int { return 1 }\n",
	} {
		copied := tree{t.TempDir()}
		m := mutant{Name: word, Pkg: ".", Test: "TestRule", Path: filepath.Join(t.TempDir(), "m.patch")}
		write(t, m.Path, "diff --git a/rule.go b/rule.go\n--- a/rule.go\n+++ b/rule.go\n@@ -3,3 +3,3 @@\n"+change)
		for name, body := range small {
			write(t, filepath.Join(copied.dir, name), body)
		}
		if got, why, err := try(t.Context(), copied, m); err != nil || got != word {
			t.Errorf("%s: %s %s %v", word, got, why, err)
		}
		if body, err := os.ReadFile(filepath.Join(copied.dir, "rule.go")); err != nil || string(body) != small["rule.go"] {
			t.Errorf("%s: the tree was not mended: %v", word, err)
		}
	}
}

func write(t *testing.T, path, body string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
}
