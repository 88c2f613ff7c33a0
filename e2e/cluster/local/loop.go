package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"unsafe"
)

// The kernel's requests to loop devices, from linux/loop.h.
const (
	loopClear  = 0x4C01
	loopStatus = 0x4C05
)

// loopInfo begins like struct loop_info64 and has its size.
type loopInfo struct {
	device, inode uint64
	rest          [216]byte
}

// inode names a file where paths differ: a container attaches a file by the
// path that only it knows.
type inode struct{ device, number uint64 }

// detachLoops frees loop devices whose file is in the folder, and fails while
// one is not free. The kernel lets go of one when its last mount is gone.
func detachLoops(dir string) error {
	found, err := loopsBelow(dir)
	errs := []error{err}
	for device, path := range found {
		errs = append(errs, loopRequest(device, loopClear, nil), fmt.Errorf("loop device %s still holds %s", device, path))
	}
	return errors.Join(errs...)
}

// loopsBelow gives the loop devices whose file is in the folder, with the file.
func loopsBelow(dir string) (map[string]string, error) {
	attached, err := attachedLoops()
	if err != nil || len(attached) == 0 {
		return nil, err
	}
	found := map[string]string{}
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return nil //nolint:nilerr // what went away while we walk is attached to nothing
		}
		info, err := entry.Info()
		if err != nil {
			return nil //nolint:nilerr // as above
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return nil
		}
		if device, ok := attached[inode{stat.Dev, stat.Ino}]; ok {
			found[device] = path
		}
		return nil
	})
	return found, err
}

// attachedLoops gives the device of every file that is attached to one.
func attachedLoops() (map[inode]string, error) {
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, fmt.Errorf("list loop devices: %w", err)
	}
	attached := map[inode]string{}
	for _, file := range files {
		device := "/dev/" + filepath.Base(filepath.Dir(filepath.Dir(file)))
		var info loopInfo
		if err := loopRequest(device, loopStatus, unsafe.Pointer(&info)); err == nil {
			attached[inode{info.device, info.inode}] = device
		}
	}
	return attached, nil
}

func loopRequest(device string, request uintptr, argument unsafe.Pointer) error {
	file, err := os.Open(device)
	if err != nil {
		return fmt.Errorf("ask loop device: %w", err)
	}
	defer func() { _ = file.Close() }()
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, file.Fd(), request, uintptr(argument)); errno != 0 {
		return fmt.Errorf("ask loop device %s: %w", device, errno)
	}
	return nil
}
