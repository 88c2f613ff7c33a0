package httpapi

import (
	"strings"
	"testing"

	"slipway.dev/slipway/pkg/api"
)

func TestTheAuditOfANamespaceTakesTheRightThereAndOfAllTheRightEverywhere(t *testing.T) {
	for path, want := range map[string]int{
		"?namespace=shop": 200, "?namespace=bank": 403, "": 403, "?actor=ada": 403, "?namespace=": 400, "?who=ada": 400,
		"?namespace=shop&actor=ada&verb=cancel&resource=tasks&name=x&created_after=2026-11-30T10:00:00Z&created_before=2026-11-30T11:00:00Z&limit=7&cursor=abc": 200,
	} {
		r := newRig(t)
		w := r.send(request{method: "GET", path: "/v1/audit" + path, token: "auditor"})
		if want != 200 {
			r.problem(w, want)
			if len(r.audits) > 0 {
				t.Errorf("%s: was read all the same", path)
			}
			continue
		}
		page := decode[api.AuditPage](t, w)
		if w.Code != 200 || len(page.Items) != 1 || page.Items[0].Actor != "ada" || string(page.Items[0].After) != `{"state":"running"}` || page.Next != "more" {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
		if f := r.audits[0]; f.Namespace != "shop" || strings.Contains(path, "actor") &&
			(f.Actor != "ada" || f.Verb != "cancel" || f.Resource != "tasks" || f.Name != "x" || f.Limit != 7 || f.Cursor != "abc" || !f.Before.After(f.After)) {
			t.Errorf("%s: asked for %+v", path, f)
		}
	}
	r := newRig(t)
	p := r.problem(r.send(request{method: "GET", path: "/v1/audit", token: "auditor"}), 403)
	if p.Detail != "not allowed to list audit.slipway.dev in all namespaces" {
		t.Errorf("detail %q", p.Detail)
	}
}
