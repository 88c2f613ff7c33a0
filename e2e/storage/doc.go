// Package storage lets tests use the volumes of a cluster with storage, and its CSI driver's switches.
//
// Volumes are real: file systems on loop devices, made, grown, copied and mounted by csi-provisioner, csi-resizer,
// csi-snapshotter and the kubelet as anywhere. They are ext4, or xfs where the machine does not let ext4 grow while it is
// mounted. The driver is e2e/cluster/kubernetes/loopcsi; the classes are in e2e/cluster/local/storage.yaml.
//
// Allowed imports: e2e/rig, e2e/cluster/local, client-go.
package storage
