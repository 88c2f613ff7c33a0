package kinds

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// checkSchema holds params against the kind's schema. The texts are our own: none repeats a value.
func checkSchema(k Kind, params []byte, wrong *fields) {
	if k.schema == nil {
		return
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(params))
	if err != nil {
		wrong.add("/params", "is not JSON")
		return
	}
	var invalid *jsonschema.ValidationError
	if err := k.schema.Validate(value); errors.As(err, &invalid) {
		var found fields
		explain(invalid, k.Secrets, &found)
		// The library finds them in no order.
		slices.SortStableFunc(found, func(a, b FieldError) int { return strings.Compare(a.Pointer, b.Pointer) })
		for _, f := range found {
			wrong.add(f.Pointer, "%s", f.Reason)
		}
	} else if err != nil {
		wrong.add("/params", "does not fit the kind's schema")
	}
}

// explain turns the leaves of a validation error into fields. Of what stands in a secret parameter only that it is wrong
// is told.
func explain(e *jsonschema.ValidationError, secrets []string, wrong *fields) {
	if at := e.InstanceLocation; len(at) > 0 && slices.Contains(secrets, at[0]) {
		if told := (FieldError{Pointer: "/params/" + Escape(at[0]), Reason: onlyReference}); !slices.Contains(*wrong, told) {
			wrong.add(told.Pointer, "%s", told.Reason)
		}
		return
	}
	at := "/params"
	for _, step := range e.InstanceLocation {
		at += "/" + Escape(step)
	}
	switch k := e.ErrorKind.(type) {
	case *kind.Required:
		for _, name := range k.Missing {
			wrong.add(at+"/"+Escape(name), "is missing")
		}
		return
	case *kind.AdditionalProperties:
		for _, name := range k.Properties {
			wrong.add(at+"/"+Escape(name), "is not a field here")
		}
		return
	case *kind.PropertyNames:
		wrong.add(at+"/"+Escape(k.Property), "is no name that is allowed here")
		return
	case *kind.Type:
		wrong.add(at, "must be %s, not %s", strings.Join(k.Want, " or "), k.Got)
		return
	}
	if len(e.Causes) == 0 {
		wrong.add(at, "%s", broken(e.ErrorKind))
		return
	}
	for _, cause := range e.Causes {
		explain(cause, secrets, wrong)
	}
}

// broken says which rule is broken, without the value.
func broken(what jsonschema.ErrorKind) string {
	switch k := what.(type) {
	case *kind.MinItems:
		return fmt.Sprintf("must hold at least %d", k.Want)
	case *kind.MaxItems:
		return fmt.Sprintf("must hold at most %d", k.Want)
	case *kind.MaxProperties:
		return fmt.Sprintf("must hold at most %d", k.Want)
	case *kind.MinLength:
		return fmt.Sprintf("must have at least %d characters", k.Want)
	case *kind.MaxLength:
		return fmt.Sprintf("must have at most %d characters", k.Want)
	case *kind.Pattern:
		return "must match " + k.Want
	}
	if path := what.KeywordPath(); len(path) > 0 {
		return "breaks the rule " + strings.Join(path, "/") + " of the kind's schema"
	}
	return "does not fit the kind's schema"
}
