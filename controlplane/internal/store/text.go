package store

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Bounds of what is stored.
const (
	maxMessage  = 4 << 10
	maxNote     = 1 << 10
	maxParams   = 256 << 10
	maxResult   = 64 << 10
	maxProgress = 4 << 10
	maxEvidence = 64 << 10
	maxDepth    = 200 // of nested JSON
	maxDigits   = 300 // of a JSON number, and of its exponent's value
	maxLabels   = 16
	maxLabel    = 512 // key and value together
	maxKey      = 512 // what an index holds: lanes, kinds, idempotency keys
	maxName     = 200 // characters
)

const cleanedMark = " [slipway: bytes that cannot be stored were replaced]"

// clean makes text from outside storable: what is not UTF-8, and U+0000, become U+FFFD, and a mark at the end says
// so. What is longer than limit is cut in the middle, where it matters least.
func clean(text string, limit int) string {
	cut := text
	if len(text) > limit {
		const gap = "\n…\n"
		half := (limit - len(gap)) / 2
		cut = text[:half] + gap + text[len(text)-half:]
	}
	if utf8.ValidString(text) && !strings.ContainsRune(text, 0) {
		// A cut may have split a character; that is no mark's worth.
		return strings.ToValidUTF8(cut, "")
	}
	plain := strings.ReplaceAll(strings.ToValidUTF8(cut, "\uFFFD"), "\x00", "\uFFFD")
	if over := len(plain) + len(cleanedMark) - limit; over > 0 && over < len(plain) {
		plain = strings.ToValidUTF8(plain[:len(plain)-over], "")
	}
	return plain + cleanedMark
}

// cleanJSON makes a JSON value from outside storable as jsonb, of at most limit bytes. What is no JSON becomes a
// string of its text; what is too large becomes an object that says so.
func cleanJSON(raw json.RawMessage, limit int) json.RawMessage {
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil
	}
	if len(raw) > limit {
		return fmt.Appendf(nil, `{"slipway_dropped":"larger than %d bytes","bytes":%d}`, limit, len(raw))
	}
	if !json.Valid(raw) {
		return quoted(string(raw), limit)
	}
	s := jsonScan{in: raw}
	s.run()
	switch {
	case s.tooDeep:
		return fmt.Appendf(nil, `{"slipway_dropped":"nested deeper than %d","bytes":%d}`, maxDepth, len(raw))
	case s.reason == "":
		return raw
	}
	return s.out.Bytes()
}

func quoted(text string, limit int) json.RawMessage {
	q, err := json.Marshal(clean(text, limit/8))
	if err != nil {
		return nil // a string marshals
	}
	return q
}

// unstorable says why a JSON value from a user cannot be stored as it is; empty: it can.
func unstorable(raw json.RawMessage, limit int) string {
	switch {
	case len(raw) > limit:
		return fmt.Sprintf("is larger than %d bytes", limit)
	case !utf8.Valid(raw):
		return "is not valid UTF-8"
	case !json.Valid(raw):
		return "is not valid JSON"
	}
	s := jsonScan{in: raw}
	s.run()
	if s.tooDeep {
		return fmt.Sprintf("is nested deeper than %d", maxDepth)
	}
	return s.reason
}

// jsonScan copies valid JSON and replaces what jsonb refuses: U+0000, surrogates that stand alone, bytes that are
// not UTF-8, and numbers beyond reason, which become strings.
type jsonScan struct {
	in      []byte
	out     bytes.Buffer
	reason  string // of the first replacement
	tooDeep bool
	depth   int
}

func (s *jsonScan) run() {
	for i := 0; i < len(s.in); {
		switch c := s.in[i]; {
		case c == '"':
			i = s.text(i)
			continue
		case c == '-' || c >= '0' && c <= '9':
			i = s.number(i)
			continue
		case c == '{' || c == '[':
			s.depth++
			s.tooDeep = s.tooDeep || s.depth > maxDepth
		case c == '}' || c == ']':
			s.depth--
		}
		s.out.WriteByte(s.in[i])
		i++
	}
}

func (s *jsonScan) replace(reason string) {
	if s.reason == "" {
		s.reason = reason
	}
}

func (s *jsonScan) number(i int) int {
	end := i
	for end < len(s.in) && strings.IndexByte("+-0123456789.eE", s.in[end]) >= 0 {
		end++
	}
	text := s.in[i:end]
	mantissa, exponent, _ := strings.Cut(strings.ToLower(string(text)), "e")
	n := 0
	if exponent != "" {
		var err error
		if n, err = strconv.Atoi(exponent); err != nil {
			n = maxDigits + 1
		}
	}
	if len(mantissa) > maxDigits || n > maxDigits || n < -maxDigits {
		s.replace("holds a number beyond reason")
		s.out.WriteByte('"')
		s.out.Write(text[:min(len(text), maxDigits)])
		s.out.WriteByte('"')
		return end
	}
	s.out.Write(text)
	return end
}

// text copies the string that begins at i and gives the place after it.
func (s *jsonScan) text(i int) int {
	const bad = "\uFFFD"
	s.out.WriteByte('"')
	for i++; s.in[i] != '"'; {
		c := s.in[i]
		switch {
		case c == '\\' && s.in[i+1] == 'u':
			i = s.escape(i)
		case c == '\\':
			s.out.Write(s.in[i : i+2])
			i += 2
		case c < utf8.RuneSelf:
			s.out.WriteByte(c)
			i++
		default:
			r, size := utf8.DecodeRune(s.in[i:])
			if r == utf8.RuneError && size == 1 {
				s.replace("is not valid UTF-8")
				s.out.WriteString(bad)
			} else {
				s.out.Write(s.in[i : i+size])
			}
			i += size
		}
	}
	s.out.WriteByte('"')
	return i + 1
}

// escape copies the \uXXXX at i, with its second half where it is a pair.
func (s *jsonScan) escape(i int) int {
	const size = 6
	unit := func(at int) uint64 {
		if at+size > len(s.in) || s.in[at] != '\\' || s.in[at+1] != 'u' {
			return 0
		}
		n, err := strconv.ParseUint(string(s.in[at+2:at+size]), 16, 32)
		if err != nil {
			return 0
		}
		return n
	}
	const low, high, end = 0xDC00, 0xD800, 0xE000
	first := unit(i)
	switch {
	case first == 0:
		s.replace("holds U+0000")
	case first >= low && first < end:
		s.replace("holds half of a surrogate pair")
	case first >= high && first < low:
		if second := unit(i + size); second >= low && second < end {
			s.out.Write(s.in[i : i+2*size])
			return i + 2*size
		}
		s.replace("holds half of a surrogate pair")
	default:
		s.out.Write(s.in[i : i+size])
		return i + size
	}
	s.out.WriteString(`\ufffd`)
	return i + size
}
