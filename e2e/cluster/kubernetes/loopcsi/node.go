package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/mount-utils"
)

// NodeStageVolume mounts a volume. The kernel frees the loop device with the last mount, so that none can be left.
func (d *driver) NodeStageVolume(ctx context.Context, r *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	d.work.Lock()
	defer d.work.Unlock()
	var v volume
	if found, err := read(d.disk.volumes(), r.GetVolumeId(), &v); err != nil || !found {
		return nil, missing("volume", r.GetVolumeId(), err)
	}
	options := append(mountOptions(v.FS), r.GetVolumeCapability().GetMount().GetMountFlags()...)
	if err := d.mount(image(d.disk.volumes(), v.ID), r.GetStagingTargetPath(), v.FS, options); err != nil || !v.Grow {
		return &csi.NodeStageVolumeResponse{}, err
	}
	if err := d.grow(ctx, v); err != nil {
		return nil, err
	}
	v.Grow = false
	return &csi.NodeStageVolumeResponse{}, internal(write(d.disk.volumes(), v.ID, v))
}

// NodePublishVolume shows a staged volume to a pod.
func (d *driver) NodePublishVolume(_ context.Context, r *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	d.work.Lock()
	defer d.work.Unlock()
	options := []string{"bind"}
	if r.GetReadonly() {
		options = append(options, "ro")
	}
	return &csi.NodePublishVolumeResponse{}, d.mount(r.GetStagingTargetPath(), r.GetTargetPath(), "", options)
}

func (d *driver) mount(source, target, kind string, options []string) error {
	if err := os.MkdirAll(target, 0o750); err != nil {
		return internal(fmt.Errorf("make mount point: %w", err))
	}
	if mounted, err := d.mounter.IsMountPoint(target); err != nil || mounted {
		return internal(err)
	}
	if err := d.mounter.Mount(source, target, kind, options); err != nil {
		return internal(fmt.Errorf("mount: %w", err))
	}
	return nil
}

// NodeUnpublishVolume takes a volume from a pod.
func (d *driver) NodeUnpublishVolume(_ context.Context, r *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	return &csi.NodeUnpublishVolumeResponse{}, d.unmount(r.GetTargetPath())
}

// NodeUnstageVolume unmounts a volume.
func (d *driver) NodeUnstageVolume(_ context.Context, r *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	return &csi.NodeUnstageVolumeResponse{}, d.unmount(r.GetStagingTargetPath())
}

func (d *driver) unmount(target string) error {
	d.work.Lock()
	defer d.work.Unlock()
	return internal(mount.CleanupMountPoint(target, d.mounter, true))
}

// NodeExpandVolume makes the device as long as the file, and the file system as large as the device.
func (d *driver) NodeExpandVolume(ctx context.Context, r *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	d.work.Lock()
	defer d.work.Unlock()
	var v volume
	if found, err := read(d.disk.volumes(), r.GetVolumeId(), &v); err != nil || !found {
		return nil, missing("volume", r.GetVolumeId(), err)
	}
	if err := d.grow(ctx, v); err != nil {
		return nil, err
	}
	return &csi.NodeExpandVolumeResponse{CapacityBytes: v.Bytes}, nil
}

func (d *driver) grow(ctx context.Context, v volume) error {
	file := image(d.disk.volumes(), v.ID)
	devices, err := loopsOf(file)
	if err != nil {
		return internal(err)
	}
	mounted, err := d.mountOf(file)
	if err != nil {
		return internal(err)
	}
	if mounted == "" {
		return status.Errorf(codes.FailedPrecondition, "volume %s is not mounted", v.ID)
	}
	return internal(growFileSystem(ctx, v.FS, devices[0], mounted))
}

// NodeGetVolumeStats tells what the file system holds.
func (d *driver) NodeGetVolumeStats(_ context.Context, r *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(r.GetVolumePath(), &s); err != nil {
		return nil, status.Errorf(codes.NotFound, "volume_path %s: %v", r.GetVolumePath(), err)
	}
	return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{
		{
			Unit: csi.VolumeUsage_BYTES, Total: int64(s.Blocks) * s.Bsize,
			Available: int64(s.Bavail) * s.Bsize, Used: int64(s.Blocks-s.Bfree) * s.Bsize,
		},
		{Unit: csi.VolumeUsage_INODES, Total: int64(s.Files), Available: int64(s.Ffree), Used: int64(s.Files - s.Ffree)},
	}}, nil
}

// loopsOf lists the loop devices of a file.
func loopsOf(file string) ([]string, error) {
	backing, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, err
	}
	var devices []string
	for _, path := range backing {
		name, err := os.ReadFile(path)
		if err != nil {
			continue // the device was freed meanwhile
		}
		if string(name) == file+"\n" {
			devices = append(devices, "/dev/"+filepath.Base(filepath.Dir(filepath.Dir(path))))
		}
	}
	slices.Sort(devices)
	return devices, nil
}
