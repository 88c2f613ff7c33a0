package local

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestBlocksOfTwoClustersNeverOverlap(t *testing.T) {
	first, err := chooseBlock("demo-aaaaaa", nil)
	if err != nil {
		t.Fatal(err)
	}
	again, err := chooseBlock("demo-aaaaaa", nil)
	if err != nil || again != first {
		t.Fatalf("the same id gave %v, then %v (%v)", first, again, err)
	}
	taken := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}
	for range 64 {
		block, err := chooseBlock("demo-aaaaaa", taken)
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(taken[1:], block.Overlaps) || !blocks.Contains(block.Addr()) || block != block.Masked() {
			t.Fatalf("block %v overlaps %v", block, taken)
		}
		// One address is enough to take a block.
		taken = append(taken, netip.PrefixFrom(block.Addr().Next(), 32))
	}
	if block, err := chooseBlock("demo-aaaaaa", taken); err == nil {
		t.Fatalf("all blocks are taken, got %v", block)
	}
}

func TestAddressesOfABlockAreDisjoint(t *testing.T) {
	r := record{Profile: Node, Block: nthBlock(63)}
	if got := r.Block.String(); got != "198.19.248.0/21" {
		t.Fatalf("last block is %s", got)
	}
	link := netip.PrefixFrom(r.Block.Addr(), 24)
	parts := []netip.Prefix{link, r.servicePrefix(), r.podPrefix()}
	for i, a := range parts {
		if !r.Block.Overlaps(a) || a != a.Masked() {
			t.Errorf("%v is no part of %v", a, r.Block)
		}
		for _, b := range parts[i+1:] {
			if a.Overlaps(b) {
				t.Errorf("%v overlaps %v", a, b)
			}
		}
	}
	if !link.Contains(r.hostAddress()) || !link.Contains(r.nodeAddress()) || r.hostAddress() == r.nodeAddress() {
		t.Errorf("link %v has host %v and node %v", link, r.hostAddress(), r.nodeAddress())
	}
}

