package api

import (
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

func TestEveryFieldAndParameterIsDescribed(t *testing.T) {
	doc, err := openapi3.NewLoader().LoadFromData(Document)
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(doc.OpenAPI, "3.0.") {
		t.Errorf("it is OpenAPI %s, and the generator knows 3.0", doc.OpenAPI)
	}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			if op.Summary == "" || op.OperationID == "" || len(op.Tags) == 0 {
				t.Errorf("%s %s needs a summary, an id and a tag", method, path)
			}
			for _, p := range append(append(openapi3.Parameters{}, item.Parameters...), op.Parameters...) {
				if p.Value.Description == "" {
					t.Errorf("%s %s: parameter %s is not described", method, path, p.Value.Name)
				}
			}
		}
	}
	for name, schema := range doc.Components.Schemas {
		for field, of := range schema.Value.Properties {
			if !described(of.Value) {
				t.Errorf("%s.%s is not described", name, field)
			}
		}
	}
}

// described looks into the one schema that an allOf wraps.
func described(s *openapi3.Schema) bool {
	return s.Description != "" || len(s.AllOf) == 1 && s.AllOf[0].Value.Description != ""
}
