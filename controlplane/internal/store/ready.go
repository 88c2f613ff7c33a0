package store

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"
)

// NotReadyError says why the database cannot be used, in words that may be shown to anybody.
type NotReadyError struct {
	Why string

	cause error
}

func (e *NotReadyError) Error() string {
	if e.cause == nil {
		return "database " + e.Why
	}
	return "database " + e.Why + ": " + e.cause.Error()
}

// Unwrap gives ErrUnavailable and what lies behind.
func (e *NotReadyError) Unwrap() []error { return []error{ErrUnavailable, e.cause} }

// Ready says whether the database answers and can be written; a *NotReadyError says why not.
func (s *Store) Ready(ctx context.Context) error {
	var readOnly bool
	err := s.db.WithContext(ctx).Raw("SELECT pg_is_in_recovery() OR current_setting('transaction_read_only')::bool").Scan(&readOnly).Error
	switch {
	case err != nil:
		return &NotReadyError{Why: ailment(err), cause: err}
	case readOnly:
		return &NotReadyError{Why: ailments["25006"]}
	}
	return nil
}

// ailments are the words for what PostgreSQL says of itself, by SQLSTATE or the class of it.
var ailments = map[string]string{
	"25006": "is read-only",
	"53300": "takes no more connections",
	"53":    "has run out of memory or disk",
	"57P01": "is being shut down",
	"57P02": "has crashed and recovers",
	"57P03": "does not take connections yet, or no more",
	"57014": "does not answer in time",
	"28":    "refuses our user or password",
	"3D000": "is not there: the server has none of that name",
}

func ailment(err error) string {
	code := sqlState(err)
	for _, key := range []string{code, code[:min(len(code), 2)]} {
		if words := ailments[key]; words != "" {
			return words
		}
	}
	if pgconn.Timeout(err) || errors.Is(err, context.DeadlineExceeded) {
		return ailments["57014"]
	}
	return "cannot be reached"
}
