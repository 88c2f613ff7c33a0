package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const nightly = `{"id":"0190a0b0-0000-7000-8000-00000000000a","namespace":"shop","name":"nightly","cron":"0 3 * * *","zone":"Europe/Berlin","missed":"latest","overlap":"forbid",
"enabled":true,"healthy":true,"revision":7,"template":{"kind":"command.run","params":{"command":["true"]},"labels":{"a":"1"}},"live":[],"owner":"ada","next_at":"2026-12-01T02:00:00Z",
"last_fire_at":"2026-11-30T02:00:00Z","last_task":"t-1","created_by":"ada","changed_by":"ada","created_at":"2026-11-01T10:00:00Z","changed_at":"2026-11-02T10:00:00Z"}`

const here = "/v1/schedules/0190a0b0-0000-7000-8000-00000000000a"

func schedulesScript() *script {
	return &script{answers: map[string]string{
		"GET /v1/schedules":          `{"items":[` + nightly + `]}`,
		"GET " + here:                nightly,
		"POST /v1/schedules":         nightly,
		"PATCH " + here:              nightly,
		"POST " + here + "/pause":    strings.Replace(nightly, `"enabled":true`, `"enabled":false`, 1),
		"POST " + here + "/resume":   nightly,
		"POST " + here + "/run":      `{"at":"2026-11-30T10:00:00.000001Z","outcome":"fired","source":"manual","task":"t-2","why":"run by hand"}`,
		"POST " + here + "/backfill": `{"items":[{"at":"2026-11-29T02:00:00Z","nominal":"2026-11-29T03:00:00+01:00 Europe/Berlin","outcome":"fired","source":"backfill","task":"t-3"}]}`,
		"GET " + here + "/fires":     `{"items":[{"at":"2026-03-29T01:00:00Z","nominal":"2026-03-29T02:30:00+02:00 Europe/Berlin (the clock jumped over 2026-03-29T02:30:00)","outcome":"fired","source":"schedule","task":"t-1","why":"on time"},{"at":"2026-03-28T01:30:00Z","nominal":"2026-03-28T02:30:00+01:00 Europe/Berlin","outcome":"forbidden","source":"schedule","why":"the run before has not ended"}]}`,
		"GET " + here + "/preview":   `{"explained":"At 03:00, every day, Europe/Berlin time.","items":[{"at":"2026-12-01T02:00:00Z","due":"2026-12-01T02:00:01.5Z","nominal":"2026-12-01T03:00:00+01:00 Europe/Berlin","fires":true},{"at":"2026-12-02T02:00:00Z","due":"2026-12-02T02:00:00Z","nominal":"2026-12-02T03:00:00+01:00 Europe/Berlin","fires":true,"blackout":"move"}]}`,
		"POST /v1/schedules:preview": `{"explained":"Every 5s.","items":[]}`,
		"DELETE " + here:             ``,
	}}
}

