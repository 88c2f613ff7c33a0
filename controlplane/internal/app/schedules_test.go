package app

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"slipway.dev/slipway/controlplane/internal/firing"
	"slipway.dev/slipway/controlplane/internal/kinds"
	"slipway.dev/slipway/controlplane/internal/pgtest"
	"slipway.dev/slipway/controlplane/internal/store"
	"slipway.dev/slipway/pkg/api"
)

// clocked is a town whose database has the clock of the test.
type clocked struct {
	*town
	url string
}

func newClocked(t *testing.T, at string) clocked {
	t.Helper()
	url := pgtest.URL(t)
	c := clocked{url: url}
	c.town = townOver(t, pgtest.Open(t, store.Config{URL: url, Replica: "a"}), kinds.BuiltIn())
	c.sql(`CREATE TABLE slipway.test_clock (t timestamptz); INSERT INTO slipway.test_clock VALUES ('` + at + `');
		CREATE OR REPLACE FUNCTION slipway.now() RETURNS timestamptz LANGUAGE sql STABLE AS 'SELECT t FROM slipway.test_clock';
		CREATE OR REPLACE FUNCTION slipway.stamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS 'SELECT t FROM slipway.test_clock'`)
	return c
}

func (c clocked) sql(statement string) {
	c.Helper()
	if err := pgtest.Exec(c.Context(), c.url, statement); err != nil {
		c.Fatal(err)
	}
}

func (c clocked) to(at string) { c.sql("UPDATE slipway.test_clock SET t = '" + at + "'") }

func (c clocked) advance(d time.Duration) {
	c.sql(fmt.Sprintf("UPDATE slipway.test_clock SET t = t + interval '%d milliseconds'", d.Milliseconds()))
}

// fire makes one look as a Runner does.
func (w *town) fire() {
	w.Helper()
	due, err := w.times.Due(w.Context(), 1000)
	if err != nil {
		w.Fatal(err)
	}
	verdicts := firing.Verdicts{}
	for _, s := range due {
		verdict, err := w.times.Ask(w.Context(), s)
		if err != nil {
			w.Fatal(err)
		}
		verdicts[firing.Version{ID: s.ID, Revision: s.Revision}] = verdict
	}
	if _, err := w.times.Fire(w.Context(), 1000, verdicts); err != nil {
		w.Fatal(err)
	}
}

const nightly = `{"namespace":"shop","name":"nightly","cron":"0 3 * * *","zone":"Europe/Berlin","template":{"kind":"command.run","params":{"command":["true"]}}}`

func scheduleOf(name, rule string) string {
	return `{"namespace":"shop","name":"` + name + `",` + rule + `,"template":{"kind":"command.run","params":{"command":["true"]}}}`
}

func (w *town) made(body string) api.Schedule {
	w.Helper()
	return must[api.Schedule](w, w.send("ada", "POST", "/v1/schedules", body), 201)
}

func (w *town) ledger(s api.Schedule) []api.Fire {
	w.Helper()
	var all []api.Fire
	for next := ""; ; {
		page := must[api.FirePage](w, w.send("ada", "GET", "/v1/schedules/"+s.ID+"/fires?limit=500"+next, ""), 200)
		all = append(all, page.Items...)
		if page.Next == "" {
			return all
		}
		next = "&cursor=" + page.Next
	}
}

func outcomes(all []api.Fire) map[string]int {
	n := map[string]int{}
	for _, f := range all {
		n[f.Outcome]++
	}
	return n
}

// succeed ends all live Tasks of schedules.
func (c clocked) succeed() {
	c.sql("UPDATE slipway.tasks SET state = 'succeeded', ended_at = slipway.now() WHERE schedule IS NOT NULL AND state IN ('queued', 'running')")
}

