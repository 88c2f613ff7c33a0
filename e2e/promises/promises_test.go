package promises

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const (
	root    = "../.."
	heading = "## What Slipway promises"
)

// link is a reference to a test: [words](path/to/file_test.go#TestName).
var link = regexp.MustCompile(`\]\(([^)#]+_test\.go)#(Test\w+)\)`)

func TestEveryPromiseOfTheReadmeIsProvedByATestThatRuns(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	promises := sentences(string(readme))
	if len(promises) < 12 {
		t.Errorf("%d promises below %q", len(promises), heading)
	}
	for _, promise := range promises {
		links := link.FindAllStringSubmatch(promise, -1)
		if len(links) == 0 {
			t.Errorf("no test proves: %s", promise)
		}
		for _, l := range links {
			if fault := faultOf(filepath.Join(root, l[1]), l[2]); fault != "" {
				t.Errorf("%s\n  in: %s", fault, promise)
			}
		}
	}
}

// sentences are the list items and paragraphs below the heading.
func sentences(readme string) []string {
	_, section, _ := strings.Cut(readme, heading+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var all []string
	fresh := true
	for line := range strings.Lines(section) {
		item, isItem := strings.CutPrefix(line, "- ")
		switch {
		case strings.TrimSpace(line) == "":
			fresh = true
			continue
		case isItem || fresh:
			all = append(all, strings.TrimSpace(item))
		default:
			all[len(all)-1] += " " + strings.TrimSpace(line)
		}
		fresh = false
	}
	return all
}

// faultOf says what is wrong with a link to a test: no such file, no such function, or one that skips itself.
func faultOf(path, name string) string {
	parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		return err.Error()
	}
	for _, d := range parsed.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Name.Name != name || f.Recv != nil {
			continue
		}
		if skips(f) {
			return name + " in " + path + " skips itself"
		}
		return ""
	}
	return "there is no " + name + " in " + path
}

func skips(f *ast.FuncDecl) bool {
	found := false
	ast.Inspect(f.Body, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			s, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if _, plain := s.X.(*ast.Ident); plain && strings.HasPrefix(s.Sel.Name, "Skip") { // of a field of something it is another's
				found = true
			}
		}
		return true
	})
	return found
}

func TestALinkThatProvesNothingIsFound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x_test.go")
	body := "package x\n\nfunc TestRuns(t *testing.T) {}\n\nfunc TestSkips(t *testing.T) {\n\tif true {\n\t\tt.Skip()\n\t}\n}\n"
	if err := os.WriteFile(path, []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, sound := range map[string]bool{"TestRuns": true, "TestSkips": false, "TestIsNotThere": false} {
		if fault := faultOf(path, name); (fault == "") != sound {
			t.Errorf("%s: %q", name, fault)
		}
	}
	if faultOf(path+".gone", "TestRuns") == "" {
		t.Error("a file that is not there was taken")
	}
}
