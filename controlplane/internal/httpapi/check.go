package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"

	"slipway.dev/slipway/controlplane/internal/kinds"
	"slipway.dev/slipway/pkg/api"
)

// document is openapi.yaml, ready to hold requests against.
type document struct{ operations map[string]*operation }

// operation is what the document says of one route.
type operation struct {
	id         string
	parameters openapi3.Parameters
	body       *openapi3.Schema // nil: takes none
	required   bool
}

// theDocument is read once a process.
var theDocument = sync.OnceValues(loadDocument)

// loadDocument reads openapi.yaml; operations are found by `METHOD /path/{name}`.
func loadDocument() (*document, error) {
	doc, err := openapi3.NewLoader().LoadFromData(api.Document)
	if err != nil {
		return nil, fmt.Errorf("read openapi.yaml: %w", err)
	}
	if err := doc.Validate(context.Background()); err != nil {
		return nil, fmt.Errorf("check openapi.yaml: %w", err)
	}
	d := &document{operations: map[string]*operation{}}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			o := &operation{id: op.OperationID, parameters: append(append(openapi3.Parameters{}, item.Parameters...), op.Parameters...)}
			if op.RequestBody != nil {
				o.required = op.RequestBody.Value.Required
				o.body = op.RequestBody.Value.Content.Get("application/json").Schema.Value
			}
			d.operations[method+" "+path] = o
		}
	}
	return d, nil
}

// checkParameters holds path, query and headers against the document.
func (o *operation) checkParameters(r *http.Request, path func(string) string) error {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return badRequest("the query cannot be read")
	}
	var wrong []api.FieldError
	known := map[string]bool{}
	for _, ref := range o.parameters {
		p := ref.Value
		var values []string
		at := p.Name
		switch p.In {
		case openapi3.ParameterInPath:
			values, at = []string{path(p.Name)}, "{"+p.Name+"}"
		case openapi3.ParameterInQuery:
			known[p.Name] = true
			values, at = query[p.Name], "?"+p.Name
		case openapi3.ParameterInHeader:
			values = r.Header.Values(p.Name)
		}
		if p.Required && len(values) == 0 {
			wrong = append(wrong, field(at, "is missing"))
		}
		wrong = append(wrong, checkParameter(p.Schema.Value, at, values)...)
	}
	for name := range query {
		if !known[name] {
			wrong = append(wrong, field("?"+kinds.Escape(name), "is no parameter here"))
		}
	}
	if len(wrong) > 0 {
		return badRequest("the request does not fit the API's document", wrong...)
	}
	return nil
}

func checkParameter(schema *openapi3.Schema, at string, values []string) []api.FieldError {
	switch {
	case len(values) == 0:
		return nil
	case schema.Type.Is("array"):
		items := make([]any, len(values))
		for i, v := range values {
			items[i] = typed(schema.Items.Value, v)
		}
		return explain(schema.VisitJSON(items, openapi3.MultiErrors()), at)
	case len(values) > 1:
		return []api.FieldError{field(at, "is given more than once")}
	}
	return explain(schema.VisitJSON(typed(schema, values[0]), openapi3.MultiErrors()), at)
}

// typed gives text of a query the type that the document names; what does not fit stays text and is refused as such.
func typed(schema *openapi3.Schema, text string) any {
	switch {
	case schema.Type.Is("boolean") && (text == "true" || text == "false"):
		return text == "true"
	case schema.Type.Is("integer"), schema.Type.Is("number"):
		p := &parser{data: []byte(text)}
		if v, err := p.parse(); err == nil {
			if n, ok := v.(json.Number); ok {
				return n
			}
		}
	}
	return text
}

// checkBody holds a parsed body against the document.
func (o *operation) checkBody(body any) error {
	wrong := explain(o.body.VisitJSON(body, openapi3.MultiErrors(), openapi3.VisitAsRequest()), "")
	if len(wrong) > 0 {
		return badRequest("the body does not fit the API's document", wrong...)
	}
	return nil
}

// explain turns what the validator found into at most maxFields fields, in our own words: its texts can be long.
func explain(err error, at string) []api.FieldError {
	if err == nil {
		return nil
	}
	var many openapi3.MultiError
	var one *openapi3.SchemaError
	switch {
	case errors.As(err, &many):
		var wrong []api.FieldError
		for _, e := range many {
			if len(wrong) >= maxFields {
				break
			}
			wrong = append(wrong, explain(e, at)...)
		}
		return wrong
	case errors.As(err, &one):
		if inner := nested(one.Origin); inner != nil {
			return explain(inner, at)
		}
		for _, step := range one.JSONPointer() {
			at += "/" + kinds.Escape(step)
		}
		var unknown string // the validator points to the object and names the field in its text only
		if n, _ := fmt.Sscanf(one.Reason, "property %q is unsupported", &unknown); n == 1 && one.SchemaField == "properties" {
			at += "/" + kinds.Escape(unknown)
		}
		return []api.FieldError{field(at, broken(one))}
	}
	return []api.FieldError{field(at, "does not fit the API's document")}
}

// nested returns the errors below one that only wraps them, as allOf does.
func nested(origin error) error {
	var many openapi3.MultiError
	var one *openapi3.SchemaError
	if errors.As(origin, &many) || errors.As(origin, &one) {
		return origin
	}
	return nil
}

// broken says which rule of the document is broken, without the value.
func broken(e *openapi3.SchemaError) string {
	s := e.Schema
	switch e.SchemaField {
	case "required":
		return "is missing"
	case "properties", "additionalProperties":
		return "is not a field here"
	case "type":
		return "must be " + strings.Join(s.Type.Slice(), " or ")
	case "nullable":
		return "must not be null"
	case "enum":
		words := make([]string, len(s.Enum))
		for i, v := range s.Enum {
			words[i] = fmt.Sprint(v)
		}
		return "must be one of " + strings.Join(words, ", ")
	case "pattern":
		return "must match " + s.Pattern
	case "format":
		return "must be a " + s.Format
	case "minLength":
		return fmt.Sprintf("must have at least %d characters", s.MinLength)
	case "maxLength":
		return fmt.Sprintf("must have at most %d characters", *s.MaxLength)
	case "minItems":
		return fmt.Sprintf("must hold at least %d", s.MinItems)
	case "maxItems":
		return fmt.Sprintf("must hold at most %d", *s.MaxItems)
	case "maxProperties":
		return fmt.Sprintf("must hold at most %d", *s.MaxProps)
	case "minimum":
		return fmt.Sprintf("must be at least %v", *s.Min)
	case "maximum":
		return fmt.Sprintf("must be at most %v", *s.Max)
	}
	return "breaks the rule " + e.SchemaField
}
