package handler

import (
	"context"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"slipway.dev/slipway/pkg/task"
)

func TestAHandlerFindsTheValuesOfSecretParametersInTheirPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got string
		b := newBench(t, func(_ context.Context, t Task) (any, error) { got = string(t.Params); return nil, nil })
		b.plane.grant.Params = []byte(`{"n":1.50,"url":"a&b","password":{"secretRef":{"name":"db","key":"pw"}},"own":"kept","object":{"a":1},"other":{"secretRef":{"name":"x","key":"y"}}}`)
		b.secrets = map[string]string{"password": "hunter\"2 <&>\n", "own": "not this", "object": "nor that", "absent": "nor this"}
		if code := b.run(); code != 0 {
			t.Errorf("exit code %d: %s", code, b.log.String())
		}
		if want := `{"n":1.50,"object":{"a":1},"other":{"secretRef":{"name":"x","key":"y"}},"own":"kept","password":"hunter\"2 <&>\n","url":"a&b"}`; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})
}

func TestASecretThatIsNoTextRejectsTheTaskAndIsNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(context.Context, Task) (any, error) { t.Error("the handler ran"); return nil, nil })
		b.plane.grant.Params = []byte(`{"password":{"secretRef":{"name":"db","key":"pw"}}}`)
		b.secrets = map[string]string{"password": "hunter2\xff"}
		b.run()
		r := b.report(t)
		if r.Outcome != task.OutcomeRejected || r.Reason != ReasonParams || r.Message != "parameter password: key pw of Secret db is no text" {
			t.Errorf("reported %+v", r)
		}
	})
}

func TestWhatAHandlerStartsInheritsNoSecretParameter(t *testing.T) {
	t.Setenv(task.SecretEnv+"password", "a=b")
	t.Setenv("SLIPWAY_SECRETS", "another")
	if got := takeSecrets(); len(got) != 1 || got["password"] != "a=b" {
		t.Errorf("took %v", got)
	}
	if left := strings.Join(os.Environ(), "\n"); strings.Contains(left, task.SecretEnv) || !strings.Contains(left, "SLIPWAY_SECRETS=another") {
		t.Error("the environment was not left as it should be")
	}
}
