package kinds

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/pkg/task"
)

// sealed is a kind with two secret parameters, as it is after it was read from a file.
func sealed(t *testing.T, params string) Kind {
	t.Helper()
	read, err := Read("kinds.yaml", []byte("kinds:\n- {name: sealed, image: x, command: [run], secrets: [password, token], params: "+params+"}\n"))
	if err != nil {
		t.Fatal(err)
	}
	all, err := WithBuiltIn(read...)
	if err != nil {
		t.Fatal(err)
	}
	k, _ := all.Get("sealed")
	return k
}

const sealedParams = `{type: object, additionalProperties: false, required: [password], properties: {password: {description: Of the database.}, report: {type: string}}}`

func TestASecretParameterBecomesAReferenceInThePod(t *testing.T) {
	k := sealed(t, sealedParams)
	b, err := Build(k, run(Request{Params: json.RawMessage(`{"report":"may","password":{"secretRef":{"name":"db","key":"pass.word"}}}`)}))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]task.KeyRef{"password": {Name: "db", Key: "pass.word"}}, b.Task.Spec.Pod.Secrets); diff != "" {
		t.Errorf("secrets (-want +got):\n%s", diff)
	}
	if b.Free {
		t.Error("it counts as a program of the caller's own")
	}
	var schema struct {
		Properties map[string]struct{ Type, Description string }
	}
	if err := json.Unmarshal(k.Params, &schema); err != nil {
		t.Fatal(err)
	}
	if p := schema.Properties; p["password"].Type != "object" || p["password"].Description != "Of the database." || p["token"].Type != "object" || p["report"].Type != "string" {
		t.Errorf("its schema is %s", k.Params)
	}
}

func TestASecretParameterTakesNothingButAReference(t *testing.T) {
	const marker = "hunter2"
	silenced := sealed(t, `{"$schema": "http://json-schema.org/draft-07/schema#", "$ref": "#/definitions/any", definitions: {any: {type: object}}}`)
	for name, k := range map[string]Kind{"with a schema": sealed(t, sealedParams), "without": sealed(t, `{}`), "silenced by a reference": silenced} {
		for _, value := range []string{
			`"hunter2"`, `["hunter2"]`, `null`, `7`, `{}`, `{"hunter2":1}`, `{"secretRef":"hunter2"}`, `{"secretRef":null}`,
			`{"secretRef":{"name":"db"}}`, `{"secretRef":{"name":"db","key":""}}`, `{"secretRef":{"name":"db","key":"k","hunter2":"x"}}`,
			`{"secretRef":{"name":"db","key":"k","optional":true}}`, `{"secretRef":{"name":"db","key":"k"},"hunter2":"x"}`,
			`{"SecretRef":{"name":"db","key":"k"}}`, `{"secretRef":{"Name":"db","key":"k"}}`, `{"secretRef":{"name":7,"key":"k"}}`,
		} {
			_, err := Build(k, run(Request{Params: json.RawMessage(`{"password":` + value + `}`)}))
			var invalid *InvalidError
			if !errors.As(err, &invalid) {
				t.Errorf("%s: %s was taken", name, value)
				continue
			}
			if diff := cmp.Diff([]FieldError{{Pointer: "/params/password", Reason: onlyReference}}, invalid.Fields); diff != "" {
				t.Errorf("%s: %s (-want +got):\n%s", name, value, diff)
			}
			if strings.Contains(fmt.Sprint(invalid.Fields), marker) {
				t.Errorf("%s: %s is repeated", name, value)
			}
		}
	}
}

func TestAReferenceOutsideKubernetesGrammarIsRefused(t *testing.T) {
	for _, ref := range []string{`{"name":"Db","key":"k"}`, `{"name":"../db","key":"k"}`, `{"name":"db","key":"a/b"}`, `{"name":"` + strings.Repeat("a", 254) + `","key":"k"}`} {
		if _, err := Build(sealed(t, sealedParams), run(Request{Params: json.RawMessage(`{"password":{"secretRef":` + ref + `}}`)})); err == nil {
			t.Errorf("%s was taken", ref)
		}
	}
}

func TestASecretParameterThatIsRequiredIsMissed(t *testing.T) {
	_, err := Build(sealed(t, sealedParams), run(Request{Params: json.RawMessage(`{"token":{"secretRef":{"name":"a","key":"b"}}}`)}))
	if err == nil || err.Error() != "/params/password: is missing" {
		t.Errorf("got %v", err)
	}
	b, err := Build(sealed(t, `{}`), run(Request{}))
	if err != nil || len(b.Task.Spec.Pod.Secrets) != 0 {
		t.Errorf("none given: %+v, %v", b.Task.Spec.Pod, err)
	}
}
