package main

import (
	"context"
	"errors"
	"os"
	"strconv"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	block       = 4 << 10  // sizes are multiples of it
	smallest    = 16 << 20 // size of a volume
	defaultSize = 1 << 30  // of a volume whose size nobody said
)

// CreateVolume makes an empty file system, or a copy of a snapshot or of another volume. Asked again, it finds it.
func (d *driver) CreateVolume(ctx context.Context, r *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	id := r.GetName()
	if !validID.MatchString(id) {
		return nil, status.Errorf(codes.InvalidArgument, "name %q: use a-z, 0-9, . and -", id)
	}
	kind, err := fileSystemOf(r.GetVolumeCapabilities())
	if err != nil {
		return nil, err
	}
	iops, err := iopsOf(r.GetMutableParameters())
	if err != nil {
		return nil, err
	}
	bytes, err := d.size("CreateVolume", d.disk.objectsOf(r), r.GetCapacityRange())
	if err != nil {
		return nil, err
	}
	d.work.Lock()
	defer d.work.Unlock()
	var v volume
	found, err := read(d.disk.volumes(), id, &v)
	if err != nil {
		return nil, internal(err)
	}
	if found {
		if limit := r.GetCapacityRange().GetLimitBytes(); v.Bytes < r.GetCapacityRange().GetRequiredBytes() || limit > 0 && v.Bytes > limit {
			return nil, status.Errorf(codes.AlreadyExists, "volume %s exists with %d bytes", id, v.Bytes)
		}
		return d.created(r, v), nil
	}
	v = volume{ID: id, Bytes: bytes, IOPS: iops, FS: kind}
	if names := r.GetParameters(); names["csi.storage.k8s.io/pvc/name"] != "" {
		v.Object = names["csi.storage.k8s.io/pvc/namespace"] + "/" + names["csi.storage.k8s.io/pvc/name"]
	}
	if err := d.fill(ctx, &v, r.GetVolumeContentSource()); err != nil {
		return nil, err
	}
	if err := write(d.disk.volumes(), id, v); err != nil {
		return nil, internal(err)
	}
	return d.created(r, v), nil
}

func (d *driver) created(r *csi.CreateVolumeRequest, v volume) *csi.CreateVolumeResponse {
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{
		VolumeId: v.ID, CapacityBytes: v.Bytes, ContentSource: r.GetVolumeContentSource(), AccessibleTopology: []*csi.Topology{d.here()},
	}}
}

// fill makes the volume's file: an empty file system, or a copy.
func (d *driver) fill(ctx context.Context, v *volume, source *csi.VolumeContentSource) error {
	path := image(d.disk.volumes(), v.ID)
	if source == nil {
		return internal(makeFileSystem(ctx, v.FS, path, v.Bytes))
	}
	from, kind, least, err := d.source(source)
	if err != nil {
		return err
	}
	if v.Bytes < least {
		return status.Errorf(codes.OutOfRange, "the source has %d bytes, %d are too few", least, v.Bytes)
	}
	v.FS, v.Grow = kind, v.Bytes > least
	mounted, err := d.mountOf(from)
	if err != nil {
		return internal(err)
	}
	if err := copyImage(ctx, path+".new", from, mounted); err != nil {
		return internal(err)
	}
	return internal(errors.Join(truncate(path+".new", v.Bytes), os.Rename(path+".new", path)))
}

// source finds the file of what a volume is to be a copy of.
func (d *driver) source(source *csi.VolumeContentSource) (file, kind string, bytes int64, err error) {
	if id := source.GetSnapshot().GetSnapshotId(); id != "" {
		var s snapshot
		if found, err := read(d.disk.snapshots(), id, &s); err != nil || !found {
			return "", "", 0, missing("snapshot", id, err)
		}
		return image(d.disk.snapshots(), id), s.FS, s.Bytes, nil
	}
	id := source.GetVolume().GetVolumeId()
	var v volume
	if found, err := read(d.disk.volumes(), id, &v); err != nil || !found {
		return "", "", 0, missing("volume", id, err)
	}
	return image(d.disk.volumes(), id), v.FS, v.Bytes, nil
}

// DeleteVolume removes a volume that nothing has mounted.
func (d *driver) DeleteVolume(_ context.Context, r *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	d.work.Lock()
	defer d.work.Unlock()
	mounted, err := d.mountOf(image(d.disk.volumes(), r.GetVolumeId()))
	if err != nil {
		return nil, internal(err)
	}
	if mounted != "" {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s is mounted at %s", r.GetVolumeId(), mounted)
	}
	return &csi.DeleteVolumeResponse{}, internal(remove(d.disk.volumes(), r.GetVolumeId()))
}

