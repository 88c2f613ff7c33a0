// Package perform runs the handler of a volume's kind as a process of its own, which a test kills at a named step: as the
// runner's pod does, under the service account of the kind, and without Slipway around it.
//
// Allowed imports: manifests/rights, pkg/handler, runner/kinds/volume and client-go; only tests import it, built with the
// tag failpoints.
package perform

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"slipway.dev/slipway/manifests/rights"
	"slipway.dev/slipway/pkg/handler"
	"slipway.dev/slipway/runner/kinds/volume"
)

// Run is one Attempt of a Task.
type Run struct {
	Kind, Namespace, Task, Params string
	Attempt                       int
	Config                        *rest.Config `json:"-"` // of the cluster, as the account of the kind: see As

	Server, Token string
	CA            []byte
}

const (
	variable = "TEST_PERFORM"
	bound    = 2 * time.Minute // of one run
)

// Main runs the handler and exits, in a process that was started for it: the first call of a TestMain.
func Main() {
	text := os.Getenv(variable)
	if text == "" {
		return
	}
	var r Run
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		panic(err)
	}
	all := volume.On(func() (dynamic.Interface, error) {
		return volume.Connect(&rest.Config{Host: r.Server, BearerToken: r.Token, TLSClientConfig: rest.TLSClientConfig{CAData: r.CA}})
	})
	result, err := all[r.Kind](context.Background(), handler.Task{
		ID: r.Task, Kind: r.Kind, Namespace: r.Namespace, Attempt: r.Attempt, Params: json.RawMessage(r.Params), Stdout: os.Stderr,
	})
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(result)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// As is a cluster as the account of a kind sees it.
func As(t testing.TB, admin *rest.Config, kube kubernetes.Interface, namespace, kind string) *rest.Config {
	t.Helper()
	answer, err := kube.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), rights.Account(kind), &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("make a token for kind %s: %v", kind, err)
	}
	config := rest.AnonymousClientConfig(admin)
	config.BearerToken = answer.Status.Token
	return config
}

// Killed runs it until it dies at a step, as by kill -9.
func (r Run) Killed(t testing.TB, step string) {
	t.Helper()
	if _, said, err := r.start(t, "SLIPWAY_KILL_AT="+step); err == nil || err.Error() != "signal: killed" {
		t.Fatalf("%s was not killed at %s: %v\n%s", r.Kind, step, err, said)
	}
}

// Succeeds runs it to its end and reads its result.
func (r Run) Succeeds(t testing.TB, result any) {
	t.Helper()
	out, said, err := r.start(t)
	if err == nil {
		err = json.Unmarshal(out, result)
	}
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", r.Kind, r.Params, err, said)
	}
}

func (r Run) start(t testing.TB, environment ...string) (out, said []byte, err error) {
	t.Helper()
	r.Server, r.Token, r.CA = r.Config.Host, r.Config.BearerToken, r.Config.CAData
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	var log bytes.Buffer
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env, cmd.Stderr = slices.Concat(environment, []string{variable + "=" + string(text)}), &log
	out, err = cmd.Output()
	if ctx.Err() != nil {
		t.Fatalf("%s takes longer than %v; it said:\n%s", r.Kind, bound, log.Bytes())
	}
	return out, log.Bytes(), err
}
