package handler

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"unicode/utf8"

	"slipway.dev/slipway/pkg/task"
)

// takeSecrets takes the values of secret parameters out of the environment: what a handler starts does not inherit them.
func takeSecrets() map[string]string {
	taken := map[string]string{}
	for _, pair := range os.Environ() {
		name, value, _ := strings.Cut(pair, "=")
		if parameter, secret := strings.CutPrefix(name, task.SecretEnv); secret {
			taken[parameter] = value
			_ = os.Unsetenv(name) // it stood there a moment ago
		}
	}
	return taken
}

// resolved puts the values of secret parameters in the place of their references. No error repeats a value.
func resolved(params json.RawMessage, secrets map[string]string) (json.RawMessage, error) {
	if len(secrets) == 0 {
		return params, nil
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(params, &all); err != nil {
		return nil, fmt.Errorf("read the parameters: %w", err)
	}
	for name, value := range secrets {
		var is struct{ SecretRef *struct{ Name, Key string } }
		if json.Unmarshal(all[name], &is) != nil || is.SecretRef == nil {
			continue // a variable of the image's own
		}
		if !utf8.ValidString(value) {
			return nil, fmt.Errorf("parameter %s: key %s of Secret %s is no text", name, is.SecretRef.Key, is.SecretRef.Name)
		}
		all[name] = asJSON(value)
	}
	return asJSON(all), nil
}

// asJSON writes a text, or what was JSON already, as it is: a shell that looks into the file finds no escapes in it.
func asJSON(value any) json.RawMessage {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		return json.RawMessage("null") // never for these
	}
	return bytes.TrimSpace(out.Bytes())
}
