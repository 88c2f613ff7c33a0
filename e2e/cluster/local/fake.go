package local

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
)

// fakeNodes is how many nodes kwok plays. Their number costs Leases and nothing else.
const fakeNodes = 10

// FakeHold is the image of a container that kwok lets run until its pod is deleted; every other ends at once, with exit
// code 0.
const FakeHold = "slipway.dev/fake:holds"

func kwokCommand(c *Cluster) []string {
	return []string{
		filepath.Join(c.record.Kwok, "kwok"), "--kubeconfig=" + c.Kubeconfig, "--config=" + c.path("config", "kwok.yaml"),
		"--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake", "--node-ip=" + c.record.Address.String(), "--v=WARN",
	}
}

func fakeNode(n int) string { return fmt.Sprintf("fake-%d", n) }

// makeFakeNodes makes what kwok takes for its nodes.
func (c *Cluster) makeFakeNodes(ctx context.Context) error {
	for n := range fakeNodes {
		name := fakeNode(n)
		node := `{"apiVersion":"v1","kind":"Node","metadata":{"name":"` + name + `","annotations":{"kwok.x-k8s.io/node":"fake"},"labels":{"kubernetes.io/hostname":"` + name + `"}}}`
		if err := c.ask(ctx, http.MethodPatch, c.APIServer+"/api/v1/nodes/"+name+"?fieldManager=slipway&force=true", node, nil); err != nil {
			return fmt.Errorf("make node %s: %w", name, err)
		}
	}
	return nil
}

// probeFakeNodes is content when the last node is ready.
func probeFakeNodes(ctx context.Context, c *Cluster) error {
	var node struct {
		Status struct {
			Conditions []struct{ Type, Status string }
		}
	}
	if err := c.get(ctx, c.APIServer+"/api/v1/nodes/"+fakeNode(fakeNodes-1), &node); err != nil {
		return err
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == "Ready" && condition.Status == "True" {
			return nil
		}
	}
	return errors.New("the fake nodes are not ready yet")
}

// kwokConfig: after kwok's own stages for nodes, and for pods of Jobs. Nothing in them waits: a pod runs at once and has
// ended at once, but for one of FakeHold. The parallelisms have to be set, or kwok exits.
const kwokConfig = `apiVersion: config.kwok.x-k8s.io/v1alpha1
kind: KwokConfiguration
options:
  nodePlayStageParallelism: 4
  podPlayStageParallelism: 16
  nodeLeaseParallelism: 4
  nodeLeaseDurationSeconds: 40
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: node-ready}
spec:
  resourceRef: {apiGroup: v1, kind: Node}
  selector:
    matchExpressions:
    - {key: '.status.conditions.[] | select( .type == "Ready" ) | .status', operator: NotIn, values: ["True"]}
  next:
    statusTemplate: |
      {{ $now := Now }}
      conditions:
      {{ range NodeConditions }}
      - {lastHeartbeatTime: {{ $now | Quote }}, lastTransitionTime: {{ $now | Quote }}, message: {{ .message | Quote }}, reason: {{ .reason | Quote }}, status: {{ .status | Quote }}, type: {{ .type | Quote }}}
      {{ end }}
      addresses: [{address: {{ NodeIP | Quote }}, type: InternalIP}]
      allocatable: {cpu: 1k, memory: 1Ti, pods: 1M}
      capacity: {cpu: 1k, memory: 1Ti, pods: 1M}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-runs}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - {key: .metadata.deletionTimestamp, operator: DoesNotExist}
    - {key: .status.phase, operator: In, values: [Pending]}
  next:
    statusTemplate: |
      {{ $now := Now }}
      phase: Running
      startTime: {{ $now | Quote }}
      conditions:
      {{ range $type := list "Initialized" "Ready" "ContainersReady" }}
      - {lastTransitionTime: {{ $now | Quote }}, status: "True", type: {{ $type }}}
      {{ end }}
      initContainerStatuses:
      {{ range .spec.initContainers }}
      - image: {{ .image | Quote }}
        name: {{ .name | Quote }}
        ready: true
        restartCount: 0
        state: {terminated: {exitCode: 0, reason: Completed, startedAt: {{ $now | Quote }}, finishedAt: {{ $now | Quote }}}}
      {{ end }}
      containerStatuses:
      {{ range .spec.containers }}
      - image: {{ .image | Quote }}
        name: {{ .name | Quote }}
        ready: true
        restartCount: 0
        state: {running: {startedAt: {{ $now | Quote }}}}
      {{ end }}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-ends}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - {key: .metadata.deletionTimestamp, operator: DoesNotExist}
    - {key: .status.phase, operator: In, values: [Running]}
    - {key: '.spec.containers.[].image', operator: NotIn, values: ["` + FakeHold + `"]}
  next:
    statusTemplate: |
      {{ $now := Now }}
      phase: Succeeded
      containerStatuses:
      {{ range .spec.containers }}
      - image: {{ .image | Quote }}
        name: {{ .name | Quote }}
        ready: false
        restartCount: 0
        state: {terminated: {exitCode: 0, reason: Completed, startedAt: {{ $now | Quote }}, finishedAt: {{ $now | Quote }}}}
      {{ end }}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-goes}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - {key: .metadata.deletionTimestamp, operator: Exists}
  next: {delete: true}
`
