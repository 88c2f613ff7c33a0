package cases

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/e2e/cluster/local"
	"slipway.dev/slipway/e2e/rig"
	"slipway.dev/slipway/pkg/api"
)

// sealedKinds starts one more replica, with kinds that have a secret parameter, and gives a user who calls it. The wrapped
// one's result is the hash of the value that it got; the other one succeeds if its value has the hash that its kind holds.
func sealedKinds(t *testing.T, r *rig.Rig, value string) *rig.User {
	t.Helper()
	const hash = `sha256sum | cut -c1-64`
	file := filepath.Join(t.TempDir(), "kinds.yaml")
	text := fmt.Sprintf(`kinds:
- name: sealed.wrapped
  image: %[1]s
  command: [sh, -c, "sed 's/.*\"password\":\"\\([^\"]*\\)\".*/\\1/' $SLIPWAY_PARAMS | tr -d '\n' | %[2]s | sed 's/.*/\"&\"/' > $SLIPWAY_RESULT; env | grep -c SECRET; stat -f -c %%T $SLIPWAY_PARAMS"]
  secrets: [password]
  defaults: {grace: 5}
- name: sealed.bare
  image: %[1]s
  wrap: false
  command: [sh, -c, "test $(printf %%s \"$SLIPWAY_SECRET_password\" | %[2]s) = %[3]x"]
  secrets: [password]
  defaults: {grace: 5}
`, r.Runner(), hash, sha256.Sum256([]byte(value)))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	replica := r.AddReplica(t, map[string]string{"SLIPWAY_KINDS": file})
	replica.WaitReady(t)
	return r.User(t, r.Namespace()).Via(replica.Address)
}

// sealed is a submit of one of them.
func sealed(namespace, kind, secret, key string) map[string]any {
	ref := map[string]any{"secretRef": map[string]string{"name": secret, "key": key}}
	return map[string]any{"kind": kind, "namespace": namespace, "params": map[string]any{"password": ref}}
}

// plant makes a Secret with one key, word.
func plant(t *testing.T, r *rig.Rig, name, word string) {
	t.Helper()
	_, err := r.Kube.CoreV1().Secrets(r.Namespace()).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: map[string]string{"word": word},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("plant a secret: %v", err)
	}
}

func TestAMissingSecretOrKeyOfAParameterIsNamedAtOnce(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{Profile: local.Node})
	user, ns := sealedKinds(t, r, ""), r.Namespace()
	plant(t, r, "there", "x")
	for id, words := range map[string]string{
		user.Submit(t, sealed(ns, "sealed.wrapped", "absent", "word")).ID: `secret "absent" not found`,
		user.Submit(t, sealed(ns, "sealed.wrapped", "there", "nope")).ID:  "couldn't find key nope in Secret " + ns + "/there",
		user.Submit(t, sealed(ns, "sealed.bare", "absent", "word")).ID:    `secret "absent" not found`,
	} {
		if ended := user.Await(t, id); ended.State != api.StateFailed || ended.Outcome != api.OutcomeRejected || ended.Reason != "config" || !strings.Contains(ended.Message, words) {
			t.Errorf("task ended %s/%s/%s: %q, want %q in it", ended.State, ended.Outcome, ended.Reason, ended.Message, words)
		}
	}
}

func TestWhoMayNotCreateJobsNamesOnlySecretsThatHeMayRead(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{Profile: local.API})
	user, ns := sealedKinds(t, r, ""), r.Namespace()
	r.Kubectl(t, "-n", ns, "create", "serviceaccount", "ada")
	r.Kubectl(t, "-n", ns, "create", "rolebinding", "ada", "--clusterrole", "slipway-operator", "--serviceaccount", ns+":ada")
	user.Token = strings.TrimSpace(r.Kubectl(t, "-n", ns, "create", "token", "ada", "--audience", "slipway"))
	name := func(secret string, want int) string {
		return string(user.Must(t, http.MethodPost, "/v1/tasks?dry_run=true", sealed(ns, "sealed.wrapped", secret, "word"), want).Body)
	}
	if got := name("db", http.StatusForbidden); !strings.Contains(got, "get secrets db in namespace "+ns+", nor to create jobs.batch") {
		t.Errorf("refused with %s", got)
	}
	r.Kubectl(t, "-n", ns, "create", "role", "db", "--verb", "get", "--resource", "secrets", "--resource-name", "db")
	r.Kubectl(t, "-n", ns, "create", "rolebinding", "db", "--role", "db", "--serviceaccount", ns+":ada")
	rig.Eventually(t, "the right to read db to count", func(ctx context.Context) (bool, error) {
		a, err := user.Do(ctx, http.MethodPost, "/v1/tasks?dry_run=true", sealed(ns, "sealed.wrapped", "db", "word"))
		return a.Status == http.StatusOK, err
	})
	name("other", http.StatusForbidden)
}
