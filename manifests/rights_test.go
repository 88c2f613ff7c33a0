package manifests

import (
	"os"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/manifests/rights"
)

func TestTheRightsOfKindsAreThoseOfTheTable(t *testing.T) {
	for file, want := range map[string][]byte{"base/kinds.yaml": rights.Base(), "components/tenant-volumes/volumes.yaml": rights.Tenant()} {
		if got, err := os.ReadFile(file); err != nil || string(got) != string(want) {
			t.Errorf("%s is not what the table says (%v); run `make generate`", file, err)
		}
	}
	bound := map[string][]string{}
	for _, object := range objects(t, "overlays/volumes") {
		if strings.HasSuffix(object.GetKind(), "RoleBinding") {
			b := as[rbacv1.ClusterRoleBinding](t, object)
			if s := b.Subjects[0]; len(b.Subjects) != 1 || s.Namespace != "team-a" {
				t.Errorf("%s binds %+v", b.Name, b.Subjects)
			}
			bound[b.Subjects[0].Name] = append(bound[b.Subjects[0].Name], object.GetKind()+" "+b.RoleRef.Name)
		}
	}
	for _, k := range rights.Kinds() {
		account := rights.Account(k.Name)
		find(t, "overlays/volumes", "ServiceAccount", account)
		want := []string{"RoleBinding " + account}
		if got := rules(t, find(t, "base", "ClusterRole", account)); !slices.Equal(got, flat(k.Namespace)) {
			t.Errorf("%s: got %q, want %q", k.Name, got, flat(k.Namespace))
		}
		if len(k.Cluster) > 0 {
			want = append(want, "ClusterRoleBinding "+account+"-cluster")
			if got := rules(t, find(t, "base", "ClusterRole", account+"-cluster")); !slices.Equal(got, flat(k.Cluster)) {
				t.Errorf("%s: got %q, want %q", k.Name, got, flat(k.Cluster))
			}
		}
		slices.Sort(want)
		slices.Sort(bound[account])
		if !slices.Equal(bound[account], want) {
			t.Errorf("%s has %q, want %q", account, bound[account], want)
		}
	}
	if len(bound) != len(rights.Kinds()) {
		t.Errorf("accounts with rights: %v", bound)
	}
}

func flat(all []rights.Rule) []string {
	var grants []string
	for _, r := range all {
		for _, verb := range r.Verbs {
			grants = append(grants, r.Group+"/"+r.Resource+" "+verb)
		}
	}
	slices.Sort(grants)
	return grants
}

func TestWhatBelongsToNoNamespaceIsOnlyRead(t *testing.T) {
	for _, k := range rights.Kinds() {
		for _, r := range k.Cluster {
			for _, verb := range r.Verbs {
				if verb != "get" && verb != "list" && verb != "watch" {
					t.Errorf("%s may %s %s of the whole cluster", k.Name, verb, r.Resource)
				}
			}
		}
	}
}

func TestTheAdmissionPolicyTakesTheAccountsOfTheTable(t *testing.T) {
	var policy struct {
		Spec struct {
			Validations []struct{ Expression string }
		}
	}
	raw, err := find(t, "components/admission", "ValidatingAdmissionPolicy", "slipway-jobs").MarshalJSON()
	if err == nil {
		err = yaml.Unmarshal(raw, &policy)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, account := range rights.Accounts() {
		if !strings.Contains(policy.Spec.Validations[1].Expression, `"`+account+`"`) {
			t.Errorf("%s is not among those that the policy takes", account)
		}
	}
}
