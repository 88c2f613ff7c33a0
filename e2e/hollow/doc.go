// Package hollow plays nodes for a cluster that has none (profile api): the parts of scheduler, kubelet, kube-proxy and
// pod garbage collector that Slipway can see. A real kubelet starts about three pods a second here and cannot be lost at
// will; hollow nodes start dozens at once and can.
//
// Real are: the API server and every object in it; the Job controller; the program of each container, which is the
// tree's own runner in a process and user of its own, in a pid namespace of its own, below a root folder of its own; its
// token, asked for by TokenRequest and bound to the pod; its exit code, its termination message, its death with its
// first process; SIGTERM, grace periods and SIGKILL.
//
// Played are:
//
//   - scheduler: each pod is bound to some node that is there; nothing is ever unschedulable.
//   - kubelet: the Node object with its Lease; the statuses Pending (where something holds the pod up), Running,
//     Succeeded, Failed, in that order, as a kubelet writes them; activeDeadlineSeconds, counted from the start time, also where it is lowered
//     later (reason DeadlineExceeded); deletion with its grace period, at least 2 s where that is 0, and the delete with
//     grace 0 once the containers have ended; a pod that was deleted before its containers were made
//     (ContainerStatusUnknown, 137); the downward API. A finalizer is left alone: it is not the kubelet's.
//   - network: each node passes calls to the control plane on by itself, as kube-proxy does for a Service: the address
//     in a container's environment is that of its node's way, which can fall silent. Everything else is reached directly.
//   - pod garbage collector: pods of a deleted Node are marked failed (DisruptionTarget, DeletionByPodGC) and deleted by
//     force, whatever their processes do.
//
// Not played: logs through the kubelet, volumes but emptyDir and the token, cgroups, probes, images, sidecars.
//
// What can go wrong with a node is in faults.go.
//
// Allowed imports: the standard library and client-go.
package hollow
