package schedule

import (
	"fmt"
	"strings"
)

// FieldError says what is wrong with one field and what to do. Pointer is a JSON pointer such as /cron; Reason goes on
// from it as a sentence.
type FieldError struct{ Pointer, Reason string }

// InvalidError refuses a rule, a policy or a blackout. It has at least one field.
type InvalidError struct{ Fields []FieldError }

// Error names every field.
func (e *InvalidError) Error() string {
	parts := make([]string, len(e.Fields))
	for i, f := range e.Fields {
		parts[i] = f.Pointer + " " + f.Reason
	}
	return strings.Join(parts, "; ")
}

// wrong collects field errors.
type wrong []FieldError

func (w *wrong) add(pointer, reason string, args ...any) {
	*w = append(*w, FieldError{Pointer: pointer, Reason: fmt.Sprintf(reason, args...)})
}

func (w wrong) err() error {
	if len(w) == 0 {
		return nil
	}
	return &InvalidError{Fields: w}
}

// clean says whether text is printable ASCII, which every expression and zone name is.
func clean(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}
