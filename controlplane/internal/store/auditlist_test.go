package store_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"slipway.dev/slipway/controlplane/internal/store"
)

// audited walks all pages of a filter and names what is there, newest first.
func (d *database) audited(f store.AuditFilter) string {
	d.t.Helper()
	var all []string
	for f.Limit = 2; ; {
		page, err := d.Audit(d.t.Context(), f)
		if err != nil {
			d.t.Fatal(err)
		}
		for _, e := range page.Entries {
			all = append(all, e.Verb+" "+e.Namespace)
		}
		if page.Next == "" {
			return strings.Join(all, ", ")
		}
		f.Cursor = page.Next
	}
}

func TestTheAuditIsFilteredAndPagedAndKeepsNamespacesApart(t *testing.T) {
	d := newDatabase(t)
	ctx := t.Context()
	in := func(namespace string) store.Item {
		it := item("")
		it.Task.Namespace = namespace
		return it
	}
	out, err := d.Enqueue(ctx, store.Batch{Caller: "ada", Items: []store.Item{in("shop"), in("bank"), in("shop")}})
	if err != nil {
		t.Fatal(err)
	}
	one := d.one(in("shop"))
	from, err := d.Now(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Hold(ctx, one.ID, "bob", ""); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Cancel(ctx, out[1].Task.ID, "bob", ""); err != nil {
		t.Fatal(err)
	}
	f, err := d.Freeze(ctx, store.Freeze{Namespace: "bank", Actor: "bob"}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Thaw(ctx, f.ID, "bob"); err != nil {
		t.Fatal(err)
	}
	if err := d.SwitchKind(ctx, store.KindSwitch{Kind: "volume.resize", Executor: "off", Actor: "ada", Reason: ""}); err != nil {
		t.Fatal(err)
	}
	for want, filters := range map[string][]store.AuditFilter{
		"switch , thaw bank, freeze bank, cancel bank, hold shop, create shop, batch bank, batch shop": {{}},
		"hold shop, create shop, batch shop":              {{Namespace: "shop"}},
		"thaw bank, freeze bank, cancel bank, batch bank": {{Namespace: "bank"}},
		"switch , batch bank, batch shop":                 {{Actor: "ada"}},
		"thaw bank, freeze bank, cancel bank, hold shop":  {{Actor: "bob"}, {Actor: "bob", After: from}},
		"cancel bank":                         {{Verb: "cancel"}, {Verb: "cancel", Namespace: "bank", Actor: "bob"}},
		"switch ":                             {{Resource: "kinds"}, {Resource: "kinds", Name: "volume.resize"}},
		"hold shop, create shop":              {{Name: one.ID}, {Resource: "tasks", Name: one.ID}},
		"create shop, batch bank, batch shop": {{Before: from}},
		"":                                    {{Namespace: "none"}, {Verb: "cancel", Namespace: "shop"}, {After: from, Before: from}},
		"switch , thaw bank, freeze bank, cancel bank, hold shop": {{After: from}},
	} {
		for _, f := range filters {
			if got := d.audited(f); got != want {
				t.Errorf("%+v: %s\nwant %s", f, got, want)
			}
		}
	}
	page, err := d.Audit(ctx, store.AuditFilter{Namespace: "shop", Verb: "batch"})
	if err != nil || len(page.Entries) != 1 {
		t.Fatalf("%+v %v", page, err)
	}
	after := string(page.Entries[0].After)
	for i, accepted := range out {
		if strings.Contains(after, accepted.Task.ID) != slices.Contains([]int{0, 2}, i) {
			t.Errorf("the batch as shop sees it: %s", after)
		}
	}
	if _, err := d.Audit(ctx, store.AuditFilter{Cursor: "x"}); err == nil {
		t.Error("a foreign cursor was taken")
	}
}
