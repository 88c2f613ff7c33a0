package httpapi

import (
	"strings"
	"testing"

	"slipway.dev/slipway/controlplane/internal/kinds"
	"slipway.dev/slipway/pkg/api"
	"slipway.dev/slipway/pkg/task"
)

// sealedRig is an edge that knows a kind with secret parameters.
func sealedRig(t *testing.T) *rig {
	t.Helper()
	r := newRig(t)
	known, err := kinds.WithBuiltIn(kinds.Kind{Kind: task.Kind{
		Name: "report.build", Executor: task.ExecutorJob, Queue: "default", Mode: task.Parallel, Spec: task.DefaultSpec(), Secrets: []string{"password", "token"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	r.kinds = known
	r.paced(Pace{})
	return r
}

const sealed = `{"kind":"report.build","namespace":"shop","params":{"password":{"secretRef":{"name":"db","key":"pw"}},"token":{"secretRef":{"name":"web","key":"t"}}}}`

func TestWhoNamesASecretMayCreateJobsOrReadIt(t *testing.T) {
	must := []string{
		"create tasks.slipway.dev in namespace shop", "use kinds.slipway.dev report.build in namespace shop",
		"get tasks.slipway.dev in namespace shop", "create tasks/retry.slipway.dev in namespace shop",
	}
	jobs, db, web := "create jobs.batch in namespace shop", "get secrets db in namespace shop", "get secrets web in namespace shop"
	for _, c := range []struct {
		name   string
		rights []string
		detail string // of the refusal
	}{
		{"neither", nil, "not allowed to " + db + ", nor to " + jobs},
		{"one of two", []string{db}, "not allowed to " + web + ", nor to " + jobs},
		{"another namespace's", []string{strings.ReplaceAll(db, "shop", "bank"), strings.ReplaceAll(jobs, "shop", "bank")}, "not allowed to " + db + ", nor to " + jobs},
		{"both Secrets", []string{db, web}, ""},
		{"Jobs", []string{jobs}, ""},
	} {
		for path, body := range map[string]string{
			"/v1/tasks": sealed, "/v1/tasks?dry_run=true": sealed, "/v1/tasks:batch": `{"tasks":[` + sealed + `]}`, "/v1/tasks/" + endedID + "/retry": "",
		} {
			r := sealedRig(t)
			r.rights["some"] = append(c.rights, must...)
			r.task.Kind, r.task.Params = "report.build", []byte(`{"password":{"secretRef":{"name":"db","key":"pw"}},"token":{"secretRef":{"name":"web","key":"t"}}}`)
			r.task.Spec.Pod.Secrets = map[string]task.KeyRef{"password": {Name: "db", Key: "pw"}, "token": {Name: "web", Key: "t"}}
			r.task.Spec.Retry.Attempts = 1
			w := r.send(request{method: "POST", path: path, token: "some", body: body})
			if c.detail != "" {
				if p := r.problem(w, 403); p.Detail != c.detail || len(r.submitted) > 0 {
					t.Errorf("%s, %s: %q, stored %d", c.name, path, p.Detail, len(r.submitted))
				}
				continue
			}
			if w.Code >= 300 || len(r.submitted) != 1 || len(r.submitted[0].Items[0].Task.Spec.Pod.Secrets) != 2 {
				t.Errorf("%s, %s: got %d %s", c.name, path, w.Code, w.Body)
			}
		}
	}
}

func TestAValueInThePlaceOfASecretIsRefusedAndGoesNowhere(t *testing.T) {
	const marker = "hunter2"
	r := sealedRig(t)
	for _, value := range []string{`"hunter2"`, `{"hunter2":"x"}`, `{"secretRef":{"name":"db","key":"pw","value":"hunter2"}}`} {
		for path, pointer := range map[string]string{"/v1/tasks": "/params/password", "/v1/tasks?dry_run=true": "/params/password", "/v1/tasks:batch": "/tasks/0/params/password"} {
			body := `{"kind":"report.build","namespace":"shop","params":{"password":` + value + `}}`
			if strings.HasSuffix(path, "batch") {
				body = `{"tasks":[` + body + `]}`
			}
			w := r.send(request{method: "POST", path: path, token: "admin", body: body, headers: []string{"Idempotency-Key", "k"}})
			if p := r.problem(w, 422); pointers(p) != pointer || strings.Contains(w.Body.String(), marker) {
				t.Errorf("%s %s: %s", path, value, w.Body)
			}
		}
	}
	if len(r.submitted) > 0 || strings.Contains(r.logged.String(), marker) {
		t.Errorf("stored %d, logged %s", len(r.submitted), r.logged)
	}
	// What breaks the document itself, before any kind is asked, is a 400.
	r.problem(r.send(request{method: "POST", path: "/v1/tasks", token: "admin", body: `{"kind":"report.build","namespace":"shop","params":"hunter2"}`}), 400)
}

func TestAKindShowsWhichParametersAreSecret(t *testing.T) {
	r := sealedRig(t)
	for _, k := range decode[api.KindList](t, r.send(request{method: "GET", path: "/v1/kinds", token: "nobody"})).Items {
		if is := strings.Join(k.Secrets, " "); k.Name == "report.build" && (is != "password token" || !strings.Contains(string(k.Params), "secretRef")) || k.Name == "command.run" && is != "" {
			t.Errorf("%s: secrets %q, parameters %s", k.Name, is, k.Params)
		}
	}
}
