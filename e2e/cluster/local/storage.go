package local

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// csiDriver is the name of the driver in e2e/cluster/kubernetes/loopcsi.
const csiDriver = "loop.csi.slipway.dev"

// csiSocket is where it listens, on the node.
const csiSocket = "/run/slipway/csi.sock"

// snapshotModule holds the definitions of VolumeSnapshot and its kin.
const snapshotModule = "github.com/kubernetes-csi/external-snapshotter/client/v8"

const snapshotDefinitions = "snapshots.yaml"

// sidecarSet is what Kubernetes runs beside any CSI driver; driverSet is ours.
var (
	sidecarSet = set{
		name: "sidecars",
		packages: []string{
			"github.com/kubernetes-csi/external-provisioner/v6/cmd/csi-provisioner",
			"github.com/kubernetes-csi/external-resizer/v2/cmd/csi-resizer",
			"github.com/kubernetes-csi/external-snapshotter/v8/cmd/csi-snapshotter",
			"github.com/kubernetes-csi/external-snapshotter/v8/cmd/snapshot-controller",
		},
		files: copyDefinitions,
	}
	driverSet = set{name: "loopcsi", packages: []string{"./loopcsi"}, source: "loopcsi"}
)

// storageParts start after the kubelet, which the driver reports to.
var storageParts = []part{
	{"loopcsi", driverCommand, probeDriver},
	{"csi-provisioner", provisionerCommand, probeSidecar(provisionerPort)},
	{"csi-resizer", resizerCommand, probeSidecar(resizerPort)},
	{"csi-snapshotter", snapshotterCommand, probeSidecar(snapshotterPort)},
	{"snapshot-controller", snapshotControllerCommand, probeSidecar(snapshotControllerPort)},
}

// The ports on which the programs tell that they live; they are the node's own.
const (
	provisionerPort        = 10401
	resizerPort            = 10402
	snapshotterPort        = 10403
	snapshotControllerPort = 10404
)

// storageObjects are the driver's registration and the classes, see StorageClass and its kin.
//
//go:embed storage.yaml
var storageObjects []byte

// StorageDir is the folder of what the CSI driver has: see e2e/storage.
func (c *Cluster) StorageDir() string { return c.path("storage") }

func driverCommand(c *Cluster) []string {
	return []string{
		filepath.Join(c.record.Driver, "loopcsi"), "--dir=" + c.StorageDir(), "--socket=" + csiSocket,
		"--registry=/var/lib/kubelet/plugins_registry", "--node=" + c.NodeName,
	}
}

// sidecar is what the four have in common. A driver that does not answer is asked again soon: tests wait for it.
func (c *Cluster) sidecar(program string, port int, args ...string) []string {
	return append([]string{
		filepath.Join(c.record.Sidecar, program), "--kubeconfig=" + c.Kubeconfig, "--http-endpoint=" + c.sidecarAddress(port),
		"--kube-api-qps=1000", "--kube-api-burst=1000", "--retry-interval-start=500ms", "--retry-interval-max=5s",
	}, args...)
}

func (c *Cluster) sidecarAddress(port int) string {
	return net.JoinHostPort(c.record.Address.String(), strconv.Itoa(port))
}

func provisionerCommand(c *Cluster) []string {
	return c.sidecar("csi-provisioner", provisionerPort, "--csi-address="+csiSocket, "--extra-create-metadata", "--timeout=10s")
}

func resizerCommand(c *Cluster) []string {
	return c.sidecar("csi-resizer", resizerPort, "--csi-address="+csiSocket)
}

func snapshotterCommand(c *Cluster) []string {
	return c.sidecar("csi-snapshotter", snapshotterPort, "--csi-address="+csiSocket, "--extra-create-metadata", "--timeout=10s", withoutGroups)
}

func snapshotControllerCommand(c *Cluster) []string {
	return c.sidecar("snapshot-controller", snapshotControllerPort, withoutGroups)
}

// withoutGroups: snapshots of several volumes at once are another API, which nobody here uses.
const withoutGroups = "--feature-gates=CSIVolumeGroupSnapshot=false"

func probeSidecar(port int) func(context.Context, *Cluster) error {
	return func(ctx context.Context, c *Cluster) error {
		return c.ask(ctx, http.MethodGet, "http://"+c.sidecarAddress(port)+"/metrics", "", nil)
	}
}

