package cases

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"slipway.dev/slipway/e2e/rig"
	"slipway.dev/slipway/pkg/api"
)

// Expressions that parse elsewhere but can never work. Instead of an image without zone data, the replica is given zone
// data that lies: what it uses is built in.
func TestCase18(t *testing.T) {
	replay(t, 18, "what can never fire is refused by field; a row broken behind the API is marked, the others fire", func(t *testing.T) {
		w := newTimed(t, "2026-06-01T12:00:30Z", rig.Options{Env: map[string]string{"ZONEINFO": lyingZones(t)}})
		w.refusesByField()
		var good []api.Schedule
		for i := range 20 {
			good = append(good, w.made(fmt.Sprint("good-", i), map[string]any{"cron": "* * * * *", "zone": "Europe/Berlin"}))
		}
		noon := w.made("noon", map[string]any{"cron": "5 12 * * *", "zone": "Europe/Berlin"}) // in Tokyo's time it would be 03:05
		leap := w.made("leap", map[string]any{"cron": "0 0 29 2 *"})
		w.restart(w.Replicas[0], func() {
			for name, columns := range map[string]string{
				"panics": `cron) VALUES ('TZ=0'`, "never": `cron) VALUES ('0 0 30 2 *'`, "nowhere": `zone, cron) VALUES ('Mars/Olympus', '* * * * *'`,
				"nan": `every) VALUES ('NaN'`, "below": `every) VALUES (-5`, "endless": `every) VALUES (1e300`,
			} {
				into, values, _ := strings.Cut(columns, ") VALUES (")
				w.Exec(t, fmt.Sprintf(`INSERT INTO slipway.schedules (namespace, name, template, %s) VALUES ('%s', '%s', '{}', %s)`, into, w.Namespace(), name, values))
			}
			w.Advance(t, time.Minute)
		})
		w.settled()
		for _, s := range good {
			w.wantTold("beside broken rows", s, "1 fired")
		}
		broken := decoded[api.SchedulePage](t, w.user.Must(t, http.MethodGet, "/v1/schedules?namespace="+w.Namespace()+"&broken=true", nil, http.StatusOK))
		if len(broken.Items) != 6 {
			t.Errorf("%d rows are marked as broken", len(broken.Items))
		}
		for _, s := range broken.Items {
			if s.Broken == "" || s.Healthy || !s.NextAt.IsZero() {
				t.Errorf("%s: %q, healthy %v, next at %v", s.Name, s.Broken, s.Healthy, s.NextAt)
			}
		}
		if n, err := w.Replicas[0].Metric(t.Context(), `slipway_schedules_unhealthy{because="broken"}`); err != nil || n != 6 {
			t.Errorf("the metric counts %v (%v)", n, err)
		}
		if n := w.Replicas[0].Logged(t, "panic"); n > 0 {
			t.Errorf("the log tells of %d panics", n)
		}
		w.on(time.Minute) // the loop does not spin on them
		w.wantTold("a minute later", good[0], "2 fired")
		if at := w.get(noon.ID).NextAt.UTC(); at.Hour() != 10 {
			t.Errorf("noon in Berlin is at %v: the zone data of the machine was used", at)
		}
		if at := w.get(leap.ID).NextAt.UTC(); at.Year() != 2028 {
			t.Errorf("29 February comes at %v", at)
		}
	})
}

func (w timed) refusesByField() {
	for _, bad := range []struct{ rule, field string }{
		{`"cron":"TZ=0"`, "/cron"},
		{`"cron":"TZ=UTC"`, "/cron"},
		{`"cron":"TZ="`, "/cron"},
		{`"cron":"CRON_TZ=UTC * * * * *"`, "/cron"},
		{`"cron":"TZ=Local 0 0 * * *"`, "/cron"},
		{`"cron":"0 0 30 2 *"`, "/cron"},
		{`"cron":"0 0 31 4 *"`, "/cron"},
		{`"cron":"0 0 31 2,4,6,9,11 *"`, "/cron"},
		{`"cron":"@every 0s"`, "/cron"},
		{`"cron":"@every -5s"`, "/cron"},
		{`"every":"0s"`, "/every"},
		{`"every":"-5s"`, "/every"},
		{`"every":"1ns"`, "/every"},
		{`"every":"999ms"`, "/every"},
		{`"every":"1e9s"`, "/every"},
		{`"cron":"*/60 * * * *"`, "/cron"},
		{`"cron":"*/0 * * * *"`, "/cron"},
		{`"cron":"5/0 * * * *"`, "/cron"},
		{`"cron":", * * * *"`, "/cron"},
		{`"cron":"*-foo * * * *"`, "/cron"},
		{`"cron":"+5 * * * *"`, "/cron"},
		{`"cron":"60 * * * *"`, "/cron"},
		{`"cron":"30-10 * * * *"`, "/cron"},
		{`"cron":"0 0 * * * *"`, "/cron"},
		{`"cron":"* * * *"`, "/cron"},
		{`"cron":""`, "/cron"},
		{`"cron":"` + strings.Repeat("1,", 5000) + `1 * * * *"`, "/cron"},
		{`"cron":"0 \u0000 * * *"`, "/cron"},
		{`"cron":"0 0\u0007 * * *"`, "/cron"},
		{`"cron":"٣ * * * *"`, "/cron"},
		{`"cron":"0 3 * * *","zone":"Mars/Olympus"`, "/zone"},
		{`"cron":"0 3 * * *","zone":"Local"`, "/zone"},
		{`"cron":"0 3 * * *","zone":"../../etc/passwd"`, "/zone"},
		{`"cron":"0 3 * * *","zone":"Europe/Berlin\u0000"`, "/zone"},
		{`"cron":"0 3 * * *","every":"1h"`, "/every"},
		{`"cron":7`, "/cron"},
	} {
		body := `{"namespace":"` + w.Namespace() + `","name":"bad",` + bad.rule + `,"template":{"kind":"command.run","params":{"command":["true"]}}}`
		a := w.user.Must(w, http.MethodPost, "/v1/schedules", body, http.StatusBadRequest, http.StatusUnprocessableEntity)
		if p := decodeProblem(w.T, a); len(p.Errors) == 0 || p.Errors[0].Pointer != bad.field {
			w.Errorf("%.60s: %d %.300s, want %s", bad.rule, a.Status, a.Body, bad.field)
		}
		preview := strings.Replace(body, `"name":"bad",`, "", 1)
		preview, _, _ = strings.Cut(preview, `,"template"`)
		w.user.Must(w, http.MethodPost, "/v1/schedules:preview", preview+"}", http.StatusBadRequest, http.StatusUnprocessableEntity)
	}
	for _, fine := range []string{"0 3 * * 7", "0 3 * * SUN", "@daily", "? 3 * * *", "*/7 * * * *", "0 0 31 1,2 *"} {
		w.user.Must(w, http.MethodPost, "/v1/schedules:preview", map[string]any{"namespace": w.Namespace(), "cron": fine}, http.StatusOK)
	}
}

// lyingZones is a folder in which Berlin has the time of Tokyo.
func lyingZones(t *testing.T) string {
	t.Helper()
	tokyo, err := os.ReadFile("/usr/share/zoneinfo/Asia/Tokyo")
	if err != nil {
		t.Logf("this machine has no zone data: %v", err)
		return "/nowhere"
	}
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "Europe"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "Europe", "Berlin"), tokyo, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}
