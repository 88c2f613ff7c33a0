package schedule

import (
	"archive/zip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"go.uber.org/goleak"
)

// TestMain puts lies where time.LoadLocation looks first, so that every test of this package that would read the machine's
// zone data gets Tokyo for Berlin.
func TestMain(m *testing.M) {
	folder, err := lie()
	if err != nil {
		fmt.Fprintln(os.Stderr, "prepare false zone data:", err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if err := os.RemoveAll(folder); err != nil {
			fmt.Fprintln(os.Stderr, "remove false zone data:", err)
		}
		os.Exit(code)
	}))
}

func lie() (folder string, err error) {
	tokyo, err := content("Asia/Tokyo")
	if err != nil {
		return "", err
	}
	if folder, err = os.MkdirTemp("", "zones"); err != nil {
		return "", err
	}
	for _, name := range []string{"Europe/Berlin", "America/Los_Angeles"} {
		file := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return folder, err
		}
		if err := os.WriteFile(file, tokyo, 0o600); err != nil {
			return folder, err
		}
	}
	return folder, os.Setenv("ZONEINFO", folder)
}

func content(name string) ([]byte, error) {
	file := zoneFiles()[name]
	if file == nil {
		return nil, fmt.Errorf("no zone %s", name)
	}
	in, err := file.Open()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	return io.ReadAll(in)
}

// sameData compares the built-in zone data with another archive, member by member: the packing may differ.
func sameData(other string) error {
	archive, err := zip.OpenReader(other)
	if err != nil {
		return err
	}
	defer archive.Close()
	for _, f := range archive.File {
		if f.FileInfo().IsDir() || f.Name == "Factory" {
			continue
		}
		ours := zoneFiles()[f.Name]
		if ours == nil || ours.CRC32 != f.CRC32 {
			return fmt.Errorf("%s is missing or differs", f.Name)
		}
	}
	return nil
}

func goroot() string { return runtime.GOROOT() } //nolint:staticcheck // the data of the toolchain that runs the test is what is compared with
