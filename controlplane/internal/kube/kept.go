package kube

import (
	"sync"
	"time"
)

// kept says how long a Job that is closed now may stay, so that not more than so many closed ones exist at a time. It
// counts closings by the minute, those of other replicas too: their Jobs leave the same watch.
type kept struct {
	most    int
	longest time.Duration

	mu      sync.Mutex
	minutes map[int64]int
}

func newKept(most int, longest time.Duration) *kept {
	return &kept{most: most, longest: longest, minutes: map[int64]int{}}
}

func (k *kept) add(now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	minute := now.Unix() / 60
	if k.minutes[minute]++; k.minutes[minute] == 1 {
		for m := range k.minutes {
			if m < minute-int64(k.longest/time.Minute)-1 {
				delete(k.minutes, m)
			}
		}
	}
}

// ttl is the longest time, up to the longest wished, in which not more than the wished number were closed.
func (k *kept) ttl(now time.Time) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	minute, sum := now.Unix()/60, 0
	for back := range int64(k.longest/time.Minute) + 1 {
		if sum += k.minutes[minute-back]; sum > k.most {
			return min(time.Duration(max(back, 1))*time.Minute, k.longest)
		}
	}
	return k.longest
}
