package local

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
)

// part is one program of a cluster.
type part struct {
	name  string
	argv  func(*Cluster) []string
	probe func(context.Context, *Cluster) error // nil: it is ready to be used
}

// parts lists the programs of the cluster in the order of their start.
func (c *Cluster) parts() []part {
	profile := c.Profile
	list := []part{
		{"etcd", etcdCommand, probeEtcd},
		{"kube-apiserver", apiserverCommand, probeAPIServer},
		{"kube-controller-manager", controllerManagerCommand, probeControllerManager},
	}
	if profile != API {
		list = append(list, part{"kube-scheduler", schedulerCommand, probeScheduler})
	}
	if profile == Fake {
		list = append(list, part{"kwok", kwokCommand, probeFakeNodes})
	}
	if profile == Node {
		list = append(
			list,
			part{"containerd", containerdCommand, probeContainerd},
			part{"kubelet", kubeletCommand, probeKubelet},
			part{"kube-proxy", proxyCommand, probeProxy},
		)
	}
	if c.Storage {
		list = append(list, storageParts...)
	}
	return list
}

func (c *Cluster) part(name string) (part, error) {
	for _, p := range c.parts() {
		if p.name == name {
			return p, nil
		}
	}
	return part{}, fmt.Errorf("cluster %s has no part %q; its parts: %v", c.Name, name, c.Parts())
}

func (c *Cluster) program(name string) string { return filepath.Join(c.record.Bin, name) }

func (c *Cluster) pki(file string) string { return c.path("pki", file) }

func (c *Cluster) url(port int) string {
	return fmt.Sprintf("https://%s:%d", c.record.Address, port)
}

func etcdCommand(c *Cluster) []string {
	client, peer := c.url(c.record.Ports.Etcd), c.url(c.record.Ports.EtcdPeer)
	argv := []string{
		c.program("etcd"), "--name=" + c.Name, "--data-dir=" + c.path("etcd"),
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=" + c.Name + "=" + peer,
		"--cert-file=" + c.pki("server.crt"), "--key-file=" + c.pki("server.key"),
		"--client-cert-auth", "--trusted-ca-file=" + c.pki("ca.crt"),
		"--peer-cert-file=" + c.pki("server.crt"), "--peer-key-file=" + c.pki("server.key"),
		"--peer-client-cert-auth", "--peer-trusted-ca-file=" + c.pki("ca.crt"),
		"--quota-backend-bytes=4294967296", "--log-level=warn",
	}
	if !c.record.Fsync {
		argv = append(argv, "--unsafe-no-fsync")
	}
	return argv
}

func apiserverCommand(c *Cluster) []string {
	argv := []string{
		c.program("kube-apiserver"),
		"--bind-address=" + c.record.Address.String(), "--advertise-address=" + c.record.Address.String(),
		"--secure-port=" + strconv.Itoa(c.record.Ports.APIServer),
		"--etcd-servers=" + c.url(c.record.Ports.Etcd), "--etcd-cafile=" + c.pki("ca.crt"),
		"--etcd-certfile=" + c.pki("etcd-client.crt"), "--etcd-keyfile=" + c.pki("etcd-client.key"),
		"--tls-cert-file=" + c.pki("server.crt"), "--tls-private-key-file=" + c.pki("server.key"),
		"--client-ca-file=" + c.pki("ca.crt"),
		"--requestheader-client-ca-file=" + c.pki("ca.crt"), "--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + c.pki("front-proxy.crt"), "--proxy-client-key-file=" + c.pki("front-proxy.key"),
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--allow-privileged",
		"--service-cluster-ip-range=" + c.record.servicePrefix().String(),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + c.pki("service-account.key"),
		"--service-account-signing-key-file=" + c.pki("service-account.key"),
		"--audit-policy-file=" + c.path("config", "audit.yaml"), "--audit-log-path=" + c.AuditLog,
		"--audit-log-mode=blocking", "--audit-log-maxsize=0",
	}
	if c.Profile != Node {
		// The address is loopback, which an Endpoints object may not hold.
		return append(argv, "--endpoint-reconciler-type=none")
	}
	return append(
		argv,
		"--kubelet-preferred-address-types=InternalIP", "--kubelet-certificate-authority="+c.pki("ca.crt"),
		"--kubelet-client-certificate="+c.pki("kubelet-client.crt"), "--kubelet-client-key="+c.pki("kubelet-client.key"),
	)
}

func controllerManagerCommand(c *Cluster) []string {
	config := c.path("config", "controller-manager.kubeconfig")
	argv := []string{
		c.program("kube-controller-manager"),
		"--bind-address=" + c.record.Address.String(), "--secure-port=" + strconv.Itoa(c.record.Ports.ControllerManager),
		"--tls-cert-file=" + c.pki("server.crt"), "--tls-private-key-file=" + c.pki("server.key"),
		"--kubeconfig=" + config, "--authentication-kubeconfig=" + config, "--authorization-kubeconfig=" + config,
		"--leader-elect=false", "--use-service-account-credentials",
		"--root-ca-file=" + c.pki("ca.crt"),
		"--service-account-private-key-file=" + c.pki("service-account.key"),
		"--cluster-signing-cert-file=" + c.pki("ca.crt"), "--cluster-signing-key-file=" + c.pki("ca.key"),
	}
	if c.Profile == API {
		// Node objects without a kubelet would be found dead and pods without a
		// Node would be collected.
		argv = append(argv, "--controllers=*,-node-lifecycle-controller,-pod-garbage-collector-controller")
	}
	if c.record.Tuned {
		argv = append(argv, "--kube-api-qps=1000", "--kube-api-burst=1000", "--concurrent-job-syncs=32",
			"--concurrent-gc-syncs=32", "--concurrent-ttl-after-finished-syncs=16")
	}
	return argv
}

func schedulerCommand(c *Cluster) []string {
	config := c.path("config", "scheduler.kubeconfig")
	return []string{
		c.program("kube-scheduler"), "--config=" + c.path("config", "scheduler.yaml"),
		"--bind-address=" + c.record.Address.String(), "--secure-port=" + strconv.Itoa(c.record.Ports.Scheduler),
		"--tls-cert-file=" + c.pki("server.crt"), "--tls-private-key-file=" + c.pki("server.key"),
		"--authentication-kubeconfig=" + config, "--authorization-kubeconfig=" + config,
	}
}

func containerdCommand(c *Cluster) []string {
	return []string{"containerd", "--config", c.path("config", "containerd.toml")}
}

func kubeletCommand(c *Cluster) []string {
	return []string{
		c.program("kubelet"), "--config=" + c.path("config", "kubelet.yaml"),
		"--kubeconfig=" + c.path("config", "kubelet.kubeconfig"),
		"--hostname-override=" + c.NodeName, "--node-ip=" + c.record.Address.String(),
	}
}

func proxyCommand(c *Cluster) []string {
	return []string{c.program("kube-proxy"), "--config=" + c.path("config", "proxy.yaml")}
}
