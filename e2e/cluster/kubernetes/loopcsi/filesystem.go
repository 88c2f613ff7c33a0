package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// The two file systems. ext4 is grown while mounted only by who has CAP_SYS_RESOURCE, which a sandboxed machine may
// withhold even from root; there a volume is xfs unless its class asks for ext4.
const (
	ext4 = "ext4"
	xfs  = "xfs"
)

// usual is what a volume gets whose class names no file system.
func usual() string {
	if capable(24) {
		return ext4
	}
	return xfs
}

// capable says whether this process has a capability, by its number in linux/capability.h.
func capable(number int) bool {
	raw, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(raw)) {
		if mask, ok := strings.CutPrefix(line, "CapEff:"); ok {
			bits, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
			return err == nil && bits>>number&1 == 1
		}
	}
	return false
}

// makeFileSystem makes an empty one of this size.
func makeFileSystem(ctx context.Context, kind, path string, bytes int64) error {
	fresh := path + ".new"
	if err := errors.Join(os.RemoveAll(fresh), truncate(fresh, bytes)); err != nil {
		return err
	}
	argv := []string{"mkfs.ext4", "-q", "-F", "-m", "0", "-E", "nodiscard", fresh}
	if kind == xfs {
		argv = []string{"mkfs.xfs", "-q", "-K", "--unsupported", fresh} // below 300 MiB
	}
	if err := command(ctx, argv[0], argv[1:]...); err != nil {
		return err
	}
	return os.Rename(fresh, path)
}

// mountOptions of a file system: a copy has the identity of its source, which xfs minds.
func mountOptions(kind string) []string {
	if kind == xfs {
		return []string{"loop", "nouuid"}
	}
	return []string{"loop"}
}

// growFileSystem makes a mounted one as large as its device, and the device as long as its file.
func growFileSystem(ctx context.Context, kind, device, mounted string) error {
	if err := command(ctx, "losetup", "--set-capacity", device); err != nil {
		return err
	}
	if kind == xfs {
		return command(ctx, "xfs_growfs", mounted)
	}
	return command(ctx, "resize2fs", device)
}

// frozenCopy holds the file system still for the time of the copy.
const frozenCopy = `fsfreeze --freeze "$1" && { timeout 60 cp --sparse=always "$2" "$3"; code=$?; fsfreeze --unfreeze "$1"; exit $code; }`

// copyImage copies a file system, with all that was written to it if it is mounted. The copying of a mounted one is a
// process that nobody ends, since a file system that stays frozen hangs whoever writes to it: it does not end with the
// driver or with the call, and has not the mark by which the cluster's processes are killed.
func copyImage(ctx context.Context, to, from, mounted string) error {
	if mounted == "" {
		return command(ctx, "cp", "--sparse=always", from, to)
	}
	cmd := exec.Command("/bin/sh", "-c", frozenCopy, "frozen-copy", mounted, from, to)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("copy %s: %w: %s", from, err, strings.TrimSpace(string(out)))
	}
	return nil
}

func truncate(path string, bytes int64) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("size %s: %w", path, err)
	}
	if err := errors.Join(file.Truncate(bytes), file.Close()); err != nil {
		return fmt.Errorf("size %s: %w", path, err)
	}
	return nil
}

func command(ctx context.Context, name string, args ...string) error {
	if out, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
