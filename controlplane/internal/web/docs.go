// Package web serves what people read in a browser: the pages of docs/, as text.
//
// Allowed imports: the standard library.
package web

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"time"
)

//go:embed docs/*.md
var pages embed.FS

// Docs serves the pages at /docs/NAME and their list at /docs. Everybody may read them.
func Docs() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /docs", list)
	mux.HandleFunc("GET /docs/{name}", func(w http.ResponseWriter, r *http.Request) {
		text, err := pages.ReadFile("docs/" + r.PathValue("name") + ".md")
		if err != nil {
			http.Error(w, "there is no such page; /docs lists them", http.StatusNotFound)
			return
		}
		plain(w, r, text)
	})
	return mux
}

func list(w http.ResponseWriter, r *http.Request) {
	names, err := fs.Glob(pages, "docs/*.md")
	if err != nil {
		panic(err) // the pattern is a constant
	}
	var text strings.Builder
	for _, name := range names {
		page, err := pages.ReadFile(name)
		if err != nil {
			panic(err) // embedded
		}
		title, _, _ := strings.Cut(strings.TrimPrefix(string(page), "# "), "\n")
		fmt.Fprintf(&text, "/%s  %s\n", strings.TrimSuffix(name, ".md"), title)
	}
	plain(w, r, []byte(text.String()))
}

func plain(w http.ResponseWriter, r *http.Request, text []byte) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(text))
}
