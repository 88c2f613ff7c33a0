package schedule

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
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
