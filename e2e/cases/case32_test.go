package cases

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"slipway.dev/slipway/e2e/cluster/local"
	"slipway.dev/slipway/e2e/rig"
	"slipway.dev/slipway/pkg/api"
)

// What a client types into a list never reaches SQL. Nothing is shrunk.
func TestCase32(t *testing.T) {
	replay(t, 32, "only what the document lists is sorted and filtered by, and pages are stable", func(t *testing.T) {
		r := rig.New(t, rig.Options{Profile: local.API})
		user, ns := r.User(t, r.Namespace()), r.Namespace()
		first := user.Submit(t, later(ns))
		typedIsRefused(t, user, ns)
		refusalsAreFlat(t, user, ns)
		for _, id := range []string{"1 OR 1=1", first.ID + "' OR '1'='1", first.ID + ";DROP TABLE slipway.tasks", "1", strings.ToUpper(first.ID), "(SELECT pg_sleep(5))"} {
			user.Must(t, http.MethodGet, "/v1/tasks/"+url.PathEscape(id), nil, http.StatusBadRequest)
		}
		pagesAreStable(t, user, ns)
		if got := user.Task(t, first.ID); got.ID != first.ID {
			t.Errorf("task %s is gone", first.ID)
		}
	})
}

// later is the submit of a Task that makes no Job while the case runs.
func later(namespace string) map[string]any {
	submit := rig.Command(namespace, "true")
	submit["delay"] = 3600
	return submit
}

// typedIsRefused sends what the report's clients sent, as sort and as every filter.
func typedIsRefused(t *testing.T, user *rig.User, ns string) {
	t.Helper()
	typed := []string{
		"created_at; DROP TABLE slipway.tasks", "(CASE WHEN (SELECT true) THEN created_at ELSE ended_at END)", "pg_sleep(5)",
		"no_such_column", "CREATED_AT", "Created_At DESC", "created_at,key", "created_at desc, (SELECT pg_sleep(5))", "1", "'", `"`, "\\",
		strings.Repeat("a", 10<<10),
	}
	for _, text := range typed {
		for _, name := range []string{"sort", "order", "order_by", "Sort", "sort[]", "offset", "page", "namespace", "kind", "queue", "state", "lane", "label", "created_after", "cursor", "limit"} {
			if (name == "kind" || name == "cursor") && !strings.ContainsAny(text, "; '\"\\(,") && len(text) < 40 || name == "queue" && text == "1" ||
				name == "namespace" && text == "1" || name == "limit" && text == "1" {
				continue // a fine value for a filter: it finds nothing, or one
			}
			list(t, user, ns, url.Values{name: {text}}, http.StatusBadRequest)
		}
		list(t, user, ns, url.Values{text: {"x"}}, http.StatusBadRequest)
	}
	for _, limit := range []string{"-1", "0", "501", "1000000000", "1e9", "99999999999999999999", "1.5", "", "0x10", "1;"} {
		list(t, user, ns, url.Values{"limit": {limit}}, http.StatusBadRequest)
	}
	for _, limit := range []string{"1", "500"} {
		list(t, user, ns, url.Values{"limit": {limit}}, http.StatusOK)
	}
	if page := list(t, user, ns, url.Values{"kind": {"CREATED_AT"}}, http.StatusOK); len(page.Items) != 0 {
		t.Errorf("a kind that is not there has %d tasks", len(page.Items))
	}
}

func list(t *testing.T, user *rig.User, ns string, query url.Values, status int) (page api.TaskPage) {
	t.Helper()
	if !query.Has("namespace") {
		query.Set("namespace", ns)
	}
	a := user.Must(t, http.MethodGet, "/v1/tasks?"+query.Encode(), nil, status)
	if len(a.Body) > 16<<10 && status != http.StatusOK {
		t.Errorf("a refusal has %d bytes", len(a.Body))
	}
	if status == http.StatusOK {
		if err := json.Unmarshal(a.Body, &page); err != nil {
			t.Fatal(err)
		}
	}
	return page
}

// refusalsAreFlat compares how long an expression takes that is true with one that is false, and with a sleep.
func refusalsAreFlat(t *testing.T, user *rig.User, ns string) {
	t.Helper()
	const rounds = 20
	median := func(sort string) time.Duration {
		var took []time.Duration
		for range rounds {
			began := time.Now()
			list(t, user, ns, url.Values{"sort": {sort}}, http.StatusBadRequest)
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		return took[rounds/2]
	}
	long := "(CASE WHEN (SELECT %s) THEN (SELECT count(*) FROM generate_series(1, 100000000)) ELSE 1 END)"
	yes, no, sleep := median(fmt.Sprintf(long, "true")), median(fmt.Sprintf(long, "false")), median("pg_sleep(5)")
	for name, took := range map[string]time.Duration{"true": yes, "sleep": sleep} {
		if took > 5*no+100*time.Millisecond {
			t.Errorf("%s took %v, false %v", name, took, no)
		}
	}
}

// pagesAreStable reads page by page while Tasks are being inserted: what was there before is seen once each.
func pagesAreStable(t *testing.T, user *rig.User, ns string) {
	t.Helper()
	const there = 60
	var batch []any
	for range there - 1 { // and the first one
		batch = append(batch, later(ns))
	}
	user.Must(t, http.MethodPost, "/v1/tasks:batch", map[string]any{"tasks": batch}, http.StatusCreated)
	ctx, stop := context.WithCancel(t.Context())
	inserted := make(chan int)
	go func() {
		n := 0
		for ctx.Err() == nil {
			if _, err := user.Do(ctx, http.MethodPost, "/v1/tasks", later(ns)); err == nil {
				n++
			}
		}
		inserted <- n
	}()
	seen, query := map[string]bool{}, url.Values{"limit": {"7"}}
	for {
		page := list(t, user, ns, query, http.StatusOK)
		for i, item := range page.Items {
			if seen[item.ID] {
				t.Errorf("task %s stands on two pages", item.ID)
			}
			seen[item.ID] = true
			if i > 0 && item.CreatedAt.After(page.Items[i-1].CreatedAt) {
				t.Errorf("task %s is newer than the one before it", item.ID)
			}
		}
		if page.Next == "" {
			break
		}
		query.Set("cursor", page.Next)
	}
	stop()
	if n := <-inserted; n == 0 {
		t.Error("nothing was inserted meanwhile")
	}
	if len(seen) < there {
		t.Errorf("%d tasks seen of %d that were there", len(seen), there)
	}
	if past := list(t, user, ns, query, http.StatusOK); past.Next != "" {
		t.Errorf("the last page, read again, has one behind it")
	}
	query.Set("created_before", "2000-01-01T00:00:00Z")
	if past := list(t, user, ns, query, http.StatusOK); len(past.Items) != 0 || past.Next != "" {
		t.Errorf("beyond the end there are %d tasks", len(past.Items))
	}
}
