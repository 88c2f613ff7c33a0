package web

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestDocsAreListedAndServedAsText(t *testing.T) {
	for path, want := range map[string]struct {
		status int
		text   string
	}{
		"/docs":                    {200, "/docs/missed-runs  After three hours off\n"},
		"/docs/missed-runs":        {200, "| `latest` (default) | `forbid` (default) | 12:00 |"},
		"/docs/missed-runs.md":     {404, "no such page"},
		"/docs/nothing":            {404, "no such page"},
		"/docs/..%2fdocs%2fsecret": {404, ""},
	} {
		w := httptest.NewRecorder()
		Docs().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		if w.Code != want.status || !strings.Contains(w.Body.String(), want.text) {
			t.Errorf("%s: %d %.200s", path, w.Code, w.Body)
		}
		if w.Code == 200 && w.Header().Get("Content-Type") != "text/plain; charset=utf-8" {
			t.Errorf("%s: %v", path, w.Header())
		}
	}
}
