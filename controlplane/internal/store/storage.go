package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"gorm.io/gorm"

	"slipway.dev/slipway/pkg/task"
)

// readingLasts is how long a reading of claims may stand before its submit, and what has ended is counted beside it for
// longer than that.
const (
	readingLasts = 5 * time.Minute
	sweptAfter   = 2 * readingLasts
)

// errReading says that a limit of storage cannot be held with what was read of the claims before the transaction: nothing,
// since there was no limit then, or too long ago. The next try reads them anew.
var errReading = fmt.Errorf("%w: a limit of storage was set meanwhile, or the claims were read too long ago", ErrUnavailable)

// StorageLimit is how much storage a namespace may use.
type StorageLimit struct {
	Bytes int64
	At    time.Time // when it was read
}

// StorageLimits reads the limits of those namespaces that have one.
func (s *Store) StorageLimits(ctx context.Context, namespaces []string) (map[string]StorageLimit, error) {
	limits, err := readLimits(s.db.WithContext(ctx), "storage/limits", namespaces)
	if err != nil {
		return nil, classify(ctx, fmt.Errorf("read limits of storage: %w", err))
	}
	return limits, nil
}

// Reservation is what an open Task has reserved.
type Reservation struct {
	Task, Claim string
	Bytes       int64
}

// Reservations lists what the open Tasks of a namespace have reserved, the oldest first.
func (s *Store) Reservations(ctx context.Context, namespace string) ([]Reservation, error) {
	var rows []Reservation
	if err := query(s.db.WithContext(ctx), "storage/open", args{"namespace": namespace}, &rows); err != nil {
		return nil, classify(ctx, fmt.Errorf("read what is reserved in namespace %s: %w", namespace, err))
	}
	return rows, nil
}

// SetStorageLimit sets the limit of a namespace; nil takes it away. One below what is in use or reserved takes nothing
// back: it lets nothing more in.
func (s *Store) SetStorageLimit(ctx context.Context, namespace string, bytes *int64, actor string) error {
	a := audit{actor: actor, verb: "set", resource: "limits", name: namespace, namespace: namespace}
	err := s.audited(ctx, a, func(tx *gorm.DB, _ *effects, a *audit) error {
		was, err := lockLimits(tx, []string{namespace})
		if err != nil {
			return err
		}
		told := func(bytes *int64) facts {
			if bytes == nil {
				return facts{"storage": nil}
			}
			return facts{"storage": task.Quantity(*bytes)}
		}
		var before *int64
		if row, had := was[namespace]; had {
			before = &row.Bytes
		}
		a.before, a.after = told(before), told(bytes)
		switch {
		case before == nil && bytes == nil, before != nil && bytes != nil && *before == *bytes:
			a.verb = ""
		case bytes == nil:
			_, err = exec(tx, "storage/unset", args{"namespace": namespace})
		default:
			_, err = exec(tx, "storage/set", args{"namespace": namespace, "storage": *bytes, "actor": actor})
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("set the limit of storage of namespace %s: %w", namespace, err)
	}
	return nil
}

func lockLimits(tx *gorm.DB, namespaces []string) (map[string]StorageLimit, error) {
	return readLimits(tx, "storage/lock", namespaces)
}

// readLimits reads limits by one of the statements for it.
func readLimits(tx *gorm.DB, statement string, namespaces []string) (map[string]StorageLimit, error) {
	var rows []struct {
		Namespace string
		Storage   int64
		At        time.Time
	}
	if err := query(tx, statement, args{"namespaces": jsonOf(namespaces)}, &rows); err != nil {
		return nil, err
	}
	out := make(map[string]StorageLimit, len(rows))
	for _, r := range rows {
		out[r.Namespace] = StorageLimit{Bytes: r.Storage, At: r.At.UTC()}
	}
	return out, nil
}

// growing names the namespaces of entries that want storage, in order.
func growing(entries []*entry) []string {
	all := map[string]bool{}
	for _, e := range entries {
		if e.item.Growth != nil {
			all[e.item.Task.Namespace] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// limit locks the limits of storage that hold for the batch. They come before all lanes.
func (w *submit) limit(tx *gorm.DB) error {
	namespaces := growing(w.fresh())
	if len(namespaces) == 0 {
		return nil
	}
	var err error
	w.limits, err = lockLimits(tx, namespaces)
	return err
}

// fit refuses entries for which there is no room. What the batch itself has superseded by then counts no more.
func (w *submit) fit(tx *gorm.DB) error {
	const most = 20
	var refused FieldErrors
	wishes := map[string][]task.Growth{}
	for _, e := range w.fresh() {
		namespace := e.item.Task.Namespace
		limit, limited := w.limits[namespace]
		if e.item.Growth == nil || !limited {
			continue
		}
		use := e.item.Storage
		if use == nil || limit.At.Sub(use.At) > readingLasts {
			return errReading
		}
		others, read := wishes[namespace]
		if !read {
			if _, err := exec(tx, "storage/sweep", args{"namespace": namespace, "seconds": sweptAfter.Seconds()}); err != nil {
				return err
			}
			if err := query(tx, "storage/wishes", args{"namespace": namespace, "since": use.At}, &others); err != nil {
				return err
			}
		}
		wishes[namespace] = others
		count := task.CountStorage(limit.Bytes, use.Claims, others, *e.item.Growth)
		if count.Fits() {
			wishes[namespace] = append(others, *e.item.Growth)
		} else if len(refused) < most {
			refused = append(refused, FieldError{e.pointer + "/params/size", noRoom(count, namespace)})
		}
	}
	if len(refused) > 0 {
		return refused
	}
	return nil
}

func noRoom(c task.StorageCount, namespace string) string {
	return fmt.Sprintf("asks for %s more than namespace %s has room for within its limit of storage: the limit is %s, in use are %s, tasks have reserved %s more",
		task.Quantity(c.Asked), namespace, task.Quantity(c.Limit), task.Quantity(c.InUse), task.Quantity(c.Reserved))
}

// reserve notes what the stored Tasks want, limit or none: one may be set while they are open.
func (w *submit) reserve(tx *gorm.DB) error {
	type row struct {
		Task      int64  `json:"task"`
		Namespace string `json:"namespace"`
		Claim     string `json:"claim"`
		Bytes     int64  `json:"bytes"`
	}
	all := map[int64]row{}
	for _, e := range w.fresh() {
		g := e.item.Growth
		if g == nil {
			continue
		}
		key := w.rows[e.ord].Key
		switch {
		case e.tail != nil:
			key = *e.tail // the newest parameters are its own now
		case e.into != nil:
			key = w.rows[e.into.ord].Key
		}
		all[key] = row{Task: key, Namespace: e.item.Task.Namespace, Claim: g.Claim, Bytes: g.Bytes}
	}
	if len(all) == 0 {
		return nil
	}
	_, err := exec(tx, "storage/reserve", args{"all": jsonOf(slices.Collect(maps.Values(all)))})
	return err
}
