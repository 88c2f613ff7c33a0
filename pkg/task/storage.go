package task

import (
	"math"
	"strconv"
	"time"
)

// Growth is what a Task wants of the storage of its namespace: that a volume claim ask for at least so many bytes.
type Growth struct {
	Claim string
	Bytes int64
}

// StorageUse is what the claims of a namespace had when the cluster was asked, in bytes: what they ask for, or have or
// are being given where that is more. At, the database's time, lies before the question.
type StorageUse struct {
	At     time.Time
	Claims map[string]int64
}

// StorageCount holds one Growth against a limit, all in bytes.
type StorageCount struct {
	Limit    int64
	InUse    int64 // of all claims
	Reserved int64 // beyond that, by others: for each claim the largest wish counts, once
	Asked    int64 // beyond both
}

// CountStorage counts what stands beside a Growth. Sums do not overflow: they stay at the largest number.
func CountStorage(limit int64, use map[string]int64, reserved []Growth, g Growth) StorageCount {
	wished := map[string]int64{}
	for _, r := range reserved {
		wished[r.Claim] = max(wished[r.Claim], r.Bytes)
	}
	c := StorageCount{Limit: limit, Asked: max(0, g.Bytes-max(use[g.Claim], wished[g.Claim]))}
	for _, bytes := range use {
		c.InUse = addBytes(c.InUse, bytes)
	}
	for claim, bytes := range wished {
		c.Reserved = addBytes(c.Reserved, max(0, bytes-use[claim]))
	}
	return c
}

// Fits says whether there is room. What asks for nothing more than is there or reserved always fits, also where a limit
// was set below that.
func (c StorageCount) Fits() bool {
	return c.Asked == 0 || addBytes(addBytes(c.InUse, c.Reserved), c.Asked) <= c.Limit
}

// addBytes adds what is not negative.
func addBytes(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// Quantity writes bytes as Kubernetes does: in the largest binary unit that leaves a whole number.
func Quantity(bytes int64) string {
	const units = "KMGTPE"
	unit := ""
	for i := 0; i < len(units) && bytes != 0 && bytes%1024 == 0; i++ {
		bytes, unit = bytes/1024, units[i:i+1]+"i"
	}
	return strconv.FormatInt(bytes, 10) + unit
}
