package main

import (
	"fmt"
	"io"
	"os"
)

// install copies this program to path, where every user may run it.
func install(path string) (err error) {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find its own program: %w", err)
	}
	from, err := os.Open(self)
	if err != nil {
		return fmt.Errorf("open its own program: %w", err)
	}
	defer func() { _ = from.Close() }()                                     // only read
	to, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o755) //nolint:gosec // a program, for every user
	if err != nil {
		return fmt.Errorf("make the copy: %w", err)
	}
	if _, err := io.Copy(to, from); err != nil {
		_ = to.Close() // the copy has failed already
		return fmt.Errorf("copy: %w", err)
	}
	if err := to.Chmod(0o755); err != nil { // whatever the umask
		_ = to.Close() // the copy has failed already
		return fmt.Errorf("make the copy a program: %w", err)
	}
	return to.Close()
}
