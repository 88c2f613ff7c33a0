package httpapi

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"slipway.dev/slipway/controlplane/internal/kinds"
	"slipway.dev/slipway/pkg/task"
)

const (
	scheduleID   = "0190a0b0-0000-7000-8000-00000000000a"
	goodSchedule = `{"namespace":"shop","name":"nightly","cron":"0 3 * * *","template":{"kind":"command.run","params":{"command":["true"]}}}`
)

// timetable plays the schedules below the edge: there is one, of namespace shop.
type timetable struct {
	now     ScheduleView
	changes []ScheduleChange
	hands   []Hand
	stale   int // changes that meet another's
	fires   []FireView
	cal     CalendarView
}

func newTimetable() *timetable {
	return &timetable{
		now: ScheduleView{
			ID: scheduleID, Namespace: "shop", Name: "nightly", Cron: "0 3 * * *", Zone: "UTC", Missed: "latest", Overlap: "forbid", Enabled: true,
			Template: json.RawMessage(`{"kind":"command.run","params":{"command":["true"]}}`), Rights: json.RawMessage(`{"user":"admin"}`), Revision: 7,
		},
		fires: []FireView{{At: time.Unix(60, 0), Outcome: "fired", Task: taskID}},
		cal:   CalendarView{Namespace: "shop", Name: "holidays", Windows: json.RawMessage(`[]`), Revision: 3},
	}
}

func (b *timetable) Schedule(_ context.Context, id string) (ScheduleView, error) {
	if id != scheduleID {
		return ScheduleView{}, task.ErrNotFound
	}
	return b.now, nil
}

func (b *timetable) Schedules(context.Context, ScheduleFilter) (ScheduleSheet, error) {
	return ScheduleSheet{Items: []ScheduleView{b.now}}, nil
}

func (b *timetable) CreateSchedule(_ context.Context, s ScheduleView, by string) (ScheduleView, error) {
	s.ID, s.Revision, s.CreatedBy = scheduleID, 1, by
	b.now = s
	return s, nil
}

func (b *timetable) ChangeSchedule(_ context.Context, _ string, c ScheduleChange, change func(*ScheduleView)) (ScheduleView, error) {
	b.changes = append(b.changes, c)
	if b.stale > 0 {
		b.stale--
		b.now.Revision++
		return ScheduleView{}, ErrRevision
	}
	change(&b.now)
	b.now.Revision++
	return b.now, nil
}

func (b *timetable) DeleteSchedule(_ context.Context, _ string, revision int64, _ string) error {
	if revision != 0 && revision != b.now.Revision {
		return ErrRevision
	}
	return nil
}

func (b *timetable) Fires(context.Context, FireFilter) (FireSheet, error) {
	return FireSheet{Items: b.fires}, nil
}

func (b *timetable) FireByHand(_ context.Context, _ string, h Hand) ([]FireView, error) {
	b.hands = append(b.hands, h)
	return b.fires, nil
}

func (b *timetable) Calendars(context.Context, string) ([]CalendarView, error) {
	return []CalendarView{b.cal}, nil
}

func (b *timetable) SetCalendar(_ context.Context, c CalendarView, _ int64, _ string) error {
	b.cal = c
	return nil
}

func (b *timetable) DeleteCalendar(context.Context, CalendarView, int64, string) error { return nil }

func (b *timetable) Every(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, &RuleError{Fields: []kinds.FieldError{{Pointer: "/every", Reason: "is no interval"}}}
	}
	return d, nil
}

func (b *timetable) Check(_ context.Context, s ScheduleView) error {
	if s.Cron == "never" {
		return &RuleError{Fields: []kinds.FieldError{{Pointer: "/cron", Reason: "never fires"}}}
	}
	return nil
}

func (b *timetable) CheckWindows(json.RawMessage) error { return nil }

func (b *timetable) Preview(_ context.Context, _ ScheduleView, from time.Time, n int) ([]ComingView, string, error) {
	return make([]ComingView, n), "At some time after " + from.String(), nil
}

func (b *timetable) Collisions(context.Context, []ScheduleView) ([]CollisionView, error) {
	return nil, nil
}

func TestAPatchIsWorkedOutAnewWhereAnotherCameFirst(t *testing.T) {
	r := newRig(t)
	r.times.stale = 3
	w := r.send(request{method: "PATCH", path: "/v1/schedules/" + scheduleID, token: "admin", body: `{"owner":"team"}`})
	if w.Code != 200 || r.times.now.Owner != "team" || len(r.times.changes) != 4 || w.Header().Get("ETag") != `"11"` {
		t.Errorf("%d %s, %d changes", w.Code, w.Body, len(r.times.changes))
	}
	r.times.stale = 1
	r.problem(r.send(request{method: "PATCH", path: "/v1/schedules/" + scheduleID, token: "admin", body: `{"owner":"x"}`, headers: []string{"If-Match", `"11"`}}), 412)
	if r.times.now.Owner != "team" {
		t.Error("it was changed all the same")
	}
}

func TestARefusedScheduleNamesEachField(t *testing.T) {
	r := newRig(t)
	for body, want := range map[string]string{
		strings.Replace(goodSchedule, "0 3 * * *", "never", 1):                               "400 /cron",
		strings.Replace(goodSchedule, `"cron":"0 3 * * *"`, `"every":"soon"`, 1):             "400 /every",
		strings.Replace(goodSchedule, `"template"`, `"tmplate"`, 1):                          "400 /tmplate",
		strings.Replace(goodSchedule, `["true"]`, `[]`, 1):                                   "422 /template/params/command",
		strings.Replace(goodSchedule, `command.run`, `no.such`, 1):                           "422 /template/kind",
		strings.Replace(goodSchedule, `"name":"nightly"`, `"name":"../x"`, 1):                "400 /name",
		strings.Replace(goodSchedule, `"kind"`, `"namespace":"bank","kind"`, 1):              "400 /template/namespace",
		strings.Replace(goodSchedule, `"kind"`, `"run_at":"2099-01-01T00:00:00Z","kind"`, 1): "400 /template/run_at",
	} {
		w := r.send(request{method: "POST", path: "/v1/schedules", token: "admin", body: body})
		p := r.problem(w, w.Code)
		found := false
		for _, at := range strings.Fields(pointers(p)) {
			found = found || strings.HasPrefix(want, "4") && want[:3] == w.Result().Status[:3] && at == want[4:]
		}
		if !found {
			t.Errorf("%s: %d %s, want %s", body, w.Code, pointers(p), want)
		}
	}
}

func TestARunThatIsForbiddenNamesTheTaskInItsWay(t *testing.T) {
	r := newRig(t)
	r.times.now.Live, r.times.fires = []string{taskID}, []FireView{{Outcome: "forbidden", Why: "1 runs before have not ended"}}
	p := r.problem(r.send(request{method: "POST", path: "/v1/schedules/" + scheduleID + "/run", token: "admin"}), 409)
	if p.Task != taskID || !strings.Contains(p.Detail, "have not ended") {
		t.Errorf("%+v", p)
	}
}

func TestAScheduleOfSomebodyWithoutRightsRunsForNobody(t *testing.T) {
	r := newRig(t)
	r.times.now.Rights = json.RawMessage(`{"user":"viewer"}`)
	p := r.problem(r.send(request{method: "POST", path: "/v1/schedules/" + scheduleID + "/run", token: "admin"}), 409)
	if !strings.Contains(p.Detail, "viewer") || len(r.times.hands) != 0 {
		t.Errorf("%+v, %v", p, r.times.hands)
	}
}
