package cases

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/e2e/cluster/local"
	"slipway.dev/slipway/e2e/rig"
)

// What everybody may see (logs, metrics, the cluster's objects) holds no secret and no parameter; what users may see
// (answers) holds no secret; and a refusal repeats nothing of what it refuses.
func TestNoSecretIsFoundWhereItDoesNotBelong(t *testing.T) {
	t.Parallel()
	byReference, param, refusedParam, badToken, inParam := rand.Text(), rand.Text(), rand.Text(), rand.Text(), rand.Text()
	r := rig.New(t, rig.Options{Profile: local.Node})
	user, ns := sealedKinds(t, r, inParam), r.Namespace() // two replicas by now, which log everything, as the rig always does
	plant(t, r, "planted", byReference)
	plant(t, r, "sealed", inParam)
	submit := func(line string, spec map[string]any) string {
		s := shell(ns, line, map[string]any{"pod": map[string]any{"env": map[string]any{
			"PLANTED": map[string]any{"secretRef": map[string]any{"name": "planted", "key": "word"}},
		}}})
		maps.Copy(s["spec"].(map[string]any), spec)
		s["params"].(map[string]any)["env"] = map[string]string{"PARAM": param}
		return user.Submit(t, s).ID
	}
	arrived := fmt.Sprintf("test ${#PLANTED} = %d && test ${#PARAM} = %d", len(byReference), len(param))
	ids := map[string]wanted{
		submit(arrived, nil):            succeeded,
		submit(arrived+"; exit 3", nil): exit3,
		submit(arrived, map[string]any{"requests": map[string]string{"memory": "64Mi"}, "limits": map[string]string{"memory": "32Mi"}}): {"failed", "invalid"},
		user.Submit(t, sealed(ns, "sealed.bare", "sealed", "word")).ID:                                                                  succeeded,
	}
	wrapped := user.Submit(t, sealed(ns, "sealed.wrapped", "sealed", "word")).ID
	ids[wrapped] = succeeded
	verdicts(t, user, ids)
	if got, want := string(encoded(t, user.Task(t, wrapped).Result)), fmt.Sprintf(`"%x"`, sha256.Sum256([]byte(inParam))); got != want {
		t.Errorf("the handler found %s in its secret parameter, want %s", got, want)
	}
	// Its own environment holds no secret, and the file of its parameters lies on no disk.
	if log := user.Must(t, http.MethodGet, "/v1/tasks/"+wrapped+"/logs", nil, http.StatusOK).Body; string(log) != "0\ntmpfs\n" {
		t.Errorf("the handler says %q", log)
	}

	var seen found
	seen.add("the answer to a bad body", string(user.Must(t, http.MethodPost, "/v1/tasks",
		map[string]any{"kind": "command.run", "namespace": ns, "params": map[string]any{"command": []string{"x"}, "bogus": refusedParam}},
		http.StatusBadRequest, http.StatusUnprocessableEntity).Body))
	seen.add("the answer to a value in the place of a secret", string(user.Must(t, http.MethodPost, "/v1/tasks",
		map[string]any{"kind": "sealed.wrapped", "namespace": ns, "params": map[string]any{"password": refusedParam}}, http.StatusUnprocessableEntity).Body))
	stranger := *user
	stranger.Token = badToken
	seen.add("the answer to a bad token", string(stranger.Must(t, http.MethodGet, "/v1/tasks?namespace="+ns, nil, http.StatusUnauthorized).Body))
	outage(t, r)

	secrets := map[string]string{
		"the secret by reference": byReference, "the secret by reference, encoded": base64.StdEncoding.EncodeToString([]byte(byReference)),
		"a secret parameter": inParam, "a secret parameter, encoded": base64.StdEncoding.EncodeToString([]byte(inParam)),
		"the user's token": user.Token, "any token": "eyJhbGciOi", "a bad token": badToken, "a refused parameter": refusedParam,
	}
	database, err := url.Parse(r.Postgres.TCP("x"))
	if err != nil {
		t.Fatal(err)
	}
	secrets["the database's password"], _ = database.User.Password()
	key, err := hex.DecodeString(r.Value(t, "SELECT encode(session_key, 'hex') FROM slipway.meta"))
	if err != nil {
		t.Fatal(err)
	}
	secrets["the key of session keys"], secrets["the same, encoded"] = hex.EncodeToString(key), base64.StdEncoding.EncodeToString(key)
	for i, started := range strings.Fields(r.Value(t, "SELECT string_agg(id||'/'||fence||'/'||pod_uid, ' ') FROM slipway.attempts WHERE pod_uid <> ''")) {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(started))
		secrets[fmt.Sprint("session key ", i)] = base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
	}
	if secrets["session key 1"] == "" {
		t.Error("fewer than two session keys were given out")
	}

	answers := answersOf(t, user, ns, ids)
	seen.search(t, secrets)
	answers.search(t, secrets)
	if !strings.Contains(answers.text("tasks"), param) {
		t.Error("the parameter is not in the answers: this search finds nothing")
	}
	stored := r.Value(t, "SELECT schema_to_xml('slipway', false, false, '')")
	if !strings.Contains(stored, param) || !strings.Contains(stored, "secretRef") {
		t.Error("neither the parameter nor a reference is in the database: this search finds nothing")
	}
	for name, secret := range secrets {
		if strings.Contains(stored, secret) && !strings.HasPrefix(name, "the key of session keys") && !strings.HasPrefix(name, "the same") {
			t.Errorf("the database holds %s", name)
		}
	}
	secrets["a parameter"] = param
	everybody(t, r).search(t, secrets)
}

