package kinds

import (
	"encoding/json"
	"slices"

	"slipway.dev/slipway/pkg/task"
)

// onlyReference refuses the value of a secret parameter, whatever it is.
const onlyReference = `takes only {"secretRef": {"name", "key"}}, a key of a Secret in the task's namespace`

// reference is the schema of a secret parameter, as submits see it.
type reference struct {
	Description string          `json:"description,omitempty"`
	Type        string          `json:"type"`
	Closed      bool            `json:"additionalProperties"`
	Required    []string        `json:"required"`
	Properties  json.RawMessage `json:"properties"`
}

const referenceTo = `{"secretRef": {
	"description": "Where the value stands. It never passes through Slipway.",
	"type": "object", "additionalProperties": false, "required": ["name", "key"],
	"properties": {
		"name": {"description": "Name of a Secret in the task's namespace.", "type": "string", "maxLength": 253, "pattern": "^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$"},
		"key": {"description": "Key in its data.", "type": "string", "maxLength": 253, "pattern": "^[-._a-zA-Z0-9]+$"}
	}
}}`

// withSecrets puts the references to Secrets into a kind's schema of parameters. What a schema says of a value that
// Slipway never sees could not be checked, so it may hold a description alone.
func withSecrets(schema json.RawMessage, secrets []string, wrong *fields) json.RawMessage {
	whole := map[string]json.RawMessage{"type": json.RawMessage(`"object"`)}
	properties := map[string]json.RawMessage{}
	good := len(schema) == 0 || json.Unmarshal(schema, &whole) == nil
	if given := whole["properties"]; good && len(given) > 0 {
		good = json.Unmarshal(given, &properties) == nil
	}
	if !good || whole == nil || properties == nil {
		wrong.add("params", "must describe an object where parameters are secret")
		return schema
	}
	for i, name := range secrets {
		ref := reference{Type: "object", Required: []string{"secretRef"}, Properties: json.RawMessage(referenceTo)}
		said := struct{ Description *string }{&ref.Description}
		switch {
		case !envName.MatchString(name):
			wrong.add("secrets", "must be names of letters, digits and underscores")
		case slices.Contains(secrets[:i], name):
			wrong.add("secrets", "holds %s twice", name)
		case len(properties[name]) > 0 && strict(properties[name], &said) != nil:
			wrong.add("params.properties."+name, "is secret, so it has a description and nothing else")
		}
		properties[name] = encoded(ref)
	}
	whole["properties"] = encoded(properties)
	return encoded(whole)
}

func encoded(value any) json.RawMessage {
	raw, err := json.Marshal(value)
	if err != nil {
		panic(err) // texts that were read from JSON, or are constants
	}
	return raw
}

// secretRefs reads which keys of Secrets are asked for. The schema has refused everything else, unless it is of a draft
// in which other words silence properties: so it is looked at once more.
func secretRefs(k Kind, params json.RawMessage, wrong *fields) map[string]task.KeyRef {
	if len(k.Secrets) == 0 {
		return nil
	}
	var all map[string]json.RawMessage
	if json.Unmarshal(params, &all) != nil {
		wrong.add("/params", "must be object")
		return nil
	}
	refs := map[string]task.KeyRef{}
	for _, name := range k.Secrets {
		value, given := all[name]
		if !given {
			continue
		}
		var is map[string]map[string]string
		if json.Unmarshal(value, &is) != nil || len(is) != 1 || len(is["secretRef"]) != 2 || is["secretRef"]["name"] == "" || is["secretRef"]["key"] == "" {
			wrong.add("/params/"+Escape(name), "%s", onlyReference)
			continue
		}
		refs[name] = task.KeyRef{Name: is["secretRef"]["name"], Key: is["secretRef"]["key"]}
	}
	return refs
}
