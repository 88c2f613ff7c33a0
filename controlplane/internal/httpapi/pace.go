package httpapi

import (
	"math"
	"sync"
	"time"
)

// Pace is how fast one caller may ask; the zero Pace bounds nobody.
type Pace struct {
	Rate  float64 // requests a second
	Burst int     // at once, after a pause
}

// maxPaced is how many callers are told apart. Those beyond share one bucket, so that neither memory grows nor anybody
// gains by being many.
const maxPaced = 10_000

// pacer holds a bucket for each caller, in this replica alone.
type pacer struct {
	pace Pace
	most int

	mu      sync.Mutex
	buckets map[string]*bucket
	swept   time.Time
}

type bucket struct {
	tokens float64
	at     time.Time
}

func newPacer(p Pace) *pacer {
	return &pacer{pace: p, most: maxPaced, buckets: map[string]*bucket{}}
}

// take takes one request of a caller's; wait is how long it must wait instead, zero where it may go on.
func (p *pacer) take(caller string, now time.Time) (wait time.Duration) {
	if p.pace.Rate <= 0 {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.bucket(caller, now)
	b.tokens, b.at = p.filled(b, now), now
	if b.tokens < 1 {
		return time.Duration(math.Ceil((1 - b.tokens) / p.pace.Rate * float64(time.Second)))
	}
	b.tokens--
	return 0
}

func (p *pacer) filled(b *bucket, now time.Time) float64 {
	return min(float64(p.pace.Burst), b.tokens+max(0, now.Sub(b.at).Seconds())*p.pace.Rate)
}

// shared is the bucket of those who came when there was no room; no user has an empty name.
const shared = ""

func (p *pacer) bucket(caller string, now time.Time) *bucket {
	if b := p.buckets[caller]; b != nil {
		return b
	}
	if len(p.buckets) >= p.most {
		p.sweep(now)
	}
	if len(p.buckets) >= p.most {
		caller = shared
		if b := p.buckets[caller]; b != nil {
			return b
		}
	}
	b := &bucket{tokens: float64(p.pace.Burst), at: now}
	p.buckets[caller] = b
	return b
}

// sweep forgets callers whose bucket is full again, at most once a second: forgetting them changes nothing.
func (p *pacer) sweep(now time.Time) {
	if now.Sub(p.swept) < time.Second {
		return
	}
	p.swept = now
	for caller, b := range p.buckets {
		if p.filled(b, now) >= float64(p.pace.Burst) {
			delete(p.buckets, caller)
		}
	}
}