func TestRoutesOfTheHostAreRead(t *testing.T) {
	got, err := parseRoutes([]byte(`[{"dst":"default"},{"dst":"192.0.2.0/24"},{"type":"local","dst":"127.0.0.1"},{"type":"unreachable","dst":"198.18.8.0/21"}]`))
	if err != nil {
		t.Fatal(err)
	}
	want := []netip.Prefix{
		netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("127.0.0.1/32"), netip.MustParsePrefix("198.18.8.0/21"),
	}
	if !slices.Equal(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}

func TestCertificatesServeTheAddressesThatClientsUse(t *testing.T) {
	c := record{Name: "demo", ID: "demo-1", Profile: Node, Block: nthBlock(1), Address: netip.MustParseAddr("198.18.8.2")}.cluster(t.TempDir())
	if err := c.ensurePKI(time.Now()); err != nil {
		t.Fatal(err)
	}
	ca := x509.NewCertPool()
	ca.AddCert(readCert(t, c.pki("ca.crt")))
	for _, name := range []string{"198.18.8.2", "198.18.9.1", "127.0.0.1", "kubernetes.default.svc"} {
		if _, err := readCert(t, c.pki("server.crt")).Verify(x509.VerifyOptions{Roots: ca, DNSName: name}); err != nil {
			t.Errorf("API server as %s: %v", name, err)
		}
	}
	if _, err := readCert(t, c.pki("kubelet-server.crt")).Verify(x509.VerifyOptions{Roots: ca, DNSName: "198.18.8.2"}); err != nil {
		t.Errorf("kubelet: %v", err)
	}
	kubelet := readCert(t, c.pki("kubelet.crt")).Subject
	if kubelet.CommonName != "system:node:demo-node" || !slices.Equal(kubelet.Organization, []string{"system:nodes"}) {
		t.Errorf("the kubelet is %s", kubelet)
	}
	before := readCert(t, c.pki("ca.crt"))
	if err := c.ensurePKI(time.Now()); err != nil || !before.Equal(readCert(t, c.pki("ca.crt"))) {
		t.Errorf("a second call made a new authority (%v)", err)
	}
}

func readCert(t *testing.T, path string) *x509.Certificate {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(raw)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func TestAProcessThatReusesAPidIsNotTakenForOurs(t *testing.T) {
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = child.Process.Kill(); _ = child.Wait() }()
	ours, _, err := identify(child.Process.Pid)
	if err != nil || !ours.alive() {
		t.Fatalf("process %+v does not live (%v)", ours, err)
	}
	for name, other := range map[string]process{
		"started at another time": {ours.PID, ours.Start + 1, ours.Boot},
		"in another boot":         {ours.PID, ours.Start, "other"},
		"no process":              {},
	} {
		if other.alive() {
			t.Errorf("%s: taken for ours", name)
		}
		if err := other.signal(syscall.SIGKILL); err == nil {
			t.Errorf("%s: signalled", name)
		}
	}
	if !ours.alive() {
		t.Error("a process that is not ours was killed")
	}
}

func TestStatIsReadWhateverTheProcessIsCalled(t *testing.T) {
	state, start, err := parseStat([]byte("7 (a) Z (b) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 1 1"))
	if err != nil || state != 'S' || start != 4711 {
		t.Fatalf("got %c %d %v", state, start, err)
	}
	if _, _, err := parseStat([]byte("7 (x")); err == nil {
		t.Fatal("half a line was read")
	}
}

func TestMarkedProcessesAreFoundWithoutARecord(t *testing.T) {
	id := "test-" + filepath.Base(t.TempDir()) + "-" + t.Name()
	child := exec.Command("sleep", "60")
	child.Env = []string{"A=1", clusterVariable + "=" + id, "Z=1"}
	other := exec.Command("sleep", "60")
	other.Env = []string{clusterVariable + "=" + id + "x"}
	for _, cmd := range []*exec.Cmd{child, other} {
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	}
	found := marked(id)
	if len(found) != 1 || found[0].PID != child.Process.Pid {
		t.Fatalf("found %+v, want process %d", found, child.Process.Pid)
	}
	if err := end(context.Background(), 0, found...); err != nil || len(marked(id)) != 0 {
		t.Fatalf("it still runs (%v)", err)
	}
}

func TestMountsBelowAFolderAreFoundInnermostLast(t *testing.T) {
	info := "1 0 8:1 / /s/demo rw - ext4 /dev/x rw\n2 1 8:1 / /s/demo/a\\040b rw - ext4 /dev/x rw\n3 1 8:1 / /s/demo2 rw - ext4 /dev/x rw\n"
	if got := mountsBelow([]byte(info), "/s/demo"); !slices.Equal(got, []string{"/s/demo", "/s/demo/a b"}) {
		t.Fatalf("got %q", got)
	}
}

func TestCgroupsOfBothVersionsAreSeen(t *testing.T) {
	info := "30 25 0:26 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset\n" +
		"31 25 0:27 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw\n" +
		"32 25 0:28 / /proc rw - proc proc rw\n"
	got := parseHierarchies([]byte(info))
	want := []hierarchy{{"/sys/fs/cgroup/cpuset", 1, "rw,cpuset"}, {"/sys/fs/cgroup/unified", 2, "rw"}}
	if !slices.Equal(got, want) {
		t.Fatalf("got %+v", got)
	}
}

func TestNamesThatMakeNoFolderAreRefused(t *testing.T) {
	for _, name := range []string{"", "..", "a/b", "A", "-a", strings.Repeat("a", 31)} {
		if _, _, err := place(name); err == nil {
			t.Errorf("%q was taken", name)
		}
	}
}

func TestTheSameNameInTwoStateFoldersIsTwoClusters(t *testing.T) {
	t.Setenv("SLIPWAY_STATE", "/a")
	_, one, _ := place("demo")
	t.Setenv("SLIPWAY_STATE", "/b")
	_, two, _ := place("demo")
	if one == two {
		t.Fatalf("both are %s", one)
	}
}

func TestALockHeldByOneIsWaitedForByTheOther(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	held, err := lock(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := lock(ctx, path, cancel); err == nil {
		t.Fatal("two hold the lock")
	}
	held.Close()
	held, err = lock(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	held.Close()
}

func TestEveryProgramHasItsName(t *testing.T) {
	for pkg, want := range map[string]string{
		"go.etcd.io/etcd/server/v3": "etcd", "k8s.io/kubernetes/cmd/kubelet": "kubelet", pausePackage: "pause",
	} {
		if got := programName(pkg); got != want {
			t.Errorf("%s: %s", pkg, got)
		}
	}
}

func TestPauseImageIsOneStaticProgram(t *testing.T) {
	archive := filepath.Join(t.TempDir(), "pause.tar")
	if err := writePauseImage(archive, []byte("program")); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(archive)
	if err != nil || !bytes.Contains(raw, []byte(PauseImage)) {
		t.Fatalf("archive of %d bytes does not name the image (%v)", len(raw), err)
	}
}

// TestAControlPlaneComesUpIsRepairedAndLeavesNothing runs real programs. The
// first run on a machine compiles Kubernetes, which takes minutes.
func TestAControlPlaneComesUpIsRepairedAndLeavesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("runs etcd and kube-apiserver, and compiles them if need be; not under -short")
	}
	ctx := t.Context()
	t.Setenv("SLIPWAY_STATE", t.TempDir())
	if os.Getenv("SLIPWAY_CACHE") == "" {
		cache, err := cacheRoot()
		if err != nil {
			t.Fatal(err)
		}
		t.Setenv("SLIPWAY_CACHE", cache)
	}
	t.Cleanup(func() {
		if err := Down(context.Background(), "test-local"); err != nil {
			t.Error(err)
		}
	})
	o := Options{Name: "test-local", Profile: API, Log: t.Output()}
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
