// Package rights is the one table of what the built-in kinds that need the API server may do there. Each has a service
// account of its own, which `slipway namespace enable` makes; base/kinds.yaml and components/tenant-volumes are written
// from this table by `make generate`.
//
// Allowed imports: the standard library.
package rights

import (
	"fmt"
	"slices"
	"strings"
)

// Kind is a kind and what its account may do.
type Kind struct {
	Name      string
	Namespace []Rule // in the Task's namespace
	Cluster   []Rule // on what belongs to no namespace: reading alone
}

// Rule is a set of verbs on one resource.
type Rule struct {
	Group, Resource string
	Names           []string // objects; none: all
	Verbs           []string
}

// PlansName is the ConfigMap that volume.snapshot.cleanup keeps its plans in.
const PlansName = "slipway-retention-plans"

const snapshotGroup = "snapshot.storage.k8s.io"

func on(group, resource string, verbs ...string) Rule {
	return Rule{Group: group, Resource: resource, Verbs: verbs}
}

// Kinds is the table.
func Kinds() []Kind {
	return []Kind{
		{Name: "volume.resize", Namespace: []Rule{
			on("", "persistentvolumeclaims", "get", "watch", "patch"),
			on("", "pods", "list"), // whether one mounts the volume
			on("", "events", "list"),
		}},
		{Name: "volume.modify", Namespace: []Rule{
			on("", "persistentvolumeclaims", "get", "watch", "patch"),
			on("", "events", "list"),
		}},
		{Name: "volume.snapshot", Namespace: []Rule{
			on("", "persistentvolumeclaims", "get"),
			on(snapshotGroup, "volumesnapshots", "get", "watch", "create", "delete"),
			on("", "events", "list"),
		}, Cluster: []Rule{
			on(snapshotGroup, "volumesnapshotclasses", "get"),
			on(snapshotGroup, "volumesnapshotcontents", "get", "watch"),
		}},
		{Name: "volume.snapshot.delete", Namespace: []Rule{
			on("", "persistentvolumeclaims", "list"), // whether one is being made from the snapshot
			on(snapshotGroup, "volumesnapshots", "get", "watch", "delete"),
			on("", "events", "list"),
		}, Cluster: []Rule{
			on(snapshotGroup, "volumesnapshotcontents", "get", "list", "watch"),
		}},
		{Name: "volume.snapshot.cleanup", Namespace: []Rule{
			on("", "persistentvolumeclaims", "list"),
			on(snapshotGroup, "volumesnapshots", "get", "list", "watch", "delete"),
			on("", "events", "list"),
			{Resource: "configmaps", Names: []string{PlansName}, Verbs: []string{"patch"}},
		}, Cluster: []Rule{
			on(snapshotGroup, "volumesnapshotcontents", "get", "watch"),
		}},
	}
}

// Account is the service account of a kind, and the ClusterRole that it has in its namespace.
func Account(kind string) string { return "slipway-" + strings.ReplaceAll(kind, ".", "-") }

// inCluster is the ClusterRole of what belongs to no namespace, and its binding.
func inCluster(kind string) string { return Account(kind) + "-cluster" }

const header = "# Written by `make generate` from the table in manifests/rights.\n"

// Base is base/kinds.yaml: the roles.
func Base() []byte {
	var parts []string
	for _, k := range Kinds() {
		parts = append(parts, role(Account(k.Name), k.Namespace))
		if len(k.Cluster) > 0 {
			parts = append(parts, role(inCluster(k.Name), k.Cluster))
		}
	}
	return []byte(header + strings.Join(parts, "---\n"))
}

// Tenant is components/tenant-volumes/volumes.yaml: accounts, what they are bound to, and what they write to.
func Tenant() []byte {
	var parts []string
	for _, k := range Kinds() {
		name := Account(k.Name)
		parts = append(parts,
			fmt.Sprintf("apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: %s\nautomountServiceAccountToken: false\n", name),
			binding("RoleBinding", name, name))
		if len(k.Cluster) > 0 {
			parts = append(parts, binding("ClusterRoleBinding", inCluster(k.Name), name))
		}
	}
	plans := "# The newest plan of each rule of volume.snapshot.cleanup, by the rule's name.\n" +
		"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: " + PlansName + "\n"
	return []byte(header + strings.Join(append(parts, plans), "---\n"))
}

func role(name string, rules []Rule) string {
	text := "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata:\n  name: " + name + "\nrules:\n"
	for _, r := range rules {
		group := r.Group
		if group == "" {
			group = `""`
		}
		text += fmt.Sprintf("  - apiGroups: [%s]\n    resources: [%s]\n", group, r.Resource)
		if len(r.Names) > 0 {
			text += "    resourceNames: [" + strings.Join(r.Names, ", ") + "]\n"
		}
		text += "    verbs: [" + strings.Join(r.Verbs, ", ") + "]\n"
	}
	return text
}

func binding(kind, role, account string) string {
	return fmt.Sprintf("apiVersion: rbac.authorization.k8s.io/v1\nkind: %s\nmetadata:\n  name: %s\nroleRef:\n  apiGroup: rbac.authorization.k8s.io\n"+
		"  kind: ClusterRole\n  name: %s\nsubjects:\n  - kind: ServiceAccount\n    name: %s\n", kind, role, role, account)
}

// Accounts names the service accounts in order.
func Accounts() []string {
	var names []string
	for _, k := range Kinds() {
		names = append(names, Account(k.Name))
	}
	slices.Sort(names)
	return names
}
