package store_test

import (
	"fmt"
	"testing"

	"slipway.dev/slipway/controlplane/internal/store"
	"slipway.dev/slipway/pkg/task"
)

func TestListsAreFilteredAndPagedNewestFirst(t *testing.T) {
	d := newDatabase(t)
	for n := range 12 {
		it := item(fmt.Sprintf("volume:ns/%d", n%2))
		it.Task.Name, it.Task.Namespace = fmt.Sprint(n), fmt.Sprint("ns-", n%3)
		it.Task.Labels = map[string]string{"parity": fmt.Sprint(n % 2), "all": "yes"}
		d.one(it)
	}
	parent := d.one(composite("branch:ns/a", item("volume:ns/0")))
	d.finish(d.claimOne(), success)
	count := func(f store.ListFilter) (n int) {
		t.Helper()
		last := ""
		for f.Limit = 5; ; {
			page, err := d.Tasks(t.Context(), f)
			if err != nil {
				t.Fatal(err)
			}
			for _, got := range page.Tasks {
				at := got.CreatedAt.Format("2006-01-02T15:04:05.000000") + fmt.Sprintf("%09d", got.Key)
				if last != "" && at >= last {
					t.Fatalf("%+v: out of order", f)
				}
				last = at
				n++
			}
			if page.Next == "" {
				return n
			}
			f.Cursor = page.Next
		}
	}
	now, err := d.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for want, filters := range map[int][]store.ListFilter{
		14: {{}, {CreatedBefore: now}},
		12: {{Labels: map[string]string{"all": "yes"}}, {Kind: "volume.resize", Labels: map[string]string{"all": "yes"}}},
		13: {{State: task.Queued}, {Queue: "default", State: task.Queued}},
		8:  {{Namespaces: []string{"ns-0", "ns-1"}}},
		7:  {{Lane: "volume:ns/0"}},
		6:  {{Labels: map[string]string{"all": "yes", "parity": "1"}}},
		4:  {{Namespaces: []string{"ns-2"}}},
		1:  {{State: task.Succeeded}, {Parent: parent.ID}, {Kind: "branch.resize"}},
		0:  {{Namespaces: []string{}}, {Kind: "no.such"}, {CreatedAfter: now}, {Parent: "no id"}},
	} {
		for _, f := range filters {
			if got := count(f); got != want {
				t.Errorf("%+v: %d tasks, want %d", f, got, want)
			}
		}
	}
	if _, err := d.Tasks(t.Context(), store.ListFilter{Cursor: "x"}); err == nil {
		t.Error("a foreign cursor was taken")
	}
}
