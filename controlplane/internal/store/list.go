package store

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"gorm.io/gorm"

	"slipway.dev/slipway/pkg/task"
)

// Tasks lists Tasks, the newest first. The SQL is built for the filters that are set: a statement with optional
// conditions would get a plan that fits none of them.
func (s *Store) Tasks(ctx context.Context, f ListFilter) (Page, error) {
	limit := pageSize(f.Limit)
	if f.Parent != "" && !validID(f.Parent) {
		return Page{}, nil
	}
	var rows []taskRow
	err := s.narrowed(ctx, func(tx *gorm.DB) error {
		db, err := f.narrow(tx.Table("slipway.tasks AS t"))
		if err != nil {
			return err
		}
		rows = nil
		return db.Select("t.*",
			"(SELECT p.id FROM slipway.tasks p WHERE p.key = t.parent) AS parent_id",
			"(SELECT r.id FROM slipway.tasks r WHERE r.key = t.retry_of) AS retry_of_id",
			"(SELECT o.id FROM slipway.tasks o WHERE o.key = t.root) AS root_id").
			Order(f.order()).Limit(limit + 1).Find(&rows).Error
	})
	if err != nil {
		return Page{}, fmt.Errorf("list tasks: %w", err)
	}
	var page Page
	if len(rows) > limit {
		rows = rows[:limit]
		last := rows[limit-1]
		page.Next = cursor(last.CreatedAt, last.Key)
	}
	for _, r := range rows {
		t, err := r.task()
		if err != nil {
			return Page{}, err
		}
		page.Tasks = append(page.Tasks, t)
	}
	page.Views, err = s.views(ctx, page.Tasks, func(t task.Task) bool { return t.State == task.Running })
	if err != nil {
		return Page{}, fmt.Errorf("read what listed tasks wait for: %w", err)
	}
	return page, nil
}

// narrowed runs a statement whose conditions were built for the filters that are set, with a plan for these very values: a
// generic one was 800 times slower over a million rows.
func (s *Store) narrowed(ctx context.Context, fn func(tx *gorm.DB) error) error {
	return s.inTx(ctx, func(tx *gorm.DB) error {
		if err := tx.Exec("SET LOCAL plan_cache_mode = force_custom_plan").Error; err != nil {
			return err
		}
		return fn(tx)
	})
}

// pageSize bounds what was asked for.
func pageSize(asked int) int {
	const usual, most = 50, 500
	if asked <= 0 {
		return usual
	}
	return min(asked, most)
}

// labels are the wanted labels as they are stored, sorted.
func (f ListFilter) labels() []string {
	kvs := make([]string, 0, len(f.Labels))
	for k, v := range f.Labels {
		kvs = append(kvs, k+"="+v)
	}
	slices.Sort(kvs)
	return kvs
}

// place names the columns that a list is ordered by: those of the label's own index, where one is asked for.
func (f ListFilter) place() (at, key string) {
	if len(f.Labels) > 0 {
		return "l.created_at", "l.task"
	}
	return "t.created_at", "t.key"
}

func (f ListFilter) order() string {
	at, key := f.place()
	return at + " DESC, " + key + " DESC"
}

// narrow adds the conditions of the filters that are set.
func (f ListFilter) narrow(db *gorm.DB) (*gorm.DB, error) {
	for n, kv := range f.labels() {
		if n == 0 { // the label's index leads the scan: one walk over a million Tasks took seconds
			db = db.Joins("JOIN slipway.task_labels l ON l.task = t.key AND l.kv = ?", kv)
			continue
		}
		db = db.Where("EXISTS (SELECT 1 FROM slipway.task_labels m WHERE m.kv = ? AND m.task = t.key)", kv)
	}
	if len(f.Namespaces) == 1 {
		db = db.Where("t.namespace = ?", f.Namespaces[0])
	} else if f.Namespaces != nil {
		db = db.Where("t.namespace IN (SELECT jsonb_array_elements_text(CAST(? AS jsonb)))", jsonOf(f.Namespaces))
	}
	for _, c := range []struct{ column, value string }{
		{"t.kind", f.Kind}, {"t.state", string(f.State)}, {"t.lane", f.Lane}, {"t.queue", f.Queue}, {"t.reason", string(f.Reason)},
	} {
		if c.value != "" {
			db = db.Where(c.column+" = ?", c.value)
		}
	}
	if f.Parent != "" {
		db = db.Where("t.parent = (SELECT p.key FROM slipway.tasks p WHERE p.id = ?)", f.Parent)
	}
	for _, c := range []struct {
		condition string
		at        time.Time
	}{
		{"t.created_at >= ?", f.CreatedAfter},
		{"t.created_at < ?", f.CreatedBefore},
		{"t.ended_at >= ?", f.EndedAfter},
		{"t.ended_at < ?", f.EndedBefore},
	} {
		if !c.at.IsZero() {
			db = db.Where(c.condition, c.at)
		}
	}
	if f.Cursor != "" {
		at, key, err := parseCursor(f.Cursor)
		if err != nil {
			return nil, err
		}
		byAt, byKey := f.place()
		db = db.Where(fmt.Sprintf("(%s, %s) < (?, ?)", byAt, byKey), at, key)
	}
	return db, nil
}

func cursor(at time.Time, key int64) string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d.%d", at.UnixMicro(), key))
}

func parseCursor(text string) (time.Time, int64, error) {
	bad := FieldErrors{{"/cursor", "is not one of ours"}}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return time.Time{}, 0, bad
	}
	left, right, _ := strings.Cut(string(raw), ".")
	micro, err := strconv.ParseInt(left, 10, 64)
	if err != nil {
		return time.Time{}, 0, bad
	}
	key, err := strconv.ParseInt(right, 10, 64)
	if err != nil {
		return time.Time{}, 0, bad
	}
	return time.UnixMicro(micro), key, nil
}

// States counts Tasks that have not ended, by state.
func (s *Store) States(ctx context.Context) (map[task.State]int, error) {
	var rows []struct {
		State string
		N     int
	}
	err := s.db.WithContext(ctx).Table("slipway.tasks").Select("state, count(*) AS n").
		Where("state IN ('queued', 'running')").Group("state").Find(&rows).Error
	if err != nil {
		return nil, classify(ctx, fmt.Errorf("count tasks: %w", err))
	}
	out := map[task.State]int{}
	for _, r := range rows {
		out[task.State(r.State)] = r.N
	}
	return out, nil
}