// probeDriver is content when the kubelet has taken the driver: before that nothing is provisioned.
func probeDriver(ctx context.Context, c *Cluster) error {
	var node struct {
		Spec struct {
			Drivers []struct{ Name string }
		}
	}
	if err := c.get(ctx, c.APIServer+"/apis/storage.k8s.io/v1/csinodes/"+c.NodeName, &node); err != nil {
		return err
	}
	if !slices.ContainsFunc(node.Spec.Drivers, func(d struct{ Name string }) bool { return d.Name == csiDriver }) {
		return errNoDriver
	}
	return nil
}

var errNoDriver = errors.New("the kubelet does not know the CSI driver yet")

// bringStorage starts what a cluster with volumes has beside the others.
func (c *Cluster) bringStorage(ctx context.Context, p *progress) error {
	definitions, err := os.ReadFile(filepath.Join(c.record.Sidecar, snapshotDefinitions))
	if err != nil {
		return fmt.Errorf("define snapshots: %w", err)
	}
	if err := c.apply(ctx, definitions); err != nil {
		return fmt.Errorf("define snapshots: %w", err)
	}
	// A definition takes a moment to become a type.
	if err := poll(ctx, 30*time.Second, func(ctx context.Context) error { return c.apply(ctx, storageObjects) }); err != nil {
		return fmt.Errorf("make storage classes: %w", err)
	}
	var names []string
	for _, part := range storageParts {
		names = append(names, part.name)
	}
	return c.startStage(ctx, p, names)
}

// RestartDriver starts the CSI driver again, killed or not, and returns when the kubelet knows the new one. The programs
// beside it end when they lose it, and are started with it, as a kubelet would.
func (c *Cluster) RestartDriver(ctx context.Context) error {
	for _, part := range slices.Backward(storageParts) {
		if err := c.StopPart(ctx, part.name); err != nil {
			return err
		}
	}
	// A killed one leaves its socket, and the kubelet believes that.
	socket := c.path("node", "lib", "kubelet", "plugins_registry", csiDriver+"-reg.sock")
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("restart the CSI driver: %w", err)
	}
	err := poll(ctx, readyBound, func(ctx context.Context) error {
		if err := probeDriver(ctx, c); !errors.Is(err, errNoDriver) {
			return errors.Join(errors.New("the kubelet still knows the old one"), err)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("restart the CSI driver: %w", err)
	}
	for _, part := range storageParts {
		if err := c.StartPart(ctx, part.name); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) apply(ctx context.Context, documents []byte) error {
	cmd := exec.CommandContext(ctx, c.Kubectl, "--kubeconfig", c.Kubeconfig, "apply", "--server-side", "-f", "-")
	cmd.Stdin = bytes.NewReader(documents)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("apply: %w: %s", err, lastOf(string(out), 3))
	}
	return nil
}

// copyDefinitions takes the definitions from their module.
func copyDefinitions(ctx context.Context, source, dir string) error {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", snapshotModule)
	cmd.Dir, cmd.Env = source, buildEnv()
	raw, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("find %s: %w", snapshotModule, err)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(raw, &module); err != nil {
		return fmt.Errorf("find %s: %w", snapshotModule, err)
	}
	files, err := filepath.Glob(filepath.Join(module.Dir, "config/crd/snapshot.storage.k8s.io_*.yaml"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("find the definitions of snapshots in %s: there are none", module.Dir)
	}
	var all bytes.Buffer
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("read a definition: %w", err)
		}
		all.WriteString("---\n" + strings.TrimPrefix(string(text), "---\n"))
	}
	if err := os.WriteFile(filepath.Join(dir, snapshotDefinitions), all.Bytes(), 0o644); err != nil {
		return fmt.Errorf("copy the definitions: %w", err)
	}
	return nil
}

// LoopDevices lists the devices that hold a file of the cluster, with that file.
func (c *Cluster) LoopDevices() (map[string]string, error) { return loopsBelow(c.Dir) }

// LoopMounts lists the mounts of those devices on the node, as "device place".
func (c *Cluster) LoopMounts() ([]string, error) {
	keeper, ok := c.running(keeperPart)
	if !ok {
		return nil, errEnded
	}
	devices, err := c.LoopDevices()
	if err != nil {
		return nil, err
	}
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", keeper.PID))
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	var mounts []string
	for line := range strings.Lines(string(raw)) {
		before, after, _ := strings.Cut(line, " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if len(left) > 4 && len(right) > 1 && devices[right[1]] != "" {
			mounts = append(mounts, right[1]+" "+left[4])
		}
	}
	return mounts, nil
}