func TestAScheduleIsMadeChangedRunAndDeletedOverARealStore(t *testing.T) {
	c := newClocked(t, "2026-06-01T00:00:00Z")
	a := c.send("ada", "POST", "/v1/schedules", nightly)
	made := must[api.Schedule](c.town, a, 201)
	here := "/v1/schedules/" + made.ID
	if a.Header().Get("ETag") != `"1"` || a.Header().Get("Location") != here {
		t.Errorf("headers %v", a.Header())
	}
	if want := time.Date(2026, 6, 1, 1, 0, 0, 0, time.UTC); !made.NextAt.Equal(want) || !made.Enabled || !made.Healthy || made.Missed != "latest" || made.Overlap != "forbid" {
		t.Errorf("made: %+v", made)
	}
	p := must[api.SchedulePreview](c.town, c.send("ada", "GET", here+"/preview?n=3", ""), 200)
	if len(p.Items) != 3 || !p.Items[0].At.Equal(made.NextAt) || !strings.Contains(p.Items[0].Nominal, "2026-06-01T03:00:00+02:00 Europe/Berlin") || p.Explained == "" {
		t.Errorf("preview: %+v", p)
	}
	must[api.Problem](c.town, c.send("ada", "POST", "/v1/schedules", nightly), 409)
	c.to("2026-06-01T01:00:00Z")
	c.fire()
	fires := c.ledger(made)
	if len(fires) != 1 || fires[0].Outcome != "fired" || fires[0].Task == "" || !fires[0].At.Equal(made.NextAt) || !strings.Contains(fires[0].Nominal, "03:00:00+02:00") {
		t.Fatalf("ledger: %+v", fires)
	}
	if task := must[api.Task](c.town, c.send("ada", "GET", "/v1/tasks/"+fires[0].Task, ""), 200); task.CreatedBy != "schedule:shop/nightly" || task.Kind != "command.run" {
		t.Errorf("its task: %+v", task)
	}
	if p := must[api.Problem](c.town, c.send("ada", "POST", here+"/run", ""), 409); p.Task != fires[0].Task {
		t.Errorf("a run beside a live one: %+v", p)
	}
	c.succeed()
	c.advance(time.Minute)
	ran := must[api.Fire](c.town, c.send("ada", "POST", here+"/run", ""), 201)
	if ran.Source != "manual" || ran.Task == "" || ran.Outcome != "fired" {
		t.Errorf("run: %+v", ran)
	}
	if all := outcomes(c.ledger(made)); all["fired"] != 2 || all["forbidden"] != 1 {
		t.Errorf("the ledger has %v", all)
	}
	paused := must[api.Schedule](c.town, c.send("ada", "POST", here+"/pause", ""), 200)
	if paused.Enabled || !paused.NextAt.IsZero() || paused.Revision != 2 {
		t.Errorf("paused: %+v", paused)
	}
	c.advance(72 * time.Hour)
	c.fire()
	resumed := must[api.Schedule](c.town, c.send("bob", "POST", here+"/resume", ""), 200)
	c.fire()
	if all := outcomes(c.ledger(made)); all["fired"] != 2 || len(all) != 2 || resumed.ChangedBy != "bob" {
		t.Errorf("after three days off the ledger has %v", all)
	}
	page := must[api.SchedulePage](c.town, c.send("ada", "GET", "/v1/schedules?namespace=shop&enabled=true&name=nightly", ""), 200)
	if len(page.Items) != 1 || page.Items[0].LastSuccessAt.IsZero() || page.Items[0].LastTask != ran.Task {
		t.Errorf("list: %+v", page)
	}
	must[api.Problem](c.town, c.send("ada", "DELETE", here, "", "If-Match", `"1"`), 412)
	must[struct{}](c.town, c.send("ada", "DELETE", here, "", "If-Match", `"3"`), 204)
	must[api.Problem](c.town, c.send("ada", "GET", here, ""), 404)
	audit := must[api.AuditPage](c.town, c.send("ada", "GET", "/v1/audit?resource=schedules", ""), 200)
	var verbs []string
	for _, e := range audit.Items {
		verbs = append(verbs, e.Actor+" "+e.Verb)
	}
	if want := []string{"ada delete", "bob resume", "ada pause", "ada run", "ada run", "ada create"}; !slices.Equal(verbs, want) {
		t.Errorf("the audit tells %v", verbs)
	}
}

