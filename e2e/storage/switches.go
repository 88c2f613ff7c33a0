package storage

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"
)

// Switch changes what the driver does. All of its wishes apply together, and those of all switches that apply to a call.
type Switch struct {
	// Method of CSI: CreateVolume, ControllerExpandVolume, NodeExpandVolume, ControllerModifyVolume, CreateSnapshot,
	// DeleteSnapshot, NodeStageVolume, …; empty: every one.
	Method string `json:"method"`
	// Object is the claim or VolumeSnapshot that a call is about, as NAMESPACE/NAME, or a NAMESPACE; empty: any. Calls about
	// a snapshot are also about its claim.
	Object string `json:"object"`

	DelayMS int    `json:"delayMs"` // slow: waits so long before it acts, or until the caller gives up
	Silent  bool   `json:"silent"`  // does not answer while the switch is set
	Code    string `json:"code"`    // fails with this gRPC code: ResourceExhausted, InvalidArgument, …
	Message string `json:"message"` // and this text
	Late    bool   `json:"late"`    // does its work first, and then is slow, silent or failing: the answer is lost

	RoundTo  int64 `json:"roundTo"`  // CreateVolume, ControllerExpandVolume: rounds sizes up to a multiple of this many bytes
	NotReady bool  `json:"notReady"` // CreateSnapshot: the snapshots are there and are not ready while the switch is set
}

// switches of this process; each cluster has its own driver.
var switches struct {
	sync.Mutex
	set map[string][]*Switch
}

// Set sets a switch until off is called or the test ends.
func (s *Storage) Set(t testing.TB, want Switch) (off func()) {
	t.Helper()
	set := &want
	s.change(t, func(all []*Switch) []*Switch { return append(all, set) })
	off = func() {
		s.change(t, func(all []*Switch) []*Switch {
			return slices.DeleteFunc(all, func(one *Switch) bool { return one == set })
		})
	}
	t.Cleanup(off)
	return off
}

func (s *Storage) change(t testing.TB, change func([]*Switch) []*Switch) {
	t.Helper()
	switches.Lock()
	defer switches.Unlock()
	if switches.set == nil {
		switches.set = map[string][]*Switch{}
	}
	all := change(switches.set[s.Cluster.Dir])
	switches.set[s.Cluster.Dir] = all
	raw, err := json.Marshal(all)
	if err != nil {
		t.Fatalf("write switches: %v", err)
	}
	path := filepath.Join(s.Cluster.StorageDir(), "switches.json")
	if err := errors.Join(os.WriteFile(path+".new", raw, 0o600), os.Rename(path+".new", path)); err != nil {
		t.Fatalf("write switches: %v", err)
	}
}

// Call is one call that the driver answered.
type Call struct {
	At      time.Time // of its beginning
	MS      int64     // how long it took
	Method  string
	Objects []string // claims and VolumeSnapshots that it was about, as NAMESPACE/NAME
	Code    string   // OK, or the gRPC code of the failure
	Message string
}

// Calls lists the calls of a method about an object, in the order of their answers; empty: any.
func (s *Storage) Calls(t testing.TB, method, object string) []Call {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(s.Cluster.StorageDir(), "calls.jsonl"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("read the driver's calls: %v", err)
	}
	var calls []Call
	lines := bufio.NewScanner(bytes.NewReader(raw))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var c Call
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			continue // the last line, half written
		}
		if (method == "" || c.Method == method) && (object == "" || slices.Contains(c.Objects, object)) {
			calls = append(calls, c)
		}
	}
	return calls
}
