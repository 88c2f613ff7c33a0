package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Down removes a cluster: every process, mount, loop device, network
// namespace, cgroup and file. It needs no part of it to be alive, and a
// cluster that does not exist is no error.
func Down(ctx context.Context, name string) error {
	dir, id, err := place(name)
	if err != nil {
		return err
	}
	held, err := lockName(ctx, name, newProgress("cluster "+name, nil))
	if err != nil {
		return err
	}
	defer func() { _ = held.Close() }()
	r := record{Name: name, ID: id, Profile: API}
	if raw, err := os.ReadFile(filepath.Join(dir, "cluster.json")); err == nil {
		_ = json.Unmarshal(raw, &r) // a broken one: what is known by the id alone is removed
	}
	c := r.cluster(dir)
	if err := c.remove(ctx); err != nil {
		return fmt.Errorf("take down cluster %s: %w", name, err)
	}
	return os.Remove(held.Name())
}

func (c *Cluster) remove(ctx context.Context) error {
	if err := c.killAll(ctx); err != nil {
		return err
	}
	// The namespaces end with their last process; only what is seen from the
	// host is left.
	if c.Profile == Node {
		if err := errors.Join(c.removeLink(ctx), c.releaseBlock(ctx)); err != nil {
			return err
		}
	}
	if err := removeCgroup(ctx, c.cgroup()); err != nil {
		return err
	}
	if err := unmountBelow(c.Dir); err != nil {
		return err
	}
	if err := poll(ctx, 10*time.Second, func(context.Context) error { return detachLoops(c.Dir) }); err != nil {
		return err
	}
	if err := os.RemoveAll(c.Dir); err != nil {
		return fmt.Errorf("remove state folder: %w", err)
	}
	return nil
}

// killAll ends what carries the cluster's mark (parts, shims, commands on the
// node) and what is in its cgroup (containers), until nothing new appears.
func (c *Cluster) killAll(ctx context.Context) error {
	for {
		found := append(marked(c.record.ID), contained(c.cgroup())...)
		if len(found) == 0 {
			return nil
		}
		if err := end(ctx, 0, found...); err != nil {
			return err
		}
	}
}

// unmountBelow removes mounts that a test made on the host.
func unmountBelow(dir string) error {
	raw, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("list mounts: %w", err)
	}
	for _, point := range slices.Backward(mountsBelow(raw, dir)) {
		if err := syscall.Unmount(point, syscall.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s: %w", point, err)
		}
	}
	return nil
}

func mountsBelow(mountinfo []byte, dir string) []string {
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var points []string
	for line := range strings.Lines(string(mountinfo)) {
		if fields := strings.Fields(line); len(fields) > 4 {
			if point := unescape.Replace(fields[4]); point == dir || strings.HasPrefix(point, dir+"/") {
				points = append(points, point)
			}
		}
	}
	return points
}
