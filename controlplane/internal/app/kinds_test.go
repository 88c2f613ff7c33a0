package app

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"slipway.dev/slipway/controlplane/internal/kinds"
	"slipway.dev/slipway/controlplane/internal/kube"
	"slipway.dev/slipway/pkg/api"
)

// kindsFile writes a kinds.yaml.
func kindsFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kinds.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func paperCluster(t *testing.T) *kube.Client {
	t.Helper()
	c, err := kube.New(kube.Config{
		REST: &rest.Config{Host: "http://127.0.0.1:1"}, Instance: "x", Namespaces: []string{"shop"}, RunnerImage: "runner", RunnerURL: "http://x",
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestUsersKindsStandBesideTheBuiltIn(t *testing.T) {
	file := kindsFile(t, "kinds:\n- {name: report.build, image: x, command: [run], pod: {spec: {dnsPolicy: Default}}}\n")
	users, err := userKinds(file)
	if err != nil {
		t.Fatal(err)
	}
	all, err := allKinds(file, users, kinds.Upkeep("ops"), paperCluster(t))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(all.Names(), " "); got != "command.run container.run group report.build slipway.check slipway.retention volume.modify volume.resize volume.snapshot volume.snapshot.cleanup volume.snapshot.delete volume.snapshot.each" {
		t.Errorf("kinds %s", got)
	}
}

func TestAPatchThatTouchesSlipwaysPartIsNamedByFileKindAndField(t *testing.T) {
	file := kindsFile(t, `kinds:
- {name: good, image: x, command: [run]}
- {name: bad, image: x, command: [run], pod: {spec: {restartPolicy: OnFailure}}}
- {name: worse, image: x, command: [run], pod: {spec: {dnsPolcy: Default}}}
`)
	users, err := userKinds(file)
	if err != nil {
		t.Fatal(err)
	}
	_, err = allKinds(file, users, nil, paperCluster(t))
	for _, want := range []string{file + ": kind bad: pod.spec.restartPolicy: must be Never", file + ": kind worse: pod: ", `unknown field "dnsPolcy"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
	if err != nil && strings.Contains(err.Error(), "kind good") {
		t.Errorf("a good kind is named: %v", err)
	}
}

func TestAControlPlaneWithABadKindRefusesToStart(t *testing.T) {
	for _, c := range []struct{ file, want string }{
		{kindsFile(t, "kinds:\n- {name: a, image: x}\n"), "kind a: command: is missing"},
		{filepath.Join(t.TempDir(), "none.yaml"), "read SLIPWAY_KINDS"},
	} {
		// It ends before it looks for a database: there is none.
		err := Run(t.Context(), Config{Kinds: c.file, DatabaseURL: "postgres://127.0.0.1:1/none"}, api.Version{}, Logger(io.Discard, "error"))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.file, err)
		}
	}
}
