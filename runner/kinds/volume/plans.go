package volume

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"slipway.dev/slipway/pkg/retention"
)

// PlansName is the ConfigMap of a namespace that holds the newest plan of each rule, by the rule's name: as JSON in data
// or, where that is long, as gzip of it in binaryData. `slipway namespace enable` makes it.
const PlansName = "slipway-retention-plans"

// Bounds of what is kept in it; Kubernetes takes 1 MiB of values.
const (
	maxPlain  = 64 << 10 // of a plan that is not compressed
	maxPlan   = 900 << 10
	maxPlans  = 1000 << 10 // of all plans together
	plansLast = 30 * 24 * time.Hour
)

// keptPlan is a plan as it is stored, with each removal and its reason. Where it would be too long, who is kept is counted
// by the reasons.
type keptPlan struct {
	At      time.Time      `json:"at"`
	Task    string         `json:"task"`
	Attempt int            `json:"attempt"`
	Kept    map[string]int `json:"kept,omitempty"`
	retention.Plan
}

var period = regexp.MustCompile(` \([^)]*\)`)

// shorter is the plan without those that are kept.
func (p keptPlan) shorter() keptPlan {
	p.Kept = map[string]int{}
	var goes []retention.Decision
	for _, d := range p.Decisions {
		if d.Keep {
			p.Kept[period.ReplaceAllString(d.Reason, "")]++
		} else {
			goes = append(goes, d)
		}
	}
	p.Decisions = goes
	return p
}

// packPlan writes a plan: as JSON, as gzip of it, or as gzip of a shorter one.
func packPlan(p keptPlan) (raw []byte, packed bool, err error) {
	if raw, err = json.Marshal(p); err != nil {
		return nil, false, err
	}
	if len(raw) <= maxPlain {
		return raw, false, nil
	}
	if raw, err = zip(raw); err != nil || len(raw) <= maxPlan {
		return raw, true, err
	}
	if raw, err = json.Marshal(p.shorter()); err != nil {
		return nil, false, err
	}
	if raw, err = zip(raw); err != nil {
		return nil, false, err
	}
	if len(raw) > maxPlan {
		return nil, false, fmt.Errorf("its %d removals have %d KiB, at most %d can be kept: split the rule", p.Remove, len(raw)>>10, maxPlan>>10)
	}
	return raw, true, nil
}

func zip(raw []byte) ([]byte, error) {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(raw); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// plans is what is read of the ConfigMap.
type plans struct {
	Metadata struct {
		Version string `json:"resourceVersion"`
	} `json:"metadata"`
	Data   map[string]string `json:"data"`
	Binary map[string][]byte `json:"binaryData"`
}

// madeAt tells when each plan was made; what is none is not told of.
func (p plans) madeAt() map[string]time.Time {
	all := map[string]time.Time{}
	see := func(rule string, from *json.Decoder) {
		var kept struct{ At time.Time }
		if from.Decode(&kept) == nil && !kept.At.IsZero() {
			all[rule] = kept.At
		}
	}
	for rule, text := range p.Data {
		see(rule, json.NewDecoder(strings.NewReader(text)))
	}
	for rule, raw := range p.Binary {
		if unzip, err := gzip.NewReader(bytes.NewReader(raw)); err == nil {
			see(rule, json.NewDecoder(unzip))
		}
	}
	return all
}

// outdated names the plans of other rules that go for one of a size: those that are old, and the oldest until there is room.
func (p plans) outdated(rule string, size int, now time.Time) []string {
	sizes := map[string]int{}
	for name, text := range p.Data {
		sizes[name] = len(text)
	}
	for name, raw := range p.Binary {
		sizes[name] = len(raw)
	}
	delete(sizes, rule)
	for _, n := range sizes {
		size += n
	}
	at := p.madeAt()
	delete(at, rule)
	var gone []string
	for _, name := range slices.SortedFunc(maps.Keys(at), func(a, b string) int { return at[a].Compare(at[b]) }) {
		if now.Sub(at[name]) > plansLast || size > maxPlans {
			gone = append(gone, name)
			size -= sizes[name]
		}
	}
	return gone
}

// keepPlan stores the whole plan, before anything is removed by it.
func (w *world) keepPlan(ctx context.Context, rule string, plan retention.Plan) error {
	raw, packed, err := packPlan(keptPlan{At: w.now().UTC().Truncate(time.Second), Task: w.task.ID, Attempt: w.task.Attempt, Plan: plan})
	if err != nil {
		return err
	}
	for try := 0; ; try++ {
		kept, err := w.plans(ctx)
		if err != nil {
			return err
		}
		data, binary := map[string]any{}, map[string]any{}
		for _, other := range append(kept.outdated(rule, len(raw), w.now()), rule) {
			data[other], binary[other] = nil, nil
		}
		if packed {
			binary[rule] = base64.StdEncoding.EncodeToString(raw)
		} else {
			data[rule] = string(raw)
		}
		err = w.patch(ctx, w.in(configMaps), PlansName, kept.Metadata.Version, map[string]any{"data": data, "binaryData": binary})
		if !apierrors.IsConflict(err) || try == mostConflicts {
			return err
		}
	}
}

// plans reads what is kept by a patch that changes nothing: the account may do no more than patch.
func (w *world) plans(ctx context.Context) (plans, error) {
	var kept plans
	found, err := w.patched(ctx, w.in(configMaps), PlansName, "", map[string]any{})
	if missing(err) {
		return kept, fmt.Errorf("there is no ConfigMap %s: enable the namespace anew: %w", PlansName, err)
	}
	if err != nil {
		return kept, err
	}
	return kept, read(found, &kept)
}
