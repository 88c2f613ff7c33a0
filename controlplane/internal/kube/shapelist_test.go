package kube

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"slipway.dev/slipway/pkg/task"
)

// shapes lists what kubelet, Job controller, pod garbage collector, eviction, taints, preemption, node shutdown and people
// make of an Attempt's Job and pods.
func shapes() []shape {
	var all []shape
	for _, part := range [][]shape{startShapes(), endShapes(), disruptionShapes(), sidecarShapes(), goneShapes()} {
		for _, s := range part {
			if s.node == nil {
				s.node = healthy()
			}
			if s.node.Name == "" {
				s.node = nil
			}
			all = append(all, s)
		}
	}
	return all
}

// deletedNode stands for a Node that is not there.
func deletedNode() *corev1.Node { return &corev1.Node{} }

func one(j *batchv1.Job, change ...func(*corev1.Pod)) (*batchv1.Job, []*corev1.Pod) {
	return j, []*corev1.Pod{podOf(change...)}
}

func named(name string, node *corev1.Node, j *batchv1.Job, pods []*corev1.Pod) shape {
	return shape{name: name, job: j, pods: pods, node: node}
}

func startShapes() []shape {
	pending := func(name, reason, message string) shape {
		j, pods := one(jobOf(), is(waits(reason, message)))
		return named(name, nil, j, pods)
	}
	with := func(name string, j *batchv1.Job, change ...func(*corev1.Pod)) shape {
		j, pods := one(j, change...)
		return named(name, nil, j, pods)
	}
	const pull = `failed to pull and unpack image "registry.example/tools:9": `
	return []shape{
		{name: "job without a pod", job: jobOf()},
		{name: "job suspended by a queue", job: jobOf(func(j *batchv1.Job) { j.Spec.Suspend = new(true); j.Status.StartTime = nil })},
		with("pod not scheduled yet", jobOf(), unbound),
		with("no node fits", jobOf(), unschedulable("Unschedulable", "0/3 nodes are available: 3 Insufficient cpu.")),
		with("scheduling gated", jobOf(), unschedulable("SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates")),
		with("bound without statuses", jobOf()),
		pending("container creating", "ContainerCreating", ""),
		pending("image name malformed", "InvalidImageName", `Failed to apply default image tag "x:y:z": couldn't parse image name`),
		pending("image tag unknown", "ErrImagePull", `rpc error: code = NotFound desc = `+pull+`failed to resolve reference: registry.example/tools:9: not found`),
		pending("image tag unknown, backing off", "ImagePullBackOff", `Back-off pulling image "registry.example/tools:9": ErrImagePull: rpc error: code = NotFound desc = `+pull+`not found`),
		pending("image backing off without a cause", "ImagePullBackOff", `Back-off pulling image "registry.example/tools:9"`),
		pending("pull secret missing", "ErrImagePull", pull+`failed to authorize: failed to fetch anonymous token: unexpected status: 401 Unauthorized`),
		pending("registry unreachable", "ErrImagePull", pull+`failed to do request: dial tcp 10.0.0.9:5000: connect: connection refused`),
		pending("registry unreachable, backing off", "ImagePullBackOff", `Back-off pulling image "registry.example/tools:9": ErrImagePull: `+pull+`dial tcp 10.0.0.9:5000: i/o timeout`),
		pending("registry overloaded", "ErrImagePull", pull+`unexpected status: 503 Service Unavailable`),
		pending("registry unavailable by the runtime's word", "RegistryUnavailable", "down"),
		pending("image never pulled", "ErrImageNeverPull", `Container image "x" is not present with pull policy of Never`),
		pending("secret missing", "CreateContainerConfigError", `secret "db" not found`),
		pending("key of a config map missing", "CreateContainerConfigError", `couldn't find key host in ConfigMap shop/db`),
		pending("secret not read yet", "CreateContainerConfigError", "failed to sync secret cache: timed out waiting for the condition"),
		pending("container cannot be created", "CreateContainerError", "context deadline exceeded"),
		with("init container's image unknown", jobOf(), before("fetch", waits("ErrImagePull", pull+"not found")), is(waits("PodInitializing", ""))),
		with("runner copied in, main pulls", jobOf(), before(task.RunnerContainer, ends(0, "Completed", "")), is(waits("ErrImagePull", pull+"not found"))),
		with("running", jobOf(), says(corev1.PodRunning, "", ""), is(runs())),
	}
}

