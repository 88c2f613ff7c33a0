package local

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// hierarchy is one mounted tree of control groups: one of version 2, or one
// per controller of version 1, or both.
type hierarchy struct {
	mount   string
	version int
	options string
}

func hierarchies() ([]hierarchy, error) {
	raw, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("list cgroup hierarchies: %w", err)
	}
	return parseHierarchies(raw), nil
}

func parseHierarchies(mountinfo []byte) []hierarchy {
	var list []hierarchy
	scanner := bufio.NewScanner(bytes.NewReader(mountinfo))
	for scanner.Scan() {
		before, after, ok := strings.Cut(scanner.Text(), " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !ok || len(left) < 5 || len(right) < 3 {
			continue
		}
		switch right[0] {
		case "cgroup":
			list = append(list, hierarchy{left[4], 1, right[2]})
		case "cgroup2":
			list = append(list, hierarchy{left[4], 2, right[2]})
		}
	}
	return list
}

// cgroup is the parent of all pods of this cluster, in every hierarchy.
func (c *Cluster) cgroup() string { return "/slipway-" + c.record.ID }

// makeCgroup makes it in all hierarchies and lets it use all controllers.
func makeCgroup(group string) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return errors.New("make cgroup: no cgroup hierarchy is mounted on this machine")
	}
	for _, h := range all {
		dir := filepath.Join(h.mount, group)
		if h.version == 2 {
			delegate(h.mount)
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make cgroup: %w", err)
		}
		switch {
		case h.version == 2:
			delegate(dir)
		case slices.Contains(strings.Split(h.options, ","), "cpuset"):
			// A cpuset begins empty, and then nothing can run in it.
			for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
				if err := copyFile(filepath.Join(h.mount, file), filepath.Join(dir, file)); err != nil {
					return fmt.Errorf("make cgroup: %w", err)
				}
			}
		}
	}
	return nil
}

// delegate gives the controllers of version 2 to the groups below. One that
// cannot be given is missed by the kubelet, which says so.
func delegate(dir string) {
	raw, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return
	}
	for _, controller := range strings.Fields(string(raw)) {
		_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+controller), 0o644)
	}
}

func copyFile(from, to string) error {
	raw, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, raw, 0o644)
}

// contained finds the processes of the cluster's containers.
func contained(group string) []process {
	return scan(func(pid int) bool {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		return err == nil && (bytes.Contains(raw, []byte(":"+group+"/")) || bytes.Contains(raw, []byte(":"+group+"\n")))
	})
}

// removeCgroup removes it and all below. The kernel may need a moment after
// the last process ended.
func removeCgroup(ctx context.Context, group string) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range all {
		dir := filepath.Join(h.mount, group)
		err := poll(ctx, 10*time.Second, func(context.Context) error { return removeTree(dir) })
		if err != nil {
			return fmt.Errorf("remove cgroup: %w", err)
		}
	}
	return nil
}

// removeTree removes folders from the bottom up; the files of a cgroup go with
// their folder.
func removeTree(dir string) error {
	var folders []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			folders = append(folders, path)
		}
		return nil // a folder may go away while we walk
	})
	if err != nil {
		return err
	}
	var errs []error
	for _, folder := range slices.Backward(folders) {
		if err := os.Remove(folder); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