// Case 34: absent, null and zero are three things.
func TestAbsentNullAndZeroAreThreeThingsInAPatch(t *testing.T) {
	c := newClocked(t, "2026-06-01T00:00:00Z")
	s := c.made(`{"namespace":"shop","name":"a","every":"1h","missed":"all","up_to":5,"spread":30,"description":"text","owner":"team",
		"labels":{"a":"1","b":"2"},"expect_success_within":60,"template":{"kind":"command.run","name":"n","params":{"command":["true"]},"spec":{"retry":{"attempts":3}}}}`)
	here := "/v1/schedules/" + s.ID
	patch := func(body string) api.Schedule {
		t.Helper()
		return must[api.Schedule](c.town, c.send("ada", "PATCH", here, body), 200)
	}
	if now := patch(`{}`); now.Revision != 1 || now.Description != "text" || now.UpTo != 5 {
		t.Errorf("an empty patch: %+v", now)
	}
	if now := patch(`{"enabled":false,"description":"","spread":0,"expect_success_within":0}`); now.Enabled || now.Description != "" || now.Spread != 0 || now.ExpectSuccessWithin != 0 || now.Owner != "team" {
		t.Errorf("zeroes: %+v", now)
	}
	c.advance(3 * time.Hour)
	c.fire()
	if all := c.ledger(s); len(all) != 0 {
		t.Errorf("it is disabled, and the ledger has %+v", all)
	}
	if now := patch(`{"enabled":null,"missed":null,"up_to":null,"owner":null,"labels":{"a":null,"c":"3"},"template":{"name":null,"spec":{"retry":{"attempts":1}}}}`); !now.Enabled || now.Missed != "latest" ||
		now.UpTo != 0 || now.Owner != "" || fmt.Sprint(now.Labels) != "map[b:2 c:3]" || now.Template.Name != "" || *now.Template.Spec.Retry.Attempts != 1 || now.Template.Kind != "command.run" {
		t.Errorf("nulls: %+v", now)
	}
	if now := patch(`{"every":null,"cron":"*/5 * * * *","zone":"Asia/Tokyo"}`); now.Every != "" || now.Cron != "*/5 * * * *" || now.Zone != "Asia/Tokyo" {
		t.Errorf("another rule: %+v", now)
	}
	for body, pointer := range map[string]string{
		`{"cron":null}`: "/cron", `{"every":"1h"}`: "/every", `{"zone":"Mars/Olympus"}`: "/zone", `{"colour":1}`: "/colour", `{"template":null}`: "/template",
		`{"template":{"kind":null}}`: "/template/kind", `{"enabled":"yes"}`: "/enabled", `{"overlap":"never"}`: "/overlap", `{"calendars":["gone"]}`: "/calendars",
	} {
		if p := must[api.Problem](c.town, c.send("ada", "PATCH", here, body), 400); len(p.Errors) == 0 || p.Errors[0].Pointer != pointer {
			t.Errorf("%s: %+v", body, p)
		}
	}
	must[api.Problem](c.town, c.send("ada", "PATCH", here, `{"template":{"params":{"command":[]}}}`), 422)
	must[api.Problem](c.town, c.send("ada", "PATCH", here, `{"owner":"x"}`, "If-Match", `"1"`), 412)
	must[api.Problem](c.town, c.send("ada", "PATCH", here, `{"owner":"x"}`, "If-Match", `W/"1"`), 400)
}

// Case 34: different fields at once, two hundred times, while the firing writes the row.
func TestConcurrentPatchesLoseNoField(t *testing.T) {
	w := newTown(t)
	s := w.made(scheduleOf("a", `"every":"1s","overlap":"allow"`))
	runner := firing.New(firing.Config{Book: w.times, Rights: w.times, Wakes: w.store.ScheduleWakes(), Log: quiet, Poll: 10 * time.Millisecond})
	ctx, stop := context.WithCancel(t.Context())
	var running, patching sync.WaitGroup
	running.Go(func() { _ = runner.Run(ctx) })
	for _, field := range []string{"description", "owner"} {
		patching.Go(func() {
			for n := range 100 {
				if a := w.send("ada", "PATCH", "/v1/schedules/"+s.ID, fmt.Sprintf(`{"%s":"%d"}`, field, n)); a.Code != 200 {
					t.Errorf("%d %s", a.Code, a.Body)
				}
			}
		})
	}
	patching.Wait()
	for len(w.ledger(s)) < 2 && t.Context().Err() == nil {
		time.Sleep(50 * time.Millisecond)
	}
	stop()
	running.Wait()
	now := must[api.Schedule](w, w.send("ada", "GET", "/v1/schedules/"+s.ID, ""), 200)
	if now.Description != "99" || now.Owner != "99" || now.Revision != 201 || now.LastTask == "" {
		t.Errorf("%+v", now)
	}
}

