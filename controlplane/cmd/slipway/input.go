package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"sigs.k8s.io/yaml"
)

// readInput reads what a flag -f names; - is the input.
func (c *cli) readInput(file, what string) (raw []byte, err error) {
	switch file {
	case "":
		return nil, errors.New("give a file with -f")
	case "-":
		raw, err = io.ReadAll(c.in)
	default:
		raw, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", what, err)
	}
	return raw, nil
}

// decodeStrict reads one document in YAML or JSON; a field that is not known is an error. There is none where it is empty.
func decodeStrict(raw []byte, into any) (there bool, err error) {
	text, err := yaml.YAMLToJSONStrict(raw)
	if err != nil {
		return false, err
	}
	if there = string(bytes.TrimSpace(text)) != "null"; !there {
		return false, nil
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	return true, d.Decode(into)
}