// ValidateVolumeCapabilities confirms what CreateVolume accepts.
func (d *driver) ValidateVolumeCapabilities(_ context.Context, r *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	var v volume
	if found, err := read(d.disk.volumes(), r.GetVolumeId(), &v); err != nil || !found {
		return nil, missing("volume", r.GetVolumeId(), err)
	}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeCapabilities: r.GetVolumeCapabilities(),
	}}, nil
}

// ControllerExpandVolume makes the file longer. The node grows device and file system: at once if the volume is mounted,
// else when it is.
func (d *driver) ControllerExpandVolume(_ context.Context, r *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	bytes, err := d.size("ControllerExpandVolume", d.disk.objectsOf(r), r.GetCapacityRange())
	if err != nil {
		return nil, err
	}
	d.work.Lock()
	defer d.work.Unlock()
	var v volume
	if found, err := read(d.disk.volumes(), r.GetVolumeId(), &v); err != nil || !found {
		return nil, missing("volume", r.GetVolumeId(), err)
	}
	if bytes > v.Bytes {
		if err := truncate(image(d.disk.volumes(), v.ID), bytes); err != nil {
			return nil, internal(err)
		}
		v.Bytes = bytes
		if err := write(d.disk.volumes(), v.ID, v); err != nil {
			return nil, internal(err)
		}
	}
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: v.Bytes, NodeExpansionRequired: true}, nil
}

// ControllerModifyVolume takes the one parameter iops.
func (d *driver) ControllerModifyVolume(_ context.Context, r *csi.ControllerModifyVolumeRequest) (*csi.ControllerModifyVolumeResponse, error) {
	iops, err := iopsOf(r.GetMutableParameters())
	if err != nil {
		return nil, err
	}
	d.work.Lock()
	defer d.work.Unlock()
	var v volume
	if found, err := read(d.disk.volumes(), r.GetVolumeId(), &v); err != nil || !found {
		return nil, missing("volume", r.GetVolumeId(), err)
	}
	v.IOPS = iops
	return &csi.ControllerModifyVolumeResponse{}, internal(write(d.disk.volumes(), v.ID, v))
}

func fileSystemOf(capabilities []*csi.VolumeCapability) (string, error) {
	kind := usual()
	for _, capability := range capabilities {
		if capability.GetMount() == nil {
			return "", status.Error(codes.InvalidArgument, "volume_capabilities: only mounted file systems")
		}
		switch asked := capability.GetMount().GetFsType(); asked {
		case "":
		case ext4, xfs:
			kind = asked
		default:
			return "", status.Errorf(codes.InvalidArgument, "fs_type %q: use %s or %s", asked, ext4, xfs)
		}
	}
	return kind, nil
}

func iopsOf(parameters map[string]string) (string, error) {
	for key := range parameters {
		if key != "iops" {
			return "", status.Errorf(codes.InvalidArgument, "parameter %s is not known; there is iops", key)
		}
	}
	iops := parameters["iops"]
	if n, err := strconv.Atoi(iops); iops != "" && (err != nil || n < 1) {
		return "", status.Errorf(codes.InvalidArgument, "iops %q: use a whole number above 0", iops)
	}
	return iops, nil
}

// size is what is asked for, rounded up.
func (d *driver) size(method string, objects []string, r *csi.CapacityRange) (int64, error) {
	switches, err := d.rules(method, objects)
	if err != nil {
		return 0, internal(err)
	}
	bytes := r.GetRequiredBytes()
	if bytes == 0 {
		bytes = defaultSize
	}
	step := max(block, switches.RoundTo)
	bytes = (max(bytes, smallest) + step - 1) / step * step
	if limit := r.GetLimitBytes(); limit > 0 && bytes > limit {
		return 0, status.Errorf(codes.OutOfRange, "sizes are multiples of %d bytes: %d is above the limit %d", step, bytes, limit)
	}
	return bytes, nil
}

// mountOf gives a place where a file is mounted; empty if there is none.
func (d *driver) mountOf(file string) (string, error) {
	devices, err := loopsOf(file)
	if err != nil || len(devices) == 0 {
		return "", err
	}
	points, err := d.mounter.List()
	if err != nil {
		return "", err
	}
	for _, point := range points {
		for _, device := range devices {
			if point.Device == device {
				return point.Path, nil
			}
		}
	}
	return "", nil
}

func missing(what, id string, err error) error {
	if err != nil {
		return internal(err)
	}
	return status.Errorf(codes.NotFound, "%s %s does not exist", what, id)
}

// internal gives an error of ours a code; one that has a code keeps it.
func internal(err error) error {
	if err == nil {
		return nil
	}
	if os.IsTimeout(err) {
		return status.Error(codes.DeadlineExceeded, err.Error())
	}
	return status.Error(codes.Internal, err.Error())
}