// found are texts by where they stood.
type found struct{ where, what []string }

func (f *found) add(where, what string) {
	f.where, f.what = append(f.where, where), append(f.what, what)
}

func (f *found) text(where string) string {
	var all strings.Builder
	for i := range f.where {
		if strings.HasPrefix(f.where[i], where) {
			all.WriteString(f.what[i])
		}
	}
	return all.String()
}

// search fails the test for every secret that stands in a text, and for a text that is empty.
func (f *found) search(t *testing.T, secrets map[string]string) {
	t.Helper()
	for i, where := range f.where {
		if f.what[i] == "" {
			t.Errorf("%s: there is nothing to search", where)
		}
		for name, secret := range secrets {
			if at := strings.Index(f.what[i], secret); at >= 0 {
				t.Errorf("%s holds %s, after %q", where, name, f.what[i][max(0, at-200):at])
			}
		}
	}
}

// answersOf collects what the API says of tasks to their user.
func answersOf(t *testing.T, user *rig.User, ns string, ids map[string]wanted) *found {
	t.Helper()
	var f found
	get := func(path string, want ...int) {
		f.add(path, string(user.Must(t, http.MethodGet, "/v1/"+path, nil, want...).Body))
	}
	get("tasks?namespace="+ns, http.StatusOK)
	for id := range ids {
		get("tasks/"+id, http.StatusOK)
		get("tasks/"+id+"/attempts", http.StatusOK)
		get("tasks/"+id+"/events", http.StatusOK)
		// Nothing was printed; where there is a log at all, it may be empty.
		if log := user.Must(t, http.MethodGet, "/v1/tasks/"+id+"/logs", nil, http.StatusOK, http.StatusNotFound, http.StatusConflict).Body; len(log) > 0 {
			f.add("log of "+id, string(log))
		}
	}
	return &f
}

// everybody collects what those see who run Slipway or look at the cluster.
func everybody(t *testing.T, r *rig.Rig) *found {
	t.Helper()
	var f found
	for _, replica := range r.Replicas {
		raw, err := os.ReadFile(replica.LogFile)
		if err != nil {
			t.Fatal(err)
		}
		f.add("log of "+replica.Name, string(raw))
		_, metrics, err := replica.Get(t.Context(), "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		f.add("metrics of "+replica.Name, metrics)
	}
	for _, kind := range []string{"jobs", "pods", "events"} {
		f.add("the cluster's "+kind, r.Kubectl(t, "-n", r.Namespace(), "get", kind, "-o", "json", "--show-managed-fields"))
	}
	pods, err := r.Kube.CoreV1().Pods(r.Namespace()).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range pods.Items {
		if log := r.Kubectl(t, "-n", r.Namespace(), "logs", pod.Name, "--all-containers"); log != "" {
			f.add("log of pod "+pod.Name, log)
		}
	}
	return &f
}

// outage takes the database away until every replica has said so in its log, and brings it back.
func outage(t *testing.T, r *rig.Rig) {
	t.Helper()
	if err := r.Postgres.Pause(); err != nil {
		t.Fatalf("stop PostgreSQL: %v", err)
	}
	for _, replica := range r.Replicas {
		rig.Eventually(t, replica.Name+" to say that it is not ready", func(ctx context.Context) (bool, error) {
			status, _, err := replica.Get(ctx, "/readyz")
			return status == http.StatusServiceUnavailable, err
		})
	}
	if err := r.Postgres.Restart(t.Context()); err != nil {
		t.Fatalf("start PostgreSQL: %v", err)
	}
	for _, replica := range r.Replicas {
		replica.WaitReady(t)
	}
}
