package local

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
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
	for stat, wantEnded := range map[string]bool{
		"7 (a) Z (b) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 1 1": false,
		"7 (a b) Z 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 0 0":     true,
		"7 (a b) Z 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 9 0 4711 0 0":     false, // other threads still run
	} {
		if ended, start, err := parseStat([]byte(stat)); err != nil || ended != wantEnded || start != 4711 {
			t.Errorf("%s: got %t %d %v", stat, ended, start, err)
		}
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
