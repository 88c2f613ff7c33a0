package httpapi

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
)

// fingerprint is the SHA-256 of a route and a body in canonical form: two requests with the same one ask for the same.
// The form is that of RFC 8785, but numbers are compared exactly and not as doubles.
func fingerprint(route string, body any) []byte {
	var b bytes.Buffer
	b.WriteString(route)
	b.WriteByte('\n')
	writeCanonical(&b, body)
	sum := sha256.Sum256(b.Bytes())
	return sum[:]
}

func writeCanonical(b *bytes.Buffer, v any) {
	switch v := v.(type) {
	case nil:
		b.WriteString("null")
	case bool:
		b.WriteString(strconv.FormatBool(v))
	case string:
		writeText(b, v)
	case json.Number:
		b.WriteString(exact(string(v)))
	case []any:
		b.WriteByte('[')
		for i, item := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			writeCanonical(b, item)
		}
		b.WriteByte(']')
	case map[string]any:
		writeObject(b, v)
	}
}

func writeObject(b *bytes.Buffer, v map[string]any) {
	keys := make([]string, 0, len(v))
	for key := range v {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(x, y string) int {
		return slices.CompareFunc(utf16.Encode([]rune(x)), utf16.Encode([]rune(y)), cmp.Compare[uint16])
	})
	b.WriteByte('{')
	for i, key := range keys {
		if i > 0 {
			b.WriteByte(',')
		}
		writeText(b, key)
		b.WriteByte(':')
		writeCanonical(b, v[key])
	}
	b.WriteByte('}')
}

// writeText writes a string so that two different ones never look the same: quoted by Go's rules, which is all that a
// fingerprint needs.
func writeText(b *bytes.Buffer, s string) {
	b.WriteString(strconv.Quote(s))
}

// exact gives a number a form that depends on its value alone: digits without zeros at either end, and a power of ten.
// The parser bounds exponent and length.
func exact(number string) string {
	sign := ""
	if rest, negative := strings.CutPrefix(number, "-"); negative {
		sign, number = "-", rest
	}
	digits, power := strings.ToLower(number), 0
	if mantissa, exponent, ok := strings.Cut(digits, "e"); ok {
		digits = mantissa
		power, _ = strconv.Atoi(exponent) // checked by the parser
	}
	if whole, fraction, ok := strings.Cut(digits, "."); ok {
		digits = whole + fraction
		power -= len(fraction)
	}
	digits = strings.TrimLeft(digits, "0")
	short := strings.TrimRight(digits, "0")
	power += len(digits) - len(short)
	if short == "" {
		return "0"
	}
	return sign + short + "e" + strconv.Itoa(power)
}
