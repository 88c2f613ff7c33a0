package r2

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"slipway.dev/slipway/e2e/rig"
	"slipway.dev/slipway/pkg/api"
)

// tells is a command that tells the machine's own time since boot, the same inside and outside of a container, when it
// gets SIGTERM.
const tells = `trap 'cat /proc/uptime; exit 0' TERM; echo ready; sleep 600 & wait`

// single is how many cancels one by one make a round: each by itself says little.
const single = 8

// settled is how long those who were stopped are left alone.
const settled = 3 * time.Second

// stop is a way to stop a Task.
type stop struct {
	name string
	ends api.State // of the Task
	// find looks for what is needed and gives what stops the Task then.
	find func(t testing.TB, user *rig.User, id string) (now func())
}

// The two that are measured side by side: what Slipway's cancel takes, and what the node alone takes, for one client that
// does to the pods what Slipway does.
var (
	byCancel = stop{"cancel", api.StateCanceled, func(t testing.TB, user *rig.User, id string) func() {
		return func() { user.Must(t, http.MethodPost, "/v1/tasks/"+id+"/cancel", nil, http.StatusAccepted) }
	}}
	bare = stop{"pods' deadlines lowered without Slipway", api.StateFailed, func(t testing.TB, user *rig.User, id string) func() {
		r := user.Rig()
		pods, name := r.Kube.CoreV1().Pods(r.Namespace()), user.PodOf(t, id)
		return func() {
			_, err := pods.Patch(t.Context(), name, types.MergePatchType, []byte(`{"spec":{"activeDeadlineSeconds":1}}`), metav1.PatchOptions{})
			if err != nil {
				t.Errorf("lower the deadline of pod %s: %v", name, err)
			}
		}
	}}
)

// stopped brings Tasks to work, stops n of them at once, and gives how long each took from the request to SIGTERM in the
// container.
func stopped(t testing.TB, r *rig.Rig, n int, how stop) []time.Duration {
	t.Helper()
	user := r.User(t, r.Namespace())
	submit := rig.Command(r.Namespace(), "sh", "-c", tells)
	submit["spec"] = map[string]any{"grace": 10, "start_deadline": 600}
	ids := make([]string, max(n, single))
	for i := range ids {
		ids[i] = user.Submit(t, submit).ID
	}
	for _, id := range ids {
		rig.Eventually(t, "task "+id+" to be at work", func(ctx context.Context) (bool, error) {
			a, err := user.Do(ctx, http.MethodGet, "/v1/tasks/"+id+"/logs", nil)
			return err == nil && bytes.HasPrefix(a.Body, []byte("ready")), err
		})
	}
	took := make([]time.Duration, len(ids))
	for first := 0; first < len(ids); first += n {
		for i, d := range together(t, user, ids[first:first+n], how) {
			took[first+i] = d
		}
	}
	return took
}

// together stops all of ids at once. Nobody asks for anything while they are being stopped: on a machine of two cores a
// few who do are measured along with it.
func together(t testing.TB, user *rig.User, ids []string, how stop) []time.Duration {
	t.Helper()
	asked, now := make([]time.Duration, len(ids)), make([]func(), len(ids))
	for i, id := range ids {
		now[i] = how.find(t, user, id)
	}
	var all sync.WaitGroup
	for i := range ids {
		all.Go(func() {
			asked[i] = uptime(t, "")
			now[i]()
		})
	}
	all.Wait()
	if t.Failed() {
		t.Fatal("not every stop was taken")
	}
	time.Sleep(settled)
	took := make([]time.Duration, len(ids))
	for i, id := range ids {
		if ended := user.Await(t, id); ended.State != how.ends {
			t.Fatalf("task %s ended %s/%s", id, ended.State, ended.Reason)
		}
		log := user.Must(t, http.MethodGet, "/v1/tasks/"+id+"/logs", nil, http.StatusOK).Body
		took[i] = uptime(t, strings.TrimPrefix(string(log), "ready\n")) - asked[i]
	}
	return took
}

// uptime reads the time since boot: of now, where text is empty.
func uptime(t testing.TB, text string) time.Duration {
	t.Helper()
	if text == "" {
		raw, err := os.ReadFile("/proc/uptime")
		if err != nil {
			t.Fatalf("read the time since boot: %v", err)
		}
		text = string(raw)
	}
	for line := range strings.Lines(text) { // the runner says a word of its own beside
		if line[0] >= '0' && line[0] <= '9' {
			text = line
			break
		}
	}
	word, _, _ := strings.Cut(text, " ")
	seconds, err := strconv.ParseFloat(word, 64)
	if err != nil {
		t.Fatalf("read the time since boot: %v", fmt.Errorf("%q: %w", text, err))
	}
	return time.Duration(seconds * float64(time.Second))
}