func endShapes() []shape {
	end := func(name string, code int32, reason, message string, change ...func(*corev1.Pod)) shape {
		phase, kind := corev1.PodSucceeded, batchv1.JobComplete
		if code != 0 {
			phase, kind = corev1.PodFailed, batchv1.JobFailed
		}
		j, pods := one(jobDone(kind), append([]func(*corev1.Pod){says(phase, "", ""), is(ends(code, reason, message))}, change...)...)
		return named(name, nil, j, pods)
	}
	failed := func(name string, change ...func(*corev1.Pod)) shape {
		j, pods := one(jobDone(batchv1.JobFailed), append([]func(*corev1.Pod){says(corev1.PodFailed, "", "")}, change...)...)
		return named(name, nil, j, pods)
	}
	initial := is(waits("PodInitializing", ""))
	early := end("exit 0 before the job says so", 0, "Completed", "")
	early.job = jobOf()
	return []shape{
		end("exit 0", 0, "Completed", ""), early,
		end("exit 3", 3, "Error", ""),
		end("exit 255", 255, "Error", ""),
		end("killed by a signal", 137, "Error", ""),
		end("told to stop and obeyed", 143, "Error", ""),
		end("message of a success", 0, "Completed", "v1 7 41 succeeded -"),
		end("message of a failure", 1, "Error", "v1 7 41 failed exit_code exit 1"),
		end("message of another fence", 0, "Completed", "v1 7 40 failed exit_code"),
		end("message of a start only", 137, "Error", "v1 7 41 started -"),
		end("killed for memory", 137, "OOMKilled", "v1 7 41 started -"),
		end("a child killed for memory, exit 0", 0, "OOMKilled", "v1 7 41 started -"),
		end("a child killed for memory, and the runner says success", 0, "OOMKilled", "v1 7 41 succeeded -"),
		failed("killed for memory beside a deadline", func(p *corev1.Pod) { p.Status.Reason = "DeadlineExceeded" }, is(ends(137, "OOMKilled", ""))),
		failed("killed by the deadline", func(p *corev1.Pod) { p.Status.Reason = "DeadlineExceeded" }, is(ends(137, "Error", ""))),
		failed("told by the deadline, exit 0", func(p *corev1.Pod) { p.Status.Reason = "DeadlineExceeded" }, is(ends(0, "Completed", ""))),
		failed("told by the deadline, then deleted", func(p *corev1.Pod) { p.Status.Reason = "DeadlineExceeded" }, is(ends(0, "Completed", "")), deleted),
		end("gate refused", task.ExitGateRefused, "Error", ""),
		end("unreachable", task.ExitUnreachable, "Error", ""),
		end("command does not exist", 128, "StartError", "exec: no such file"),
		end("container cannot run", 127, "ContainerCannotRun", "not executable"),
		failed("status unknown", is(unfound())),
		failed("failed without statuses"),
		failed("gate refused before main", before(task.GateContainer, ends(task.ExitGateRefused, "Error", "")), initial),
		failed("gate reached nobody", before(task.GateContainer, ends(task.ExitUnreachable, "Error", "")), initial),
		failed("runner not copied in", before(task.RunnerContainer, ends(1, "Error", "no space left")), initial),
		failed("an own init container failed", before("fetch", ends(3, "Error", "")), initial),
		failed("an own init container ended with a reserved code", before("fetch", ends(task.ExitGateRefused, "Error", "")), initial),
		failed("an own init container killed for memory", before("fetch", ends(137, "OOMKilled", "")), initial),
		failed("kept from starting until stopped", before(task.GateContainer, ends(0, "Completed", "")), is(unfound()), func(p *corev1.Pod) { p.Status.Reason = "DeadlineExceeded" }),
	}
}

