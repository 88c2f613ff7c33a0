//go:build !failpoints

package volume

// step marks a place where a test may kill the runner.
func step(string) {}