// Case 18: expressions that parse elsewhere but can never work.
func TestWhatCanNeverFireIsRefusedByItsField(t *testing.T) {
	c := newClocked(t, "2026-06-01T00:00:00Z")
	for rule, pointer := range map[string]string{
		`"cron":"TZ=0"`: "/cron", `"cron":"TZ=UTC"`: "/cron", `"cron":"TZ="`: "/cron", `"cron":"0 0 30 2 *"`: "/cron", `"cron":"0 0 31 4 *"`: "/cron",
		`"cron":"@every 0s"`: "/cron", `"cron":"@every -5s"`: "/cron", `"cron":"*/60 * * * *"`: "/cron", `"cron":"TZ=Local 0 0 * * *"`: "/cron",
		`"cron":"0 0 * * * *"`: "/cron", `"cron":"` + strings.Repeat("1,", 5000) + `1 * * * *"`: "/cron", `"cron":"0 0 \u0007 * *"`: "/cron",
		`"every":"0s"`: "/every", `"every":"-5s"`: "/every", `"every":"1ns"`: "/every", `"every":"1500ms"`: "/every", `"every":"400d"`: "/every",
		`"cron":"0 3 * * *","zone":"Mars/Olympus"`: "/zone", `"cron":"0 3 * * *","zone":"Local"`: "/zone", `"cron":"0 3 * * *","zone":"../etc/passwd"`: "/zone",
		`"cron":"0 3 * * *","every":"1h"`: "/every", `"description":"no rule"`: "/cron",
		`"cron":"0 3 * * *","missed":"all"`: "/up_to", `"cron":"0 3 * * *","missed":"within"`: "/within",
		`"cron":"0 3 * * *","blackouts":[{"from":"2026-01-02T00:00:00Z"}]`: "/blackouts/0/to", `"cron":"0 3 * * *","calendars":["gone"]`: "/calendars",
	} {
		a := c.send("ada", "POST", "/v1/schedules", scheduleOf("bad", rule))
		var p api.Problem
		if err := json.Unmarshal(a.Body.Bytes(), &p); err != nil || a.Code != 400 || len(p.Errors) == 0 || p.Errors[0].Pointer != pointer {
			t.Errorf("%.60s: %d %+v, want %s", rule, a.Code, p, pointer)
		}
	}
	a := c.send("ada", "POST", "/v1/schedules", scheduleOf("nul", `"cron":"0 \u0000 * * *"`))
	must[api.Problem](c.town, a, 400)
	for i, rule := range []string{`"cron":"0 0 29 2 *"`, `"cron":"0 3 * * 7"`, `"cron":"@daily"`, `"every":"1s"`} {
		c.made(scheduleOf(fmt.Sprint("good", i), rule))
	}
}

func TestRowsBrokenBehindTheAPIsBackAreMarkedWhileTheGoodOnesFire(t *testing.T) {
	c := newClocked(t, "2026-06-01T00:00:30Z")
	var good []api.Schedule
	for i := range 20 {
		good = append(good, c.made(scheduleOf(fmt.Sprint("good", i), `"cron":"* * * * *"`)))
	}
	for name, columns := range map[string]string{
		"zone": `cron, zone) SELECT 'TZ=0', 'UTC'`, "never": `cron, zone) SELECT '0 0 30 2 *', 'UTC'`, "nowhere": `cron, zone) SELECT '* * * * *', 'Mars/Olympus'`,
		"nan": `every) SELECT 'NaN'`, "huge": `every) SELECT 1e300`, "zero": `every) SELECT 0`, "policy": `cron, missed, up_to) SELECT '* * * * *', 'all', -1`,
		"blackouts": `cron, blackouts) SELECT '* * * * *', '{"a": 1}'`, "labels": `cron, labels) SELECT '* * * * *', '[1]'`,
	} {
		c.sql(`INSERT INTO slipway.schedules (namespace, name, template, ` + strings.Replace(columns, "SELECT ", "SELECT 'shop', '"+name+"', '{}', ", 1))
	}
	c.advance(time.Minute)
	c.fire()
	page := must[api.SchedulePage](c.town, c.send("ada", "GET", "/v1/schedules?broken=true", ""), 200)
	if len(page.Items) != 9 {
		t.Errorf("%d are marked", len(page.Items))
	}
	for _, s := range page.Items {
		if s.Broken == "" || s.Healthy {
			t.Errorf("%s: %+v", s.Name, s)
		}
		if a := c.send("ada", "GET", "/v1/schedules/"+s.ID, ""); a.Code != 200 {
			t.Errorf("%s cannot be read: %d", s.Name, a.Code)
		}
	}
	for _, s := range good {
		if all := c.ledger(s); len(all) != 1 || all[0].Outcome != "fired" {
			t.Errorf("%s: %+v", s.Name, all)
		}
	}
	broken := page.Items[slices.IndexFunc(page.Items, func(s api.Schedule) bool { return s.Name == "labels" })]
	mended := must[api.Schedule](c.town, c.send("ada", "PATCH", "/v1/schedules/"+broken.ID,
		`{"labels":{},"template":{"kind":"command.run","params":{"command":["true"]}}}`), 200)
	if mended.Broken != "" || !mended.Healthy || mended.NextAt.IsZero() {
		t.Errorf("mended: %+v", mended)
	}
}

