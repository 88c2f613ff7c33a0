package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"slipway.dev/slipway/controlplane/internal/kinds"
)

// Bounds of a JSON body besides its size.
const (
	maxDepth  = 64
	maxDigits = 400 // of one number, and of its exponent's size: more fits neither a double nor the database
)

// parser reads one JSON text without the leniency of encoding/json: nothing after the value, no key twice, no text that
// is not valid UTF-8, no U+0000 and no half of a surrogate pair, which a database cannot keep.
type parser struct {
	data []byte
	pos  int
	path []string
	// clean replaces text that cannot be kept by U+FFFD where it would be refused; cleaned says that it happened.
	clean, cleaned bool
}

// parse reads data; the error is a *requestError that names the field.
func (p *parser) parse() (any, error) {
	p.space()
	v, err := p.value(0)
	if err != nil {
		return nil, err
	}
	if p.space(); p.pos != len(p.data) {
		return nil, p.bad("goes on after its end")
	}
	return v, nil
}

func (p *parser) bad(reason string, args ...any) error {
	var at strings.Builder
	for _, step := range p.path {
		at.WriteString("/" + kinds.Escape(step))
	}
	const most = 300
	pointer := at.String()
	if len(pointer) > most {
		pointer = strings.ToValidUTF8(pointer[:most], "") + "…"
	}
	return badRequest("the body cannot be read", field(pointer, fmt.Sprintf(reason, args...)))
}

func (p *parser) syntax(want string) error {
	if p.pos >= len(p.data) {
		return p.bad("ends too early, at byte %d", p.pos)
	}
	return p.bad("is not JSON at byte %d: want %s", p.pos, want)
}

func (p *parser) space() {
	for p.pos < len(p.data) {
		switch p.data[p.pos] {
		case ' ', '\t', '\n', '\r':
			p.pos++
		default:
			return
		}
	}
}

func (p *parser) next(c byte) bool {
	if p.pos < len(p.data) && p.data[p.pos] == c {
		p.pos++
		return true
	}
	return false
}

func (p *parser) value(depth int) (any, error) {
	if depth > maxDepth {
		return nil, p.bad("is nested deeper than %d levels", maxDepth)
	}
	if p.pos >= len(p.data) {
		return nil, p.syntax("a value")
	}
	switch c := p.data[p.pos]; {
	case c == '{':
		return p.object(depth)
	case c == '[':
		return p.array(depth)
	case c == '"':
		return p.text()
	case c == '-' || c >= '0' && c <= '9':
		return p.number()
	}
	for _, literal := range literals {
		if bytes.HasPrefix(p.data[p.pos:], literal.text) {
			p.pos += len(literal.text)
			return literal.value, nil
		}
	}
	return nil, p.syntax("a value")
}

var literals = []struct {
	text  []byte
	value any
}{{[]byte("true"), true}, {[]byte("false"), false}, {[]byte("null"), nil}}

func (p *parser) object(depth int) (any, error) {
	p.pos++ // {
	all := map[string]any{}
	for p.space(); !p.next('}'); p.space() {
		if len(all) > 0 {
			if !p.next(',') {
				return nil, p.syntax("a comma or the end of the object")
			}
			p.space()
		}
		if p.pos >= len(p.data) || p.data[p.pos] != '"' {
			return nil, p.syntax("a name in quotes")
		}
		key, err := p.text()
		if err != nil {
			return nil, err
		}
		p.path = append(p.path, key)
		if _, twice := all[key]; twice {
			return nil, p.bad("stands twice")
		}
		if p.space(); !p.next(':') {
			return nil, p.syntax("a colon")
		}
		p.space()
		if all[key], err = p.value(depth + 1); err != nil {
			return nil, err
		}
		p.path = p.path[:len(p.path)-1]
	}
	return all, nil
}

func (p *parser) array(depth int) (any, error) {
	p.pos++ // [
	all := []any{}
	for p.space(); !p.next(']'); p.space() {
		if len(all) > 0 {
			if !p.next(',') {
				return nil, p.syntax("a comma or the end of the list")
			}
			p.space()
		}
		p.path = append(p.path, strconv.Itoa(len(all)))
		v, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		p.path = p.path[:len(p.path)-1]
		all = append(all, v)
	}
	return all, nil
}

