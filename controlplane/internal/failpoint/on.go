//go:build failpoints

package failpoint

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Enabled tells whether this binary was built with failpoints.
const Enabled = true

// Variable is the environment variable that says what happens where: name=kill|name=sleep:2s|name=panic.
const Variable = "SLIPWAY_FAILPOINTS"

var plan = sync.OnceValue(func() map[string]string {
	p, err := parse(os.Getenv(Variable))
	if err != nil {
		panic(err)
	}
	return p
})

// parse reads the plan; a name may carry a count, name@3=kill, which acts at the third hit only.
func parse(text string) (map[string]string, error) {
	p := map[string]string{}
	for _, part := range strings.FieldsFunc(text, func(r rune) bool { return r == '|' }) {
		name, action, ok := strings.Cut(part, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("%s: %q is not name=action", Variable, part)
		}
		verb, arg, _ := strings.Cut(action, ":")
		switch verb {
		case "kill", "panic":
		case "sleep":
			if _, err := time.ParseDuration(arg); err != nil {
				return nil, fmt.Errorf("%s: %q: %w", Variable, part, err)
			}
		default:
			return nil, fmt.Errorf("%s: %q: unknown action", Variable, part)
		}
		p[name] = action
	}
	return p, nil
}

var (
	mu   sync.Mutex
	hits = map[string]int{}
)

// Hit marks a place by name and does what the plan says for it.
func Hit(name string) {
	mu.Lock()
	hits[name]++
	n := hits[name]
	mu.Unlock()
	action, ok := plan()[name]
	if !ok {
		action, ok = plan()[fmt.Sprintf("%s@%d", name, n)]
	}
	if !ok {
		return
	}
	verb, arg, _ := strings.Cut(action, ":")
	switch verb {
	case "kill":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // until it arrives
	case "panic":
		panic("failpoint " + name)
	case "sleep":
		d, _ := time.ParseDuration(arg) // parse has seen it
		time.Sleep(d)
	}
}