// Case 19: fourteen hours off, then ten restarts an hour apart, then a change during a stop, then a day disabled.
func TestAfterALongStopEachScheduleGoesOnByItsPolicy(t *testing.T) {
	c := newClocked(t, "2026-06-01T12:00:30Z")
	all := map[string]api.Schedule{}
	for name, rule := range map[string]string{"minute": `"cron":"* * * * *"`, "hour": `"cron":"0 * * * *"`, "night": `"cron":"0 3 * * *"`, "six": `"every":"6h"`} {
		all[name] = c.made(scheduleOf(name, rule))
	}
	tick := func(d time.Duration) {
		c.advance(d)
		c.fire()
		c.succeed()
	}
	tick(0)
	tick(14 * time.Hour) // to 02:00:30
	want := func(name string, fired, skipped int) {
		t.Helper()
		got := outcomes(c.ledger(all[name]))
		if got["fired"] != fired || got["skipped"] != skipped {
			t.Errorf("%s: %v, want %d fired and %d skipped", name, got, fired, skipped)
		}
	}
	want("minute", 1, 839)
	want("hour", 1, 13)
	want("night", 0, 0)
	want("six", 1, 1)
	for range 10 { // a restart forgets nothing: all that counts is in the database
		c.town = townOver(t, pgtest.Open(t, store.Config{URL: c.url, Replica: "next"}), kinds.BuiltIn())
		tick(time.Hour)
	}
	// 02:00:30 to 12:00:30; every 6 h is due at 06:00:30 and 12:00:30, as it was before the restarts.
	if got := outcomes(must[api.FirePage](c.town, c.send("ada", "GET", "/v1/schedules/"+all["minute"].ID+"/fires?outcome=fired", ""), 200).Items); got["fired"] != 11 {
		t.Errorf("minute: %v", got)
	}
	want("hour", 11, 13)
	want("night", 1, 0)
	want("six", 3, 1)
	c.advance(5 * time.Hour)
	now := must[api.Schedule](c.town, c.send("ada", "PATCH", "/v1/schedules/"+all["hour"].ID, `{"cron":"30 * * * *"}`), 200)
	c.fire()
	got := outcomes(c.ledger(all["hour"]))
	if got["fired"] != 11 || got["missed"] != 1 || got["skipped"] != 17 || now.NextAt.Minute() != 30 {
		t.Errorf("changed during a stop: %v, next at %v", got, now.NextAt)
	}
	must[api.Schedule](c.town, c.send("ada", "PATCH", "/v1/schedules/"+all["hour"].ID, `{"enabled":false}`), 200)
	tick(24 * time.Hour)
	must[api.Schedule](c.town, c.send("ada", "PATCH", "/v1/schedules/"+all["hour"].ID, `{"enabled":true}`), 200)
	c.fire()
	if after := outcomes(c.ledger(all["hour"])); fmt.Sprint(after) != fmt.Sprint(got) {
		t.Errorf("for time spent disabled: %v, before %v", after, got)
	}
	tick(time.Hour)
	want("hour", 12, 17)
}