// text reads a string.
func (p *parser) text() (string, error) {
	p.pos++ // "
	start := p.pos
	for p.pos < len(p.data) && p.data[p.pos] != '"' && p.data[p.pos] != '\\' && p.data[p.pos] >= ' ' && p.data[p.pos] < utf8.RuneSelf {
		p.pos++
	}
	out := p.data[start:p.pos:p.pos]
	for {
		switch {
		case p.pos >= len(p.data):
			return "", p.syntax("the end of a text")
		case p.data[p.pos] == '"':
			p.pos++
			return string(out), nil
		case p.data[p.pos] < ' ':
			return "", p.syntax("control characters to be escaped")
		case p.data[p.pos] == '\\':
			r, err := p.escape()
			if err != nil {
				return "", err
			}
			out = utf8.AppendRune(out, r)
		default:
			r, size := utf8.DecodeRune(p.data[p.pos:])
			if r == utf8.RuneError && size == 1 {
				if err := p.dirty("holds bytes that are not UTF-8"); err != nil {
					return "", err
				}
			}
			p.pos += size
			out = utf8.AppendRune(out, r)
		}
	}
}

// dirty refuses text that cannot be kept, or notes that it was replaced.
func (p *parser) dirty(reason string) error {
	if !p.clean {
		return p.bad("%s", reason)
	}
	p.cleaned = true
	return nil
}

// escape reads one escape sequence.
func (p *parser) escape() (rune, error) {
	p.pos++ // backslash
	if p.pos >= len(p.data) {
		return 0, p.syntax("an escape")
	}
	c := p.data[p.pos]
	if c != 'u' {
		at := strings.IndexByte(`"\/bfnrt`, c)
		if at < 0 {
			return 0, p.syntax("a known escape")
		}
		p.pos++
		return rune("\"\\/\b\f\n\r\t"[at]), nil
	}
	p.pos++
	r, ok := p.hex4()
	switch {
	case !ok:
		return 0, p.syntax("four hexadecimal digits")
	case r == 0:
		return utf8.RuneError, p.dirty("holds the character U+0000, which cannot be stored")
	case !utf16.IsSurrogate(r):
		return r, nil
	}
	if p.pos+1 < len(p.data) && p.data[p.pos] == '\\' && p.data[p.pos+1] == 'u' {
		back := p.pos
		p.pos += 2
		low, ok := p.hex4()
		if pair := utf16.DecodeRune(r, low); ok && pair != utf8.RuneError {
			return pair, nil
		}
		p.pos = back
	}
	return utf8.RuneError, p.dirty("holds half of a surrogate pair, which is no character")
}

func (p *parser) hex4() (rune, bool) {
	if p.pos+4 > len(p.data) {
		return 0, false
	}
	var r rune
	for _, c := range p.data[p.pos : p.pos+4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	p.pos += 4
	return r, true
}

func (p *parser) digits() bool {
	start := p.pos
	for p.pos < len(p.data) && p.data[p.pos] >= '0' && p.data[p.pos] <= '9' {
		p.pos++
	}
	return p.pos > start
}

func (p *parser) number() (any, error) {
	start := p.pos
	p.next('-')
	if !p.next('0') && !p.digits() {
		return nil, p.syntax("a digit")
	}
	if p.next('.') && !p.digits() {
		return nil, p.syntax("a digit")
	}
	exponent := 0
	if p.next('e') || p.next('E') {
		if !p.next('+') {
			p.next('-')
		}
		from := p.pos
		if !p.digits() {
			return nil, p.syntax("a digit")
		}
		var err error
		if exponent, err = strconv.Atoi(string(p.data[from:p.pos])); err != nil {
			exponent = maxDigits + 1
		}
	}
	if p.pos-start > maxDigits || exponent > maxDigits {
		return nil, p.bad("is a number out of range")
	}
	return json.Number(p.data[start:p.pos]), nil
}
