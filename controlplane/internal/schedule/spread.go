package schedule

import (
	"hash/fnv"
	"time"
)

// MaxSpread bounds a spread.
const MaxSpread = 24 * time.Hour

// Delay is by how much the run of a schedule at an instant is moved: a stable part of spread in whole milliseconds, at
// least 0 and less than spread. It depends on nothing but its arguments, so every replica and every restart agrees.
func Delay(id string, at time.Time, spread time.Duration) time.Duration {
	places := uint64(max(spread, 0) / time.Millisecond)
	if places == 0 {
		return 0
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(id)) // a hash never refuses a write
	x := h.Sum64() ^ uint64(at.Unix())
	// The finalizer of splitmix64: neighbours in time land far from each other.
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	x ^= x >> 31
	return time.Duration(x%places) * time.Millisecond
}

// due is when the line's run is due: moved by the spread, but never as far as the next line.
func (s *Schedule) due(l line) time.Time {
	at := time.Unix(l.at, 0).UTC()
	spread := s.Policy.Spread
	if spread <= 0 || !l.fires {
		return at
	}
	if after, ok := s.Rule.walk(l.at+1, l.at+1+int64(spread/time.Second)).next(); ok {
		spread = min(spread, time.Duration(after.at-l.at)*time.Second)
	}
	return at.Add(Delay(s.ID, at, spread))
}

// Due is when an instant's run is due: moved by the spread, but never as far as the next instant.
func (s *Schedule) Due(i Instant) time.Time { return s.due(line{at: i.At.Unix(), fires: i.Fires}) }
