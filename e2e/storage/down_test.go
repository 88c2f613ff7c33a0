package storage

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"slipway.dev/slipway/e2e/cluster/local"
)

func TestDownLeavesNothingOfVolumesWhateverWasKilled(t *testing.T) {
	if testing.Short() || os.Geteuid() != 0 {
		t.Skip("runs a whole cluster, as root; not under -short")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	name := fmt.Sprintf("test-volumes-%d", os.Getpid())
	t.Cleanup(func() {
		if err := local.Down(context.Background(), name); err != nil {
			t.Error(err)
		}
	})
	c, err := local.Up(ctx, local.Options{Name: name, Storage: true, Log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	s := Of(t, c)
	s.Claim(t, "default", "data", Claim{})
	s.Pod(t, "default", "data") // its image is not there; its volume is mounted before that is known
	eventually(t, "the volume to be mounted", func() bool { return len(s.Contents(t, "default").Mounts) > 0 })
	var devices []string
	for device := range loops(t, c) {
		devices = append(devices, device)
	}
	for _, part := range []string{"loopcsi", "csi-provisioner", "kubelet", "containerd"} {
		if err := c.Signal(part, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	if err := local.Down(ctx, name); err != nil {
		t.Fatal(err)
	}
	for _, device := range devices {
		// Another cluster may have taken the device by now.
		file, err := os.ReadFile(filepath.Join("/sys/block", filepath.Base(device), "loop/backing_file"))
		if err == nil && strings.Contains(string(file), name) {
			t.Errorf("%s still holds %s", device, file)
		}
	}
	if _, err := os.Stat(c.Dir); !os.IsNotExist(err) {
		t.Errorf("the folder is left (%v)", err)
	}
}

func loops(t *testing.T, c *local.Cluster) map[string]string {
	t.Helper()
	all, err := c.LoopDevices()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		t.Error("no loop device is in use while a volume is mounted")
	}
	return all
}