func disruptionShapes() []shape {
	ended := func(name string, code int32, change ...func(*corev1.Pod)) shape {
		phase := corev1.PodSucceeded
		kind := batchv1.JobComplete
		if code != 0 {
			phase, kind = corev1.PodFailed, batchv1.JobFailed
		}
		j, pods := one(jobDone(kind), append([]func(*corev1.Pod){says(phase, "", ""), is(ends(code, "Error", ""))}, change...)...)
		return named(name, nil, j, pods)
	}
	failed := func(name, reason string, change ...func(*corev1.Pod)) shape {
		j, pods := one(jobDone(batchv1.JobFailed), append([]func(*corev1.Pod){says(corev1.PodFailed, reason, "the kubelet says why")}, change...)...)
		return named(name, nil, j, pods)
	}
	on := func(name string, node *corev1.Node, phase corev1.PodPhase, change ...func(*corev1.Pod)) shape {
		j, pods := one(jobOf(), append([]func(*corev1.Pod){says(phase, "", ""), is(runs())}, change...)...)
		return named(name, node, j, pods)
	}
	return []shape{
		ended("evicted by the call, exit 0", 0, disrupted("EvictionByEvictionAPI"), deleted),
		ended("evicted by the call, exit 143", 143, disrupted("EvictionByEvictionAPI"), deleted),
		ended("preempted by the scheduler", 143, disrupted("PreemptionByScheduler"), deleted),
		ended("deleted by a person, exit 0", 0, deleted),
		ended("deleted, and held by another's finalizer", 143, deleted, foreign),
		failed("evicted for node pressure", "Evicted", is(ends(137, "Error", "")), disrupted("TerminationByKubelet")),
		failed("evicted before it started", "Evicted", disrupted("TerminationByKubelet")),
		failed("killed for memory while evicted", "Evicted", is(ends(137, "OOMKilled", "")), disrupted("TerminationByKubelet")),
		failed("preempted by the kubelet", "Preempting", is(ends(0, "Completed", "")), disrupted("TerminationByKubelet")),
		failed("node shut down", "Terminated", is(ends(143, "Error", "")), disrupted("TerminationByKubelet")),
		failed("node shut down, in the older word", "Shutdown", is(ends(143, "Error", ""))),
		failed("node lost, in the older word", "NodeLost", is(ends(143, "Error", ""))),
		failed("node out of cpu", "OutOfcpu"),
		failed("node affinity", "NodeAffinity"),
		failed("node ports", "NodePorts"),
		failed("unexpected admission error", "UnexpectedAdmissionError"),
		failed("collected with its node, container running by old news", "", is(runs()), disrupted("DeletionByPodGC"), deleted),
		failed("collected with its node, never started by old news", "", is(waits("ContainerCreating", "")), disrupted("DeletionByPodGC"), deleted),
		failed("collected with its node, without statuses", "", disrupted("DeletionByPodGC"), deleted),
		failed("collected with its node, after it had ended", "", is(ends(1, "Error", "")), disrupted("DeletionByPodGC"), deleted),
		failed("collected before it was bound", "", unbound, disrupted("DeletionByPodGC"), deleted),
		ended("tainted away and ended", 143, disrupted("DeletionByTaintManager"), deleted),
		on("tainted away, node silent", healthy(silentNode), corev1.PodRunning, disrupted("DeletionByTaintManager"), deleted),
		on("node silent", healthy(silentNode), corev1.PodRunning),
		on("node out of service, collected", healthy(silentNode, outOfService), corev1.PodFailed, disrupted("DeletionByTaintManager"), deleted),
		on("node out of service, deletion under way", healthy(silentNode, outOfService), corev1.PodRunning, disrupted("DeletionByTaintManager"), deleted),
		on("node deleted, pod not collected yet", deletedNode(), corev1.PodRunning),
		on("deletion under way", nil, corev1.PodRunning, deleted),
		on("eviction under way", nil, corev1.PodRunning, deleted, disrupted("EvictionByEvictionAPI")),
		on("deletion under way, held by another's finalizer", nil, corev1.PodRunning, deleted, foreign),
		ended("a disruption of a new name", 0, disrupted("SomethingNew")),
	}
}

