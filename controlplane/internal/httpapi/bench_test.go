package httpapi

import (
	"strings"
	"testing"
)

func BenchmarkSubmit(b *testing.B) {
	r := newRig(b)
	for b.Loop() {
		if w := r.send(submit(good, "Idempotency-Key", "k")); w.Code != 201 {
			b.Fatal(w.Body)
		}
		r.submitted = r.submitted[:0]
	}
}

func BenchmarkBatchOf100(b *testing.B) {
	r := newRig(b)
	items := strings.TrimSuffix(strings.Repeat(good+",", 100), ",")
	for b.Loop() {
		if w := r.send(batch(items)); w.Code != 201 {
			b.Fatal(w.Body)
		}
		r.submitted = r.submitted[:0]
	}
}
