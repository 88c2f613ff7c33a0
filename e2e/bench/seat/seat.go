// Package seat gives what runs outside of a test the place of one: the rig of the e2e tests asks for it.
//
// Allowed imports: the standard library.
package seat

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// seat is the place of a test for what runs outside of one: the rig asks for it.
type seat struct {
	*testing.B
	said []string
}

// Errorf keeps what went wrong.
func (s *seat) Errorf(format string, args ...any) {
	s.said = append(s.said, fmt.Sprintf(format, args...))
	s.Fail()
}

// Fatalf keeps what went wrong and ends what runs.
func (s *seat) Fatalf(format string, args ...any) {
	s.Errorf(format, args...)
	s.FailNow()
}

// Fatal is Fatalf without a format.
func (s *seat) Fatal(args ...any) { s.Fatalf("%s", fmt.Sprint(args...)) }

// Take runs fn once and takes down what it has put up.
func Take(fn func(t testing.TB)) error {
	s := &seat{}
	finished := false
	testing.Benchmark(func(b *testing.B) {
		if finished {
			return
		}
		s.B = b
		fn(s)
		finished = true
	})
	if !finished || len(s.said) > 0 {
		return errors.New(strings.Join(append(s.said, "it did not come to its end"), "; "))
	}
	return nil
}