func sidecarShapes() []shape {
	with := func(name string, j *batchv1.Job, change ...func(*corev1.Pod)) shape {
		j, pods := one(j, change...)
		return named(name, nil, j, pods)
	}
	running, success, failure := says(corev1.PodRunning, "", ""), says(corev1.PodSucceeded, "", ""), says(corev1.PodFailed, "", "")
	done, overdue := is(ends(0, "Completed", "")), says(corev1.PodFailed, "DeadlineExceeded", "")
	return []shape{
		with("sidecar at work beside main", jobOf(), running, beside("mesh", runs()), is(runs())),
		with("sidecar runs on", jobOf(), running, beside("mesh", runs()), done),
		with("sidecar ended by the kubelet", jobDone(batchv1.JobComplete), success, beside("mesh", ends(137, "Error", "")), done),
		with("sidecar killed for memory", jobDone(batchv1.JobComplete), success, beside("mesh", ends(137, "OOMKilled", "")), done),
		with("sidecar crashes before main", jobOf(), beside("mesh", waits("CrashLoopBackOff", "back-off 10s restarting failed container")), is(waits("PodInitializing", ""))),
		with("second container runs on", jobOf(), running, done, is(runs(), "mesh")),
		with("second container runs on after exit 3", jobOf(), running, is(ends(3, "Error", "")), is(runs(), "mesh")),
		with("second container runs on in a deleted pod", jobOf(), running, done, is(runs(), "mesh"), deleted),
		with("second container stopped by the lowered deadline", jobDone(batchv1.JobFailed), overdue, done, is(ends(137, "Error", ""), "mesh")),
		with("second container stopped by our delete", jobGoing(), failure, done, is(ends(137, "Error", ""), "mesh"), deleted),
		with("second container ended, main runs", jobOf(), running, is(runs()), is(ends(1, "Error", ""), "mesh")),
		with("second container failed, main did not", jobDone(batchv1.JobFailed), failure, done, is(ends(1, "Error", ""), "mesh")),
		with("second container killed for memory", jobDone(batchv1.JobFailed), failure, done, is(ends(137, "OOMKilled", ""), "mesh")),
		with("all have ended, the phase is held back", jobOf(), running, done, is(ends(0, "Completed", ""), "mesh")),
	}
}

func goneShapes() []shape {
	ended := func(code int32, change ...func(*corev1.Pod)) *corev1.Pod {
		phase := corev1.PodSucceeded
		if code != 0 {
			phase = corev1.PodFailed
		}
		return podOf(append([]func(*corev1.Pod){says(phase, "", ""), is(ends(code, "Error", ""))}, change...)...)
	}
	working := func(change ...func(*corev1.Pod)) *corev1.Pod {
		return podOf(append([]func(*corev1.Pod){says(corev1.PodRunning, "", ""), is(runs())}, change...)...)
	}
	orphan := ended(0)
	return []shape{
		{name: "nothing"},
		{name: "nothing, and the node deleted", node: deletedNode()},
		{name: "job complete, pod gone", job: jobDone(batchv1.JobComplete)},
		{name: "job failed, pod gone", job: jobDone(batchv1.JobFailed)},
		{name: "job being deleted, no pod", job: jobGoing("foregroundDeletion")},
		{name: "job held by another's finalizer, pod ended", job: jobGoing("example.com/hold"), pods: []*corev1.Pod{ended(143, deleted)}},
		{name: "job held by another's finalizer, pod running", job: jobGoing("example.com/hold"), pods: []*corev1.Pod{working()}},
		{name: "orphaned pod running", pods: []*corev1.Pod{working()}},
		{name: "orphaned pod ended", pods: []*corev1.Pod{orphan}},
		{name: "unbound pod being deleted", job: jobGoing(), pods: []*corev1.Pod{podOf(unbound, deleted)}},
		{name: "unbound pod being deleted, held by another's finalizer", job: jobGoing(), pods: []*corev1.Pod{podOf(unbound, deleted, foreign)}},
		{name: "namespace going, pod still running", job: jobGoing(), pods: []*corev1.Pod{working(deleted)}},
		{name: "namespace going, pod ended", job: jobGoing(), pods: []*corev1.Pod{ended(0, deleted)}},
		{name: "two pods, both running", job: jobOf(), pods: []*corev1.Pod{working(), working(another)}},
		{name: "two pods, the first ended, the second runs", job: jobOf(), pods: []*corev1.Pod{ended(0), working(another)}},
		{name: "two pods, the first ended, the second refused", job: jobDone(batchv1.JobFailed), pods: []*corev1.Pod{ended(0), ended(task.ExitGateRefused, another)}},
		{name: "two pods, the first force-deleted, the second refused", job: jobDone(batchv1.JobFailed), pods: []*corev1.Pod{ended(task.ExitGateRefused, another)}},
		{name: "a pod of a Job made anew", job: jobOf(func(j *batchv1.Job) { j.UID = "job-2" }), pods: []*corev1.Pod{ended(0), podOf(another, unbound)}},
	}
}
