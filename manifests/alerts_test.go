package manifests

import (
	"os"
	"regexp"
	"testing"

	"sigs.k8s.io/yaml"
)

func TestAlertsAskForMetricsThatTheControlPlaneHas(t *testing.T) {
	raw, err := yaml.Marshal(find(t, "overlays/alerts", "PrometheusRule", "slipway").Object)
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("../controlplane/internal/app/metrics.go")
	if err != nil {
		t.Fatal(err)
	}
	asked := regexp.MustCompile(`\bslipway_[a-z_]+`).FindAll(raw, -1)
	if len(asked) == 0 {
		t.Error("no alert asks for a metric")
	}
	for _, name := range asked {
		if !regexp.MustCompile(`"` + string(name) + `"`).Match(source) {
			t.Errorf("an alert asks for %s, which nothing tells", name)
		}
	}
}
