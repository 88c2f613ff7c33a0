package cases

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"slipway.dev/slipway/e2e/cluster/local"
	"slipway.dev/slipway/e2e/rig"
)

var jobName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// Names cut to fit collide; payloads do not fit at all. Nothing is shrunk.
func TestCase31(t *testing.T) {
	replay(t, 31, "names never collide, and what is accepted arrives whole", func(t *testing.T) {
		r := rig.New(t, rig.Options{Profile: local.API})
		user, ns := r.User(t, r.Namespace()), r.Namespace()
		namesStayApart(t, r, user)
		labels := map[string]string{}
		for i := range 2000 {
			labels[fmt.Sprintf("l%d", i)] = "v"
		}
		many := rig.Command(ns, "x")
		many["labels"] = labels
		if a := user.Must(t, http.MethodPost, "/v1/tasks", many, 400, 422); !strings.Contains(string(a.Body), "/labels") {
			t.Errorf("2000 labels: the answer does not name the field: %s", a.Body)
		}
		for _, size := range []int{1_600_000, 4 << 20, 300 << 10} {
			user.Must(t, http.MethodPost, "/v1/tasks", rig.Command(ns, "x", strings.Repeat("p", size)), 400, 413, 422)
		}
		for _, size := range []int{100 << 10, 130 << 10} {
			arrivesWhole(t, r, user, strings.Repeat("p", size))
		}
	})
}

// namesStayApart submits look-alike resources and checks that no two share a lane or a Job.
func namesStayApart(t *testing.T, r *rig.Rig, user *rig.User) {
	t.Helper()
	alike := strings.Repeat("a", 60)
	names := []string{alike + "x", alike + "y", "Upper", "upper", "under_score", "dot.dot", strings.Repeat("b", 253)}
	for n := 52; n <= 70; n += 6 {
		names = append(names, strings.Repeat("n", n))
	}
	jobs, lanes := map[string]string{}, map[string]bool{}
	for _, name := range names {
		submit := rig.Command(r.Namespace(), "x")
		submit["lane"] = "volume:" + r.Namespace() + "/" + name
		submit["name"] = name[:min(len(name), 200)]
		task := user.Submit(t, submit)
		job := user.JobOf(t, task.ID)
		if !jobName.MatchString(job) {
			t.Errorf("Job name %q is not valid", job)
		}
		if other := jobs[job]; other != "" {
			t.Errorf("%q and %q share Job %s", name, other, job)
		}
		if lanes[task.Lane] {
			t.Errorf("%q shares its lane %s", name, task.Lane)
		}
		jobs[job], lanes[task.Lane] = name, true
	}
	bad := rig.Command(r.Namespace(), "x")
	bad["lane"] = "volume:" + r.Namespace() + "/ümlaut"
	user.Must(t, http.MethodPost, "/v1/tasks", bad, 400, 422)
}

// arrivesWhole submits text as a parameter and reads it where a runner would.
func arrivesWhole(t *testing.T, r *rig.Rig, user *rig.User, text string) {
	t.Helper()
	task := user.Submit(t, rig.Command(r.Namespace(), "x", text))
	pod := r.Pod(t, r.Namespace(), user.JobOf(t, task.ID))
	r.Bind(t, pod)
	r.Run(t, pod)
	var got struct{ Command []string }
	if err := json.Unmarshal(r.StartRunner(t, pod).Answer.Params, &got); err != nil || len(got.Command) != 2 || got.Command[1] != text {
		t.Errorf("parameter of %d bytes did not arrive whole", len(text))
	}
	if strings.Contains(fmt.Sprint(pod.Spec), text[:1000]) {
		t.Error("a parameter stands in the pod's spec")
	}
}