// Case 17, by the database: preview, the stored next time and the fire agree over the spring change.
func TestPreviewNextAndFireAgreeOverTheSpringChange(t *testing.T) {
	c := newClocked(t, "2026-03-07T20:00:00Z")
	for name, rule := range map[string]string{"two": `"cron":"0 2 * * *"`, "half": `"cron":"30 2 * * *"`, "three": `"cron":"0 3 * * *"`, "quarter": `"cron":"*/15 2 * * *"`, "hourly": `"cron":"0 * * * *"`} {
		s := c.made(scheduleOf(name, rule+`,"zone":"America/Los_Angeles","overlap":"allow"`))
		p := must[api.SchedulePreview](c.town, c.send("ada", "GET", "/v1/schedules/"+s.ID+"/preview?n=60", ""), 200)
		var foreseen, fired []string
		for _, i := range p.Items {
			if i.At.Before(time.Date(2026, 3, 9, 20, 0, 0, 0, time.UTC)) {
				foreseen = append(foreseen, fmt.Sprint(i.At, i.Fires))
			}
		}
		for range 60 {
			now := must[api.Schedule](c.town, c.send("ada", "GET", "/v1/schedules/"+s.ID, ""), 200)
			if !now.NextAt.Before(time.Date(2026, 3, 9, 20, 0, 0, 0, time.UTC)) {
				break
			}
			c.to(now.NextAt.Format(time.RFC3339))
			c.fire()
		}
		for _, f := range slices.Backward(c.ledger(s)) {
			fired = append(fired, fmt.Sprint(f.At, f.Outcome == "fired"))
		}
		if !slices.Equal(foreseen, fired) {
			t.Errorf("%s: foreseen %v, fired %v", name, foreseen, fired)
		}
		c.to("2026-03-07T20:00:00Z")
	}
}

func TestAFireNeedsTheRightsOfWhoChangedTheScheduleLast(t *testing.T) {
	c := newClocked(t, "2026-06-01T00:00:30Z")
	s := c.made(scheduleOf("a", `"cron":"* * * * *"`))
	c.city.denied.Store("ada", true)
	time.Sleep(5 * time.Millisecond) // longer than answers are kept
	c.advance(time.Minute)
	c.fire()
	fires := must[api.FirePage](c.town, c.send("bob", "GET", "/v1/schedules/"+s.ID+"/fires", ""), 200).Items
	if len(fires) != 1 || fires[0].Outcome != "refused" || !strings.Contains(fires[0].Why, "ada") || !strings.Contains(fires[0].Why, "create tasks.slipway.dev in namespace shop") {
		t.Fatalf("%+v", fires)
	}
	if p := must[api.Problem](c.town, c.send("bob", "POST", "/v1/schedules/"+s.ID+"/run", ""), 409); !strings.Contains(p.Detail, "ada") {
		t.Errorf("by hand: %+v", p)
	}
	must[api.Schedule](c.town, c.send("bob", "PATCH", "/v1/schedules/"+s.ID, `{"owner":"bob"}`), 200)
	c.advance(time.Minute)
	c.fire()
	if fires = must[api.FirePage](c.town, c.send("bob", "GET", "/v1/schedules/"+s.ID+"/fires", ""), 200).Items; fires[0].Outcome != "fired" {
		t.Errorf("with bob's rights: %+v", fires)
	}
}

func TestABackfillTakesARangeInOrderUpToItsCap(t *testing.T) {
	c := newClocked(t, "2026-06-01T00:00:30Z")
	s := c.made(scheduleOf("a", `"cron":"0 * * * *"`))
	c.advance(10 * time.Hour)
	c.fire()
	here := "/v1/schedules/" + s.ID + "/backfill"
	done := must[api.FireList](c.town, c.send("ada", "POST", here, `{"from":"2026-06-01T00:00:00Z","to":"2026-06-02T00:00:00Z","cap":3,"order":"newest","overlap":"queue"}`), 200).Items
	if len(done) != 3 || done[0].At.Hour() != 9 || done[2].At.Hour() != 7 || done[0].Source != "backfill" || done[2].Task == "" {
		t.Errorf("newest first: %+v", done)
	}
	done = must[api.FireList](c.town, c.send("ada", "POST", here, `{"from":"2026-06-01T00:00:00Z","to":"2026-06-02T00:00:00Z","overlap":"queue"}`), 200).Items
	if len(done) != 7 || done[0].At.Hour() != 0 || done[6].At.Hour() != 6 {
		t.Errorf("the rest: %+v", done)
	}
	if again := must[api.FireList](c.town, c.send("ada", "POST", here, `{"from":"2026-06-01T00:00:00Z","to":"2026-06-02T00:00:00Z","overlap":"queue"}`), 200).Items; len(again) != 0 {
		t.Errorf("again: %+v", again)
	}
	if all := outcomes(c.ledger(s)); all["fired"] != 11 || len(all) != 1 {
		t.Errorf("the ledger has %v", all)
	}
	must[api.Problem](c.town, c.send("ada", "POST", here, `{"from":"2026-06-02T00:00:00Z","to":"2026-06-01T00:00:00Z"}`), 422)
}