func TestSchedulesAreShownAndMoved(t *testing.T) {
	for _, c := range []struct {
		args string
		want []string // in the output
		asks string   // the last request begins so
	}{
		{"schedules", []string{"nightly", "0 3 * * * Europe/Berlin", "active"}, "GET /v1/schedules?namespace=shop"},
		{"schedules list -A", []string{"nightly"}, "GET /v1/schedules"},
		{"schedules get nightly", []string{"shop/nightly", "2026-12-01T02:00:00Z", "t-1", "command.run"}, "GET /v1/schedules?namespace=shop&name=nightly"},
		{"schedules get 0190a0b0-0000-7000-8000-00000000000a", []string{"shop/nightly"}, "GET " + here},
		{"schedules pause nightly", []string{"paused"}, "POST " + here + "/pause"},
		{"schedules resume nightly", []string{"active"}, "POST " + here + "/resume"},
		{"schedules run nightly", []string{"fired", "manual", "t-2"}, "POST " + here + "/run"},
		{"schedules fires nightly --outcome fired", []string{"jumped over 2026-03-29T02:30:00", "forbidden", "the run before has not ended"}, "GET " + here + "/fires?outcome=fired&limit=20"},
		{"schedules preview nightly --count 2", []string{"At 03:00, every day", "due 02:00:01.500Z", "not fired: in blackout move"}, "GET " + here + "/preview?n=2"},
		{"schedules preview --every 5s", []string{"Every 5s."}, `POST /v1/schedules:preview {"every":"5s","n":10,"namespace":"shop"}`},
		{"schedules backfill nightly --from 2026-11-01T00:00:00Z --to 2026-11-30T00:00:00Z --cap 1 --order newest", []string{"backfill", "t-3"}, "POST " + here + "/backfill"},
		{"schedules delete nightly", nil, "DELETE " + here},
	} {
		s := schedulesScript()
		code, out, errOut := play(t, s, append(strings.Fields(c.args), "-n", "shop")...)
		if code != 0 {
			t.Errorf("%s: exit code %d, %s", c.args, code, errOut)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(out, w) {
				t.Errorf("%s: no %q in\n%s", c.args, w, out)
			}
		}
		last := s.asked[len(s.asked)-1]
		if !strings.HasPrefix(last, c.asks) {
			t.Errorf("%s: asked %s, want %s", c.args, last, c.asks)
		}
	}
	for _, args := range []string{"schedules backfill nightly", "schedules preview nightly --cron * --from x", "schedules get", "schedules create"} {
		if code, _, _ := play(t, schedulesScript(), append(strings.Fields(args), "-n", "shop")...); code != exitUsage {
			t.Errorf("%s: exit code %d", args, code)
		}
	}
}

func TestApplyShowsWhatItWouldDoAndDoesItWhenTold(t *testing.T) {
	file := filepath.Join(t.TempDir(), "schedules.yaml")
	if err := os.WriteFile(file, []byte(`---
name: nightly
cron: 0 4 * * *
zone: Europe/Berlin
template:
  kind: command.run
  params: {command: ["true"]}
  labels: {b: "2"}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	s := schedulesScript()
	code, out, errOut := play(t, s, "schedules", "apply", "-f", file, "-n", "shop")
	want := `change shop/nightly
  cron: "0 3 * * *" → "0 4 * * *"
  owner: "ada" → -
  template.labels.a: "1" → -
  template.labels.b: - → "2"
nothing was done; --yes does it
`
	if code != 0 || out != want || len(s.asked) != 1 {
		t.Errorf("exit code %d %s, asked %v\n%s", code, errOut, s.asked, out)
	}
	code, _, errOut = play(t, s, "schedules", "apply", "-f", file, "-n", "shop", "--yes")
	patch := `PATCH ` + here + ` {"cron":"0 4 * * *","owner":null,"template":{"labels":{"a":null,"b":"2"}}}`
	if code != 0 || s.asked[len(s.asked)-1] != patch {
		t.Errorf("exit code %d %s, asked %s", code, errOut, s.asked[len(s.asked)-1])
	}
}

func TestWhatIsExportedIsAppliedWithoutAChange(t *testing.T) {
	s := schedulesScript()
	code, out, errOut := play(t, s, "schedules", "export", "-n", "shop")
	if code != 0 || !strings.Contains(out, "cron: 0 3 * * *") || strings.Contains(out, "revision") {
		t.Fatalf("exit code %d %s\n%s", code, errOut, out)
	}
	file := filepath.Join(t.TempDir(), "schedules.yaml")
	if err := os.WriteFile(file, []byte(out), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errOut = play(t, s, "schedules", "apply", "-f", file, "--yes")
	if code != 0 || out != "keep shop/nightly\n" || slices.ContainsFunc(s.asked, func(a string) bool { return !strings.HasPrefix(a, "GET") }) {
		t.Errorf("exit code %d %s, asked %v\n%s", code, errOut, s.asked, out)
	}
	s.answers["GET /v1/schedules"] = `{"items":[]}`
	if code, out, _ = play(t, s, "schedules", "apply", "-f", file, "--yes"); code != 0 || out != "create shop/nightly\n" || !strings.HasPrefix(s.asked[len(s.asked)-1], "POST /v1/schedules") {
		t.Errorf("exit code %d, asked %v\n%s", code, s.asked, out)
	}
}
