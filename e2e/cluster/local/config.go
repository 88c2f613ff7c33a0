package local

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// writeConfigs lays the configuration files of all parts. It is repeated by
// every Up that starts something.
func (c *Cluster) writeConfigs() error {
	if err := os.MkdirAll(c.path("config"), 0o700); err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	files := map[string]string{"audit.yaml": auditPolicy}
	if c.Profile != API {
		qps, burst := 50, 100
		if c.record.Tuned {
			qps, burst = 1000, 1000
		}
		files["scheduler.yaml"] = fmt.Sprintf(schedulerConfig, c.path("config", "scheduler.kubeconfig"), qps, burst)
	}
	if c.Profile == Fake {
		files["kwok.yaml"] = kwokConfig
	}
	if c.Profile == Node {
		address, pods := c.record.Address, c.record.podPrefix()
		files["kubelet.yaml"] = fmt.Sprintf(kubeletConfig, address, c.path("pki"), c.cgroup(), c.syncFrequency())
		files["proxy.yaml"] = fmt.Sprintf(proxyConfig, address, c.path("config", "proxy.kubeconfig"), pods, c.NodeName)
		files["containerd.toml"] = fmt.Sprintf(containerdConfig, PauseImage, c.path("config", "cni"), c.snapshotter())
		files["cni/10-slipway.conflist"] = fmt.Sprintf(networkConfig, pods)
		if err := os.MkdirAll(c.path("config", "cni"), 0o700); err != nil {
			return fmt.Errorf("write configuration: %w", err)
		}
	}
	var errs []error
	for name, text := range files {
		errs = append(errs, writeFile(c.path("config", name), []byte(text)))
	}
	return errors.Join(append(errs, c.writeKubeconfigs())...)
}

// syncFrequency is how often the kubelet looks at each pod anew. It grows a mounted volume only then, and its own minute
// is long for a test.
func (c *Cluster) syncFrequency() string {
	if c.Storage {
		return "2s"
	}
	return "1m"
}

// snapshotter is overlayfs, except where the state folder itself is on an
// overlay, which cannot be stacked.
func (c *Cluster) snapshotter() string {
	const overlayMagic = 0x794c7630
	var fs syscall.Statfs_t
	if err := syscall.Statfs(c.Dir, &fs); err == nil && fs.Type == overlayMagic {
		return "native"
	}
	return "overlayfs"
}

// auditPolicy keeps who did what to Jobs and pods, reads too, and every other
// write, so that tests can count Jobs ever created.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  resources:
  - group: batch
  - group: ""
    resources: [pods, pods/status, pods/binding, pods/eviction, pods/exec, pods/log, pods/resize, bindings]
- level: None
  resources:
  - {group: "", resources: [events]}
  - {group: events.k8s.io}
  - {group: coordination.k8s.io}
- level: Metadata
  verbs: [create, update, patch, delete, deletecollection]
- level: None
`

const schedulerConfig = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {kubeconfig: "%s", qps: %d, burst: %d}
leaderElection: {leaderElect: false}
`

// kubeletConfig evicts nothing, so that a full disk of the developer's machine
// changes no test, and runs on cgroup v1 and v2. singleProcessOOMKill: else
// cgroup v2 kills the whole container with the process.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: %[1]s
healthzBindAddress: 127.0.0.1
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: "%[2]s/ca.crt"}
authorization: {mode: Webhook}
tlsCertFile: "%[2]s/kubelet-server.crt"
tlsPrivateKeyFile: "%[2]s/kubelet-server.key"
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
cgroupRoot: "%[3]s"
failCgroupV1: false
failSwapOn: false
singleProcessOOMKill: true
evictionHard: {}
imageGCHighThresholdPercent: 100
resolvConf: /dev/null
clusterDomain: cluster.local
maxPods: 250
nodeStatusReportFrequency: 1m
volumeStatsAggPeriod: 10s
syncFrequency: %[4]s
`

// proxyConfig leaves the limits of connection tracking alone: they are the
// host's, and read-only in a network namespace.
const proxyConfig = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
bindAddress: %[1]s
healthzBindAddress: "%[1]s:10256"
metricsBindAddress: "%[1]s:10249"
clientConnection: {kubeconfig: "%[2]s"}
clusterCIDR: %[3]s
hostnameOverride: %[4]s
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
`

// containerdConfig: without CAP_SYS_RESOURCE runc cannot lower a score below
// its own and dies, hence restrict_oom_score_adj.
const containerdConfig = `version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.aufs"]
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "%s"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "%s"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "%s"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
`

// networkConfig routes every pod by a link of its own. On a bridge an answer
// from a Service's pod to a pod beside it would pass by connection tracking,
// unless the kernel has br_netfilter.
const networkConfig = `{
  "cniVersion": "1.0.0",
  "name": "slipway",
  "plugins": [{
    "type": "ptp",
    "ipMasq": false,
    "ipam": {
      "type": "host-local",
      "dataDir": "/var/lib/cni/networks",
      "ranges": [[{"subnet": "%s"}]],
      "routes": [{"dst": "0.0.0.0/0"}]
    }
  }]
}
`