func TestACalendarHoldsFiresBackAndIsNotDeletedWhileNamed(t *testing.T) {
	c := newClocked(t, "2026-06-01T00:00:30Z")
	a := c.send("ada", "PUT", "/v1/calendars/freeze", `{"windows":[{"name":"move","from":"2026-06-01T00:00:00Z","to":"2026-06-01T02:30:00Z"}]}`)
	if cal := must[api.Calendar](c.town, a, 200); cal.Revision != 1 || a.Header().Get("ETag") != `"1"` || len(cal.Windows) != 1 {
		t.Errorf("%+v", cal)
	}
	s := c.made(scheduleOf("a", `"cron":"0 * * * *","calendars":["freeze"],"overlap":"allow"`))
	for range 3 {
		c.advance(time.Hour)
		c.fire()
	}
	if all := outcomes(c.ledger(s)); all["blacked_out"] != 2 || all["fired"] != 1 {
		t.Errorf("the ledger has %v: %+v", all, c.ledger(s))
	}
	must[api.Problem](c.town, c.send("ada", "DELETE", "/v1/calendars/freeze", ""), 409)
	must[api.Problem](c.town, c.send("ada", "PUT", "/v1/calendars/freeze", `{"windows":[]}`, "If-Match", `"9"`), 412)
	p := must[api.Problem](c.town, c.send("ada", "PUT", "/v1/calendars/freeze", `{"windows":[{"cron":"0 0 30 2 *","zone":"UTC","for":60}]}`), 400)
	if len(p.Errors) == 0 || p.Errors[0].Pointer != "/windows/0/cron" {
		t.Errorf("%+v", p)
	}
	must[struct{}](c.town, c.send("ada", "DELETE", "/v1/schedules/"+s.ID, ""), 204)
	must[struct{}](c.town, c.send("ada", "DELETE", "/v1/calendars/freeze", ""), 204)
	must[api.Problem](c.town, c.send("ada", "GET", "/v1/calendars/freeze", ""), 404)
}

func TestCollisionsOfTheComingDayAreListed(t *testing.T) {
	c := newClocked(t, "2026-06-01T00:00:30Z")
	for i, rule := range []string{`"cron":"0 3 * * *"`, `"cron":"0 3 * * 1"`, `"cron":"0 4 * * *"`, `"every":"1h"`} {
		c.made(scheduleOf(fmt.Sprint("s", i), rule))
	}
	all := must[api.CollisionList](c.town, c.send("ada", "GET", "/v1/schedules:collisions?namespace=shop", ""), 200).Items
	if len(all) != 2 || all[0].Count != 3 || all[0].Minute.Hour() != 3 || !slices.Equal(all[0].Schedules, []string{"shop/s0", "shop/s1", "shop/s3"}) {
		t.Errorf("%+v", all)
	}
}

// Case 5 and the budget: a thousand schedules of one minute, three replicas with their loops.
func TestAThousandSchedulesOfOneMinuteFireOnceAndInTimeOnThreeReplicas(t *testing.T) {
	url := pgtest.URL(t)
	const many = 1000
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	var first *town
	for i := range 3 {
		s := pgtest.Open(t, store.Config{URL: url, Replica: fmt.Sprint("r", i)})
		w := townOver(t, s, kinds.BuiltIn())
		if first == nil {
			first = w
			c := clocked{w, url}
			c.sql(fmt.Sprintf(`INSERT INTO slipway.schedules (namespace, name, every, overlap, template, rights, anchor_at, considered_at, next_at)
				SELECT 'shop', 'n' || n, 3600, 'allow', '{"kind":"command.run","params":{"command":["true"]}}', '{"user":"ada"}', a.at, a.at, a.at + interval '1 hour'
				FROM generate_series(1, %d) n, (SELECT date_trunc('second', slipway.now()) + interval '3 seconds' - interval '1 hour' AS at) a`, many))
		}
		running.Go(func() { _ = s.Run(ctx) })
		r := firing.New(firing.Config{Book: w.times, Rights: w.times, Wakes: s.ScheduleWakes(), Log: quiet})
		running.Go(func() { _ = r.Run(ctx) })
	}
	deadline := time.Now().Add(time.Minute)
	n := 0
	for n < many && time.Now().Before(deadline) {
		time.Sleep(100 * time.Millisecond)
		n = count(t, url, "SELECT count(*) FROM slipway.tasks")
	}
	stop()
	running.Wait()
	if distinct := count(t, url, "SELECT count(DISTINCT schedule) FROM slipway.tasks"); n != many || distinct != many {
		t.Errorf("%d tasks of %d schedules", n, distinct)
	}
	p99 := count(t, url, `SELECT CAST(1000 * percentile_disc(0.99) WITHIN GROUP (ORDER BY extract(epoch FROM created_at - fire_at)) AS int) FROM slipway.tasks`)
	p50 := count(t, url, `SELECT CAST(1000 * percentile_disc(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM created_at - fire_at)) AS int) FROM slipway.tasks`)
	t.Logf("skew p50 %d ms, p99 %d ms", p50, p99)
	// The budget is 1 s on a machine of its own, for the bench to hold. Others may be at work on this one.
	if p99 > 30_000 {
		t.Errorf("p99 of the skew is %d ms", p99)
	}
}

