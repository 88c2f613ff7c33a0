package task

import (
	"math"
	"testing"
)

func TestTheLargestWishForAClaimCountsOnceAndOnlyBeyondWhatItHas(t *testing.T) {
	use := map[string]int64{"a": 2, "b": 3}
	for name, tc := range map[string]struct {
		limit    int64
		reserved []Growth
		asks     Growth
		want     StorageCount
		fits     bool
	}{
		"nothing is reserved":            {10, nil, Growth{"a", 7}, StorageCount{10, 5, 0, 5}, true},
		"one too much":                   {10, nil, Growth{"a", 8}, StorageCount{10, 5, 0, 6}, false},
		"of another claim":               {10, []Growth{{"b", 6}}, Growth{"a", 4}, StorageCount{10, 5, 3, 2}, true},
		"of another claim, too much":     {10, []Growth{{"b", 6}}, Growth{"a", 5}, StorageCount{10, 5, 3, 3}, false},
		"the same wish again":            {10, []Growth{{"a", 7}, {"a", 7}}, Growth{"a", 7}, StorageCount{10, 5, 5, 0}, true},
		"a larger one for the claim":     {10, []Growth{{"a", 4}, {"a", 6}}, Growth{"a", 7}, StorageCount{10, 5, 4, 1}, true},
		"a smaller one for the claim":    {10, []Growth{{"a", 7}}, Growth{"a", 4}, StorageCount{10, 5, 5, 0}, true},
		"less than the claim has":        {10, []Growth{{"b", 1}}, Growth{"a", 1}, StorageCount{10, 5, 0, 0}, true},
		"a limit below what is there":    {4, nil, Growth{"a", 2}, StorageCount{4, 5, 0, 0}, true},
		"growth above a limit below it":  {4, nil, Growth{"a", 3}, StorageCount{4, 5, 0, 1}, false},
		"a claim that is not there":      {10, []Growth{{"c", 4}}, Growth{"a", 3}, StorageCount{10, 5, 4, 1}, true},
		"more than can be counted":       {math.MaxInt64 - 1, []Growth{{"b", math.MaxInt64}}, Growth{"a", math.MaxInt64}, StorageCount{math.MaxInt64 - 1, 5, math.MaxInt64 - 3, math.MaxInt64 - 2}, false},
		"sums that would overflow twice": {10, []Growth{{"b", math.MaxInt64}, {"c", math.MaxInt64}}, Growth{"a", 3}, StorageCount{10, 5, math.MaxInt64, 1}, false},
	} {
		got := CountStorage(tc.limit, use, tc.reserved, tc.asks)
		if got != tc.want || got.Fits() != tc.fits {
			t.Errorf("%s: %+v fits %v, want %+v %v", name, got, got.Fits(), tc.want, tc.fits)
		}
	}
}

func TestBytesAreWrittenAsQuantities(t *testing.T) {
	for bytes, want := range map[int64]string{
		0: "0", 1: "1", 1023: "1023", 1024: "1Ki", 1025: "1025", 1536: "1536", 5 << 30: "5Gi", 1536 << 20: "1536Mi", 1 << 60: "1Ei", math.MaxInt64: "9223372036854775807",
	} {
		if got := Quantity(bytes); got != want {
			t.Errorf("%d: %s, want %s", bytes, got, want)
		}
	}
}
