package local

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestMain fails the tests if a goroutine is left.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestAControlPlaneComesUpIsRepairedAndLeavesNothing runs real programs. The
// first run on a machine compiles Kubernetes, which takes minutes.
func TestAControlPlaneComesUpIsRepairedAndLeavesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("runs etcd and kube-apiserver, and compiles them if need be; not under -short")
	}
	ctx := t.Context()
	o := Options{Name: "test-local", Profile: API, Log: t.Output()}
	downAtEnd(t, o.Name)
	c := must(t)(Up(ctx, o))
	etcd := pid(t, c, "etcd")
	if again := must(t)(Up(ctx, o)); pid(t, again, "etcd") != etcd {
		t.Fatal("a repeated up started etcd again")
	}
	if _, err := Up(ctx, Options{Name: o.Name, Profile: API, Tuned: true}); err == nil {
		t.Fatal("up with other options took the cluster that runs")
	}
	createJob(t, c)

	// What a crash leaves: a part that is gone, another without a record.
	if err := c.Signal("etcd", syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	stray := pid(t, c, "kube-controller-manager")
	if err := os.Remove(c.path("pid", "kube-controller-manager.json")); err != nil {
		t.Fatal(err)
	}
	c = must(t)(Up(ctx, o))
	if pid(t, c, "etcd") == etcd || pid(t, c, "kube-controller-manager") == stray {
		t.Fatal("up did not repair the cluster")
	}
	kubectl(t, c, "get", "job", "kept")

	if err := c.StopPart(ctx, "kube-apiserver"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Pid("kube-apiserver"); err == nil {
		t.Fatal("a stopped part has a pid")
	}
	if err := c.StartPart(ctx, "kube-apiserver"); err != nil {
		t.Fatal(err)
	}
	if n := jobsCreated(t, c); n != 1 {
		t.Fatalf("the audit log tells of %d Jobs created, not of 1", n)
	}
	if err := c.Signal("etcd", syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	goneAfterDown(t, c)
}

// TestANodeRunsPodsIsRepairedAndLeavesNothing is the same with a real node.
func TestANodeRunsPodsIsRepairedAndLeavesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a whole cluster, and compiles it if need be; not under -short")
	}
	if os.Geteuid() != 0 {
		t.Skip("a node needs root")
	}
	ctx := t.Context()
	o := Options{Name: "test-node", Log: t.Output()}
	downAtEnd(t, o.Name)
	c := must(t)(Up(ctx, o))
	kubectl(t, c, "run", "kept", "--image="+PauseImage, "--restart=Always")
	kubectl(t, c, "wait", "--for=condition=Ready", "pod/kept", "--timeout=60s")

	// The keeper of the namespaces dies: everything is started again around
	// what etcd and containerd have on disk.
	keeper, _ := c.running(keeperPart)
	if err := keeper.signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	c = must(t)(Up(ctx, o))
	kubectl(t, c, "wait", "--for=jsonpath={.status.containerStatuses[0].restartCount}=1", "pod/kept", "--timeout=60s")

	// Down finds all without the parts that would tell of it.
	for _, part := range []string{"containerd", "kubelet"} {
		if err := c.Signal(part, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	goneAfterDown(t, c)
	if left := contained(c.cgroup()); len(left) > 0 {
		t.Errorf("containers are left: %+v", left)
	}
	if isFolder("/sys/class/net/" + c.link()) {
		t.Error("the link is left")
	}
	if c.claimed(ctx) {
		t.Error("the addresses are still claimed")
	}
	all, err := hierarchies()
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range all {
		if isFolder(filepath.Join(h.mount, c.cgroup())) {
			t.Errorf("cgroup %s is left below %s", c.cgroup(), h.mount)
		}
	}
}

// downAtEnd gives the test a state folder of its own and removes the cluster
// whatever comes.
func downAtEnd(t *testing.T, name string) {
	t.Helper()
	t.Setenv("SLIPWAY_STATE", t.TempDir())
	t.Cleanup(func() {
		if err := Down(context.Background(), name); err != nil {
			t.Error(err)
		}
	})
}

func goneAfterDown(t *testing.T, c *Cluster) {
	t.Helper()
	for range 2 { // a repeated down is no error
		if err := Down(t.Context(), c.Name); err != nil {
			t.Fatal(err)
		}
	}
	if left := marked(c.record.ID); len(left) > 0 {
		t.Errorf("processes are left: %+v", left)
	}
	entries, err := os.ReadDir(filepath.Dir(c.Dir))
	if err != nil || len(entries) > 0 {
		t.Errorf("files are left: %v (%v)", entries, err)
	}
	if c.Profile == Node {
		return
	}
	listener, err := net.Listen("tcp", netip.AddrPortFrom(c.record.Address, uint16(c.record.Ports.APIServer)).String())
	if err != nil {
		t.Fatalf("the port is not free: %v", err)
	}
	listener.Close()
}

func must(t *testing.T) func(*Cluster, error) *Cluster {
	return func(c *Cluster, err error) *Cluster {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
}

func pid(t *testing.T, c *Cluster, part string) int {
	t.Helper()
	n, err := c.Pid(part)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func kubectl(t *testing.T, c *Cluster, args ...string) {
	t.Helper()
	out, err := exec.Command(c.Kubectl, append([]string{"--kubeconfig", c.Kubeconfig}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %v: %v: %s", args, err, out)
	}
}

func createJob(t *testing.T, c *Cluster) {
	t.Helper()
	kubectl(t, c, "create", "job", "kept", "--image=none")
}

func jobsCreated(t *testing.T, c *Cluster) int {
	t.Helper()
	raw, err := os.ReadFile(c.AuditLog)
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for line := range bytes.Lines(raw) {
		var event struct {
			Verb           string
			ObjectRef      struct{ Resource, Subresource string }
			ResponseStatus struct{ Code int }
		}
		if err := json.Unmarshal(line, &event); err != nil {
			t.Fatalf("audit log: %v: %s", err, line)
		}
		if event.Verb == "create" && event.ObjectRef.Resource == "jobs" && event.ResponseStatus.Code == 201 {
			count++
		}
	}
	return count
}

func TestLoopDevicesAreFreedWhateverTheirFileWasCalled(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("loop devices need root")
	}
	dir, alias := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "volume"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	// As in a container: attached by another path than the host's.
	other := filepath.Join(alias, "vol")
	if err := os.Link(filepath.Join(dir, "volume"), other); err != nil {
		t.Fatal(err)
	}
	out, err := command(t.Context(), "losetup", "--find", "--show", other)
	if err != nil {
		t.Skip("this machine has no loop devices:", err)
	}
	device := strings.TrimSpace(out)
	if err := poll(t.Context(), 5*time.Second, func(context.Context) error { return detachLoops(dir) }); err != nil {
		t.Error(err)
		_ = loopRequest(device, loopClear, nil)
	}
	if out, _ := command(t.Context(), "losetup", "--noheadings", "--output", "NAME", "--associated", other); out != "" {
		t.Errorf("%s is still attached", out)
	}
}