func count(t *testing.T, url, query string) (n int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if err := conn.QueryRow(t.Context(), query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestWithoutTheSuccessThatIsExpectedAScheduleIsUnhealthyUntilItComes(t *testing.T) {
	c := newClocked(t, "2026-06-01T00:00:30Z")
	s := c.made(scheduleOf("a", `"cron":"0 * * * *","expect_success_within":7200`))
	quiet := c.made(scheduleOf("b", `"cron":"0 * * * *"`))
	look := func(when string, healthy bool, late int) {
		t.Helper()
		if now := must[api.Schedule](c.town, c.send("ada", "GET", "/v1/schedules/"+s.ID, ""), 200); now.Healthy != healthy {
			t.Errorf("%s: healthy %v", when, now.Healthy)
		}
		h, err := c.store.ScheduleHealth(t.Context())
		if err != nil || h.Late != late {
			t.Errorf("%s: %+v, %v", when, h, err)
		}
	}
	look("when it is new", true, 0)
	c.advance(2*time.Hour - time.Second)
	c.fire()
	look("in time", true, 0)
	c.sql("UPDATE slipway.tasks SET state = 'failed', ended_at = slipway.now() WHERE state = 'queued'")
	c.advance(2 * time.Second)
	look("without a success", false, 1)
	c.advance(time.Hour)
	c.fire()
	c.succeed()
	look("after a success", true, 0)
	c.advance(3 * time.Hour)
	look("long after it", false, 1)
	must[api.Schedule](c.town, c.send("ada", "POST", "/v1/schedules/"+s.ID+"/pause", ""), 200)
	look("while it is paused", true, 0)
	must[api.Schedule](c.town, c.send("ada", "POST", "/v1/schedules/"+s.ID+"/resume", ""), 200)
	look("resumed", true, 0) // it counts from here
	if now := must[api.Schedule](c.town, c.send("ada", "GET", "/v1/schedules/"+quiet.ID, ""), 200); !now.Healthy {
		t.Error("of one that expects nothing nothing is expected")
	}
}

func TestABackfillBeforeWhatTheLedgerStillKnowsIsRefused(t *testing.T) {
	c := newClocked(t, "2026-06-01T00:00:30Z")
	s := c.made(scheduleOf("a", `"cron":"0 * * * *"`))
	c.advance(10 * time.Hour)
	c.fire()
	c.sql("UPDATE slipway.schedules SET ledger_from = '2026-06-01T05:00:00Z'; DELETE FROM slipway.schedule_fires WHERE at <= '2026-06-01T05:00:00Z'")
	here := "/v1/schedules/" + s.ID + "/backfill"
	p := must[api.Problem](c.town, c.send("ada", "POST", here, `{"from":"2026-06-01T04:00:00Z","to":"2026-06-02T00:00:00Z","overlap":"queue"}`), 422)
	if len(p.Errors) == 0 || p.Errors[0].Pointer != "/from" || !strings.Contains(p.Errors[0].Reason, "2026-06-01T05:00:00Z") {
		t.Errorf("%+v", p)
	}
	done := must[api.FireList](c.town, c.send("ada", "POST", here, `{"from":"2026-06-01T05:00:01Z","to":"2026-06-02T00:00:00Z","overlap":"queue"}`), 200).Items
	if len(done) != 4 || done[0].At.Hour() != 6 {
		t.Errorf("%+v", done)
	}
}
