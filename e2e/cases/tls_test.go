package cases

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"slipway.dev/slipway/e2e/cluster/local"
	"slipway.dev/slipway/e2e/rig"
)

func TestTheLineWorksOverTLSAndACertificateIsChangedUnderway(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{Profile: local.Node, Replicas: 2, TLS: true, Env: map[string]string{"SLIPWAY_TLS_POLL": "1s"}})
	user, ns := r.User(t, r.Namespace()), r.Namespace()
	verdicts(t, user, map[string]wanted{
		user.Submit(t, shell(ns, "echo over TLS", nil)).ID: succeeded, user.Submit(t, shell(ns, "exit 3", nil)).ID: exit3,
	})
	plain, err := http.Get("http://" + r.Gate.Address + "/healthz")
	if err == nil {
		plain.Body.Close()
		if plain.StatusCode != http.StatusBadRequest {
			t.Errorf("plain HTTP is answered with %d", plain.StatusCode)
		}
	}

	r.Certify(t, r.Certificate(t)) // another authority: who trusts the first trusts this one no more
	for _, replica := range r.Replicas {
		rig.Eventually(t, replica.Name+" to serve with the new certificate", func(ctx context.Context) (bool, error) {
			status, body, err := replica.Get(ctx, "/metrics")
			if err != nil {
				return false, err
			}
			if status != http.StatusOK || !strings.Contains(body, "slipway_tls_stale 0") || strings.Contains(body, "slipway_tls_reloads_total 0") {
				return false, fmt.Errorf("%d, and no word of a reload", status)
			}
			return true, nil
		})
	}
	verdicts(t, user, map[string]wanted{user.Submit(t, shell(ns, "echo still over TLS", nil)).ID: succeeded})
}
