// Package local runs a real Kubernetes cluster on this machine, built from
// module sources, for "make demo" and for the tests. A cluster of profile
// "api" is etcd, kube-apiserver and kube-controller-manager on a loopback
// address; profile "fake" adds kube-scheduler and kwok, which plays nodes
// without running a program; profile "node" adds kube-scheduler, containerd, kubelet and
// kube-proxy and runs everything in network and mount namespaces of its own, so
// that ports, routes, nftables, mounts and /var/lib/kubelet are private and end
// with the last process.
//
// A node may have storage: csi-provisioner, csi-resizer, csi-snapshotter and snapshot-controller, with a CSI driver whose
// volumes are files on loop devices. See e2e/storage.
//
// Everything that a cluster keeps stands in one folder (Cluster.Dir). Every
// process carries the cluster's id in its environment and every container is
// in the cluster's cgroup, so that Down finds them whatever died before.
//
// Imports: the standard library and go-containerregistry (the pause image).
package local
