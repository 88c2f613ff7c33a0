package httpapi

import (
	"strings"
	"testing"

	"slipway.dev/slipway/pkg/task"
)

func TestWhatStandsInTheClusterAgainstATaskRefusesItsSubmitByField(t *testing.T) {
	for _, q := range []request{submit(good), batch(good), dry(good)} {
		r := newRig(t)
		r.against = func(task.Task) (map[string]string, error) {
			return map[string]string{"/params/size": "is less than the 2Gi that the volume has", "/params/pvc": "is Pending"}, nil
		}
		p := r.problem(r.send(q), 422)
		if len(p.Errors) != 2 || !strings.HasSuffix(p.Errors[0].Pointer, "/params/pvc") || !strings.HasSuffix(p.Errors[1].Pointer, "/params/size") || len(r.submitted) != 0 {
			t.Errorf("%s: %+v, stored %d", q.path, p.Errors, len(r.submitted))
		}
	}
}

func TestAClusterThatCannotBeAskedKeepsNoSubmitOut(t *testing.T) {
	r := newRig(t)
	r.against = func(task.Task) (map[string]string, error) { return nil, errForTest }
	if w := r.send(submit(good)); w.Code != 201 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
