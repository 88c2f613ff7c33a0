package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCalendarsAndCollisionsAreShownAndChanged(t *testing.T) {
	file := filepath.Join(t.TempDir(), "calendar.yaml")
	if err := os.WriteFile(file, []byte("windows: [{cron: '0 22 * * 5', zone: Europe/Berlin, for: 7200}]\nnote: quiet\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const quiet = `{"namespace":"shop","name":"quiet","for_all":true,"note":"no noise","revision":1,"changed_by":"ada","changed_at":"2026-11-02T10:00:00Z",
		"windows":[{"name":"night","cron":"0 22 * * 5","zone":"Europe/Berlin","for":7200},{"from":"2026-12-24T00:00:00Z","to":"2026-12-27T00:00:00Z"}]}`
	for _, c := range []struct {
		args string
		want []string
		asks string
	}{
		{"calendars -n shop", []string{"quiet", "night: 0 22 * * 5 Europe/Berlin for 2h0m0s", "2026-12-24T00:00:00Z to 2026-12-27T00:00:00Z", "no noise"}, "GET /v1/calendars?namespace=shop"},
		{"calendars list -A", []string{"quiet"}, "GET /v1/calendars"},
		{"calendars get quiet -n shop", []string{"quiet", "all"}, "GET /v1/calendars/quiet?namespace=shop"},
		{"calendars set quiet -n shop -f " + file, []string{"quiet"}, `PUT /v1/calendars/quiet?namespace=shop {"note":"quiet","windows":[{"cron":"0 22 * * 5","for":7200,"zone":"Europe/Berlin"}]}`},
		{"calendars set quiet -A -f " + file, []string{"quiet"}, `PUT /v1/calendars/quiet {`},
		{"calendars delete quiet -n shop", nil, "DELETE /v1/calendars/quiet?namespace=shop"},
		{"schedules collisions -n shop", []string{"2026-12-01T03:00:00Z", "25", "shop/a shop/b and 23 more"}, "GET /v1/schedules:collisions?namespace=shop"},
		{"schedules collisions -A", []string{"25"}, "GET /v1/schedules:collisions"},
	} {
		s := &script{answers: map[string]string{
			"GET /v1/calendars": `{"items":[` + quiet + `]}`, "GET /v1/calendars/quiet": quiet, "PUT /v1/calendars/quiet": quiet, "DELETE /v1/calendars/quiet": ``,
			"GET /v1/schedules:collisions": `{"items":[{"minute":"2026-12-01T03:00:00Z","count":25,"schedules":["shop/a","shop/b"]}]}`,
		}}
		code, out, errOut := play(t, s, strings.Fields(c.args)...)
		if code != 0 {
			t.Errorf("%s: exit code %d, %s", c.args, code, errOut)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(out, w) {
				t.Errorf("%s: no %q in\n%s", c.args, w, out)
			}
		}
		if last := s.asked[len(s.asked)-1]; !strings.HasPrefix(last, c.asks) {
			t.Errorf("%s: asked %s, want %s", c.args, last, c.asks)
		}
	}
	if err := os.WriteFile(file, []byte("window: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{"calendars set quiet -n shop", "calendars set quiet -n shop -f " + file, "calendars get"} {
		if code, _, _ := play(t, &script{}, strings.Fields(args)...); code != exitUsage {
			t.Errorf("%s: exit code %d", args, code)
		}
	}
}
