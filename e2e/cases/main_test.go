package cases

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway.dev/slipway/e2e/perform"
	"slipway.dev/slipway/e2e/rig"
)

func TestMain(m *testing.M) {
	perform.Main()
	code := rig.Main(m)
	if totals.passed+totals.failed > 0 {
		fmt.Printf("%d passed, %d failed\n", totals.passed, totals.failed)
	}
	os.Exit(code)
}

// full tells that the written times are wanted.
var full = os.Getenv("FULL") == "1"

var totals struct {
	sync.Mutex
	passed, failed int
}

// replay runs one case beside others and prints its line: `case 04 ok 3.2s launched once`.
func replay(t *testing.T, number int, right string, run func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	replayAlone(t, number, right, run)
}

// replayAlone is for a case that disturbs the cluster, which the others share.
func replayAlone(t *testing.T, number int, right string, run func(t *testing.T)) {
	t.Helper()
	if only := os.Getenv("ONLY"); only != "" && !slices.Contains(strings.Split(only, ","), strconv.Itoa(number)) {
		t.Skipf("case %d is not in ONLY=%s", number, only)
	}
	began := time.Now()
	t.Cleanup(func() {
		totals.Lock()
		defer totals.Unlock()
		word := "ok"
		if t.Failed() {
			word = "FAIL"
			totals.failed++
		} else {
			totals.passed++
		}
		fmt.Printf("case %02d %s %.1fs %s\n", number, word, time.Since(began).Seconds(), right)
	})
	run(t)
}
