package kube

import (
	"errors"
	"flag"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/pkg/task"
)

var update = flag.Bool("update", false, "write the golden files anew")

func paperClient(t *testing.T, change ...func(*Config)) *Client {
	t.Helper()
	cfg := Config{
		REST: &rest.Config{Host: "http://127.0.0.1:1"}, Instance: "5f0c4c0e-3c3b-4c35-9d58-6b6f7c8d9e0f", Namespaces: []string{"shop"},
		RunnerImage: "registry.example/runner:1", RunnerURL: "http://slipway.slipway-system:8080",
	}
	for _, f := range change {
		f(&cfg)
	}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func paperAttempt() (task.Task, task.Attempt) {
	t := task.Task{
		ID: "0c5c0f6e-8f0b-4b6e-9d0e-1f2a3b4c5d6e", Seq: 1234, Kind: "command.run", Namespace: "shop", Name: "say hello",
		Class: task.Normal, Params: []byte(`{"command":["echo","a secret word"]}`), Spec: task.DefaultSpec(),
	}
	return t, task.Attempt{ID: 77, TaskID: t.ID, Number: 2, Fence: 4711, Lane: "~0c5c", Namespace: "shop", Kind: t.Kind}
}

func TestJobsAreBuiltAsTheGoldenFilesShow(t *testing.T) {
	for name, build := range map[string]func(*Config, *task.Task){
		"plain": func(*Config, *task.Task) {},
		"all-wishes": func(c *Config, t *task.Task) {
			c.PriorityPrefix = "slipway-"
			c.RunnerURL, c.RunnerCA = "https://slipway.slipway-system.svc:8080", func() string { return "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n" }
			t.Class, t.Name = task.Critical, ""
			t.Spec.Image, t.Spec.ServiceAccount = "registry.example/tools:2", "tools"
			t.Spec.Requests = map[string]string{"cpu": "100m", "memory": "64Mi"}
			t.Spec.Limits = map[string]string{"memory": "128Mi"}
			t.Spec.NodeSelector = map[string]string{"disk": "fast"}
			t.Spec.RunDeadline, t.Spec.Grace, t.Spec.StartDeadline, t.Spec.Capacity = 90.5, 10, 60, 1800
		},
		"wrapped": func(_ *Config, t *task.Task) {
			t.Kind, t.Spec.Image = "container.run", "registry.example/tools:2"
			t.Spec.Limits = map[string]string{"memory": "128Mi"}
			t.Spec.Pod = task.Pod{
				Wrap: task.WrapExec, Command: []string{"sh", "-c"}, Args: []string{"echo $(HOME) $$"}, Dir: "/work",
				Env: map[string]task.EnvSource{"MODE": {Value: new("a $(HOME)")}},
			}
		},
		"unwrapped": func(_ *Config, t *task.Task) {
			t.Kind, t.Spec.Image = "container.run", "registry.example/tools:2"
			t.Spec.Pod = task.Pod{Wrap: task.WrapNone, Args: []string{"--once"}, Env: map[string]task.EnvSource{"MODE": {Value: new("once")}}}
		},
		"tolerations": func(_ *Config, t *task.Task) {
			t.Spec.Pod.Tolerations = []task.Toleration{
				{Key: "gpu", Operator: "Equal", Value: "yes", Effect: "NoSchedule"},
				{Operator: "Exists", Effect: "NoExecute", Seconds: new(task.Seconds(300))},
			}
		},
		"pull-secrets": func(_ *Config, t *task.Task) { t.Spec.Pod.PullSecrets = []string{"registry", "mirror"} },
		"env": func(_ *Config, t *task.Task) {
			t.Spec.Pod.Env = map[string]task.EnvSource{
				"PASSWORD": {Secret: &task.KeyRef{Name: "db", Key: "password"}},
				"HOST":     {ConfigMap: &task.KeyRef{Name: "db", Key: "host", Optional: true}},
				"MODE":     {Value: new("fast")},
			}
		},
		"secrets": func(_ *Config, t *task.Task) {
			t.Kind, t.Spec.Image = "report.build", "registry.example/tools:2"
			t.Spec.Pod = task.Pod{
				Wrap: task.WrapExec, Command: []string{"/report"}, Secrets: map[string]task.KeyRef{"token": {Name: "web", Key: "t"}, "password": {Name: "db", Key: "pw"}},
				Patch: []byte(`{"spec":{"containers":[{"name":"main","env":[{"name":"MODE","value":"fast"}]}]}}`),
			}
		},
		"secrets-unwrapped": func(_ *Config, t *task.Task) {
			t.Spec.Pod = task.Pod{Wrap: task.WrapNone, Secrets: map[string]task.KeyRef{"password": {Name: "db", Key: "pw"}}}
		},
		"api": func(_ *Config, t *task.Task) { t.Spec.ServiceAccount, t.Spec.Pod.API = "slipway-volume-resize", true },
		"labels": func(_ *Config, t *task.Task) {
			t.Spec.Pod.Labels = map[string]string{"team": "blue", LabelFence: "0", "kueue.x-k8s.io/queue-name": "batch"}
			t.Spec.Pod.Annotations = map[string]string{"linkerd.io/inject": "enabled", "example.com/cost": "7"}
		},
		"patched": func(_ *Config, t *task.Task) {
			t.Spec.Pod.Patch = []byte(`{"metadata":{"labels":{"team":"blue"}},"spec":{"dnsPolicy":"Default",
				"volumes":[{"name":"data","persistentVolumeClaim":{"claimName":"data"}}],
				"containers":[{"name":"main","volumeMounts":[{"name":"data","mountPath":"/data"}],"securityContext":{"readOnlyRootFilesystem":false}}]}}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			tk, a := paperAttempt()
			c := paperClient(t, func(cfg *Config) { build(cfg, &tk) })
			job, err := c.job(tk, a)
			if err != nil {
				t.Fatal(err)
			}
			got, err := yaml.Marshal(job)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(got), "secret word") {
				t.Error("a parameter stands in the Job")
			}
			compareGolden(t, filepath.Join("testdata", "job-"+name+".yaml"), string(got))
		})
	}
}

func compareGolden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got; write it with -update):\n%s", file, diff)
	}
}

func TestABadQuantityIsRefusedAsTheServerWould(t *testing.T) {
	tk, a := paperAttempt()
	tk.Spec.Requests = map[string]string{"cpu": "lots"}
	_, _, err := paperClient(t).Launch(t.Context(), tk, a)
	wantRefusal(t, err, task.RefusedInvalid, "requests.cpu", `"lots"`)
}

func wantRefusal(t *testing.T, err error, cause task.RefusalCause, words ...string) *task.Refusal {
	t.Helper()
	var r *task.Refusal
	if !errors.As(err, &r) {
		t.Fatalf("got %v (%T), want a refusal", err, err)
	}
	if r.Cause != cause {
		t.Fatalf("got cause %s, want %s: %s", r.Cause, cause, r.Message)
	}
	for _, w := range words {
		if !strings.Contains(r.Message, w) {
			t.Errorf("message %q lacks %q", r.Message, w)
		}
	}
	return r
}

func TestNamesAreValidAndUniqueWhateverTheKind(t *testing.T) {
	c, seen := paperClient(t), map[string]string{}
	other := paperClient(t, func(cfg *Config) { cfg.Instance = "another" })
	kinds := []string{
		"volume.resize", "volume-resize", "VOLUME_RESIZE", "", ".", "-.-", "Ünïcode", strings.Repeat("x", 40), strings.Repeat("-", 40),
		strings.Repeat("a.", 20), strings.Repeat("x", 300), "a" + strings.Repeat("-", 70),
	}
	seq := int64(0)
	for _, kind := range kinds {
		for _, base := range []int64{0, 1 << 30, 1<<62 - 1000} {
			for _, number := range []int{1, 999} {
				for _, client := range []*Client{c, other} {
					name := client.JobName(task.Task{Seq: base + seq}, task.Attempt{Kind: kind, Number: number})
					if errs := validation.IsDNS1123Label(name); len(errs) > 0 {
						t.Errorf("kind %q: %q: %v", kind, name, errs)
					}
					if before, twice := seen[name]; twice {
						t.Errorf("%q is the name of two Jobs: kinds %q and %q", name, before, kind)
					}
					seen[name] = kind
				}
			}
			seq++
		}
		for key, value := range c.labels(task.Attempt{Kind: kind, TaskID: "x"}) {
			if errs := validation.IsValidLabelValue(value); len(errs) > 0 {
				t.Errorf("kind %q: label %s=%q: %v", kind, key, value, errs)
			}
		}
	}
}

func TestRequestsAreCountedByVerb(t *testing.T) {
	for target, want := range map[string]Call{
		"POST /apis/batch/v1/namespaces/a/jobs":            {"create", "jobs"},
		"POST /api/v1/namespaces/a/pods?dryRun=All":        {"dryrun", "pods"},
		"PATCH /apis/batch/v1/namespaces/a/jobs/x":         {"patch", "jobs"},
		"DELETE /api/v1/namespaces/a/pods/x":               {"delete", "pods"},
		"GET /api/v1/namespaces/a/pods?labelSelector=x":    {"list", "pods"},
		"GET /api/v1/pods?watch=true":                      {"watch", "pods"},
		"GET /api/v1/namespaces/a/pods/x":                  {"get", "pods"},
		"GET /api/v1/namespaces/a/pods/x/log":              {"get", "pods/log"},
		"POST /apis/authentication.k8s.io/v1/tokenreviews": {"create", "tokenreviews"},
		"GET /version": {"get", "other"},
		"GET /api/v1/namespaces/a/resourcequotas":                          {"list", "resourcequotas"},
		"POST /apis/authorization.k8s.io/v1/subjectaccessreviews?x=y":      {"create", "subjectaccessreviews"},
		"GET /apis/batch/v1/jobs?watch=1&allowWatchBookmarks=true&limit=5": {"watch", "jobs"},
	} {
		method, url, _ := strings.Cut(target, " ")
		if got := callOf(httptest.NewRequest(method, url, nil)); got != want {
			t.Errorf("%s: got %v, want %v", target, got, want)
		}
	}
}

func TestClosedJobsAreKeptShorterTheMoreThereAre(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	k := newKept(2000, time.Hour)
	if got := k.ttl(start); got != time.Hour {
		t.Errorf("none closed: got %v, want 1h", got)
	}
	now := start
	for range 2 * 60 * 60 { // one a second for two hours
		k.add(now)
		now = now.Add(time.Second)
	}
	if got := k.ttl(now); got < 30*time.Minute || got > 35*time.Minute {
		t.Errorf("one a second: got %v, want about 2000 s", got)
	}
	for range 25 * 600 { // 25 a second for ten minutes
		k.add(now)
		now = now.Add(40 * time.Millisecond)
	}
	if got := k.ttl(now); got < time.Minute || got > 3*time.Minute {
		t.Errorf("25 a second: got %v, want about 80 s", got)
	}
	if got := k.ttl(now.Add(2 * time.Hour)); got != time.Hour {
		t.Errorf("two quiet hours later: got %v, want 1h", got)
	}
	if len(k.minutes) > 70 {
		t.Errorf("%d minutes are remembered", len(k.minutes))
	}
}

func TestAClientIsNotMadeOfHalfAConfiguration(t *testing.T) {
	for name, cfg := range map[string]Config{
		"no instance":   {Namespaces: []string{"a"}, RunnerImage: "x", RunnerURL: "y"},
		"no image":      {Instance: "i", Namespaces: []string{"a"}, RunnerURL: "y"},
		"no url":        {Instance: "i", Namespaces: []string{"a"}, RunnerImage: "x"},
		"no namespaces": {Instance: "i", RunnerImage: "x", RunnerURL: "y"},
		"no such file":  {Instance: "i", Namespaces: []string{"a"}, RunnerImage: "x", RunnerURL: "y", Kubeconfig: "/does/not/exist"},
	} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestAServerThatIsNotThereIsUnavailable(t *testing.T) {
	c := paperClient(t, func(cfg *Config) { cfg.Timeout = time.Second })
	tk, a := paperAttempt()
	_, _, err := c.Launch(t.Context(), tk, a)
	wantRefusal(t, err, task.RefusedUnavailable)
	if err := c.DryRun(t.Context(), tk, a); err == nil {
		t.Error("a dry run passed without a server")
	} else {
		wantRefusal(t, err, task.RefusedUnavailable)
	}
	if _, err := c.Observe(t.Context(), a, true); err == nil {
		t.Error("a live look passed without a server")
	}
	if _, ok := c.SyncAge(); ok {
		t.Error("synced without a server")
	}
}

func TestANamespaceThatIsNotEnabledIsRefused(t *testing.T) {
	tk, a := paperAttempt()
	a.Namespace = "elsewhere"
	_, _, err := paperClient(t).Launch(t.Context(), tk, a)
	wantRefusal(t, err, task.RefusedNamespace, "elsewhere")
}
