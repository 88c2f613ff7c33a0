package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

func read(text string, clean bool) (any, *parser, error) {
	p := &parser{data: []byte(text), clean: clean}
	v, err := p.parse()
	return v, p, err
}

func TestTheParserRefusesWhatAnotherReaderMightTakeDifferently(t *testing.T) {
	for _, tc := range []struct{ name, text, pointer, reason string }{
		{"nothing", ``, "", "ends too early"},
		{"only space", " \n", "", "ends too early"},
		{"two values", `{} {}`, "", "goes on"},
		{"text after the end", `{"a":1}x`, "", "goes on"},
		{"byte order mark", "\ufeff{}", "", "not JSON"},
		{"comment", `{"a":1/**/}`, "", "not JSON"},
		{"single quotes", `{'a':1}`, "", "not JSON"},
		{"bare name", `{a:1}`, "", "not JSON"},
		{"comma at the end of an object", `{"a":1,}`, "", "not JSON"},
		{"comma at the end of a list", `[1,]`, "/1", "not JSON"},
		{"comma at the start", `[,1]`, "/0", "not JSON"},
		{"no comma", `[1 2]`, "", "not JSON"},
		{"no colon", `{"a" 1}`, "/a", "not JSON"},
		{"key twice", `{"a":1,"b":2,"a":3}`, "/a", "twice"},
		{"key twice, once escaped", `{"a":1,"\u0061":3}`, "/a", "twice"},
		{"key twice below", `{"x":[{"a":1,"a":1}]}`, "/x/0/a", "twice"},
		{"NUL", `{"params":{"deep":["a\u0000b"]}}`, "/params/deep/0", "U+0000"},
		{"NUL in a key", `{"a\u0000":1}`, "", "U+0000"},
		{"lone high surrogate", `{"a":"\ud800"}`, "/a", "surrogate"},
		{"lone low surrogate", `{"a":"\udc00x"}`, "/a", "surrogate"},
		{"two high surrogates", `{"a":"\ud800\ud800"}`, "/a", "surrogate"},
		{"high surrogate before a letter", `{"a":"\ud800\u0041"}`, "/a", "surrogate"},
		{"bytes that are not UTF-8", "{\"a\":\"\xff\xfe\"}", "/a", "UTF-8"},
		{"surrogate as UTF-8", "{\"a\":\"\xed\xa0\x80\"}", "/a", "UTF-8"},
		{"raw control character", "{\"a\":\"x\ty\"}", "/a", "escaped"},
		{"raw NUL", "{\"a\":\"x\x00y\"}", "/a", "escaped"},
		{"unknown escape", `{"a":"\x41"}`, "/a", "known escape"},
		{"short escape", `{"a":"\u12"}`, "/a", "hexadecimal"},
		{"open text", `{"a":"x`, "/a", "ends too early"},
		{"open object", `{"a":1`, "", "ends too early"},
		{"leading zero", `[01]`, "", "not JSON"},
		{"plus", `[+1]`, "/0", "not JSON"},
		{"no digits", `[-]`, "/0", "not JSON"},
		{"point without digits", `[1.]`, "/0", "not JSON"},
		{"infinite", `[1e999999999]`, "/0", "out of range"},
		{"too small", `[1e-100000]`, "/0", "out of range"},
		{"half a word", `[tru]`, "/0", "not JSON"},
		{"not a number", `[NaN]`, "/0", "not JSON"},
		{"too deep", strings.Repeat("[", 70) + strings.Repeat("]", 70), strings.Repeat("/0", maxDepth+1), "deeper"},
		{"key with a slash", `{"a/b~":"\u0000"}`, "/a~1b~0", "U+0000"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, _, err := read(tc.text, false)
			var bad *requestError
			if !errors.As(err, &bad) || len(bad.fields) != 1 {
				t.Fatalf("got %v", err)
			}
			if f := bad.fields[0]; f.Pointer != tc.pointer || !strings.Contains(f.Reason, tc.reason) {
				t.Errorf("got %q %q, want %q … %q …", f.Pointer, f.Reason, tc.pointer, tc.reason)
			}
		})
	}
}

func TestTheParserReadsWhatIsGood(t *testing.T) {
	for _, text := range []string{
		`{}`, `[]`, `""`, `null`, `true`, `false`, `0`, `-0`, `-1.5e+10`, `1E-7`, ` { "a" : [ 1 , { } , null ] } `,
		`"\"\\\/\b\f\n\r\t\u00e9\ud83d\udea2"`, `"é🚢"`, `{"":0,"A":1,"a":2}`, `"\\u0000"`, "\"\x7f\ufffd\"",
		`[123456789012345678901234567890]`,
	} {
		got, _, err := read(text, false)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if want := lenient(t, []byte(text)); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %#v, want %#v", text, got, want)
		}
	}
}

func TestTheHarmlessEscapedTextStaysUntouched(t *testing.T) {
	got, p, err := read(`"\\u0000"`, true)
	if err != nil || got != `\u0000` || p.cleaned {
		t.Errorf("got %q, cleaned %v, %v", got, p.cleaned, err)
	}
}

func TestAToolsTextIsCleanedAndNotRefused(t *testing.T) {
	got, p, err := read("{\"message\":\"a\\u0000b\\ud800c\xff\xfed\"}", true)
	want := map[string]any{"message": "a\ufffdb\ufffdc\ufffd\ufffdd"}
	if err != nil || !p.cleaned || !reflect.DeepEqual(got, want) {
		t.Errorf("got %#v, cleaned %v, %v", got, p.cleaned, err)
	}
}

func lenient(t *testing.T, text []byte) any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("encoding/json refuses %q: %v", text, err)
	}
	return v
}

// FuzzParse holds the parser against encoding/json: what it takes means the same there, and what it refuses is either
// refused there too or one of the things that it is here to refuse.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`{"kind":"command.run","namespace":"shop","params":{"command":["a","\u00e9"]}}`, `[1,2.5e-3,-0,true,null]`,
		`{"a":{"a":[[[]]]}}`, `"\ud83d\udea2"`, `"\ud800"`, "\"\xff\"", `{"a":1,"a":2}`, `1e400`, `{"a":"\u0000"}`, ` `,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := (&parser{data: data}).parse()
		if err != nil {
			checkRefusal(t, data, err)
			return
		}
		if !json.Valid(data) || !utf8.Valid(data) {
			t.Fatalf("%q was taken", data)
		}
		if want := lenient(t, data); !reflect.DeepEqual(got, want) {
			t.Fatalf("%q: got %#v, want %#v", data, got, want)
		}
		written, err := json.Marshal(got)
		if err != nil {
			t.Fatalf("%q: write again: %v", data, err)
		}
		again, err := (&parser{data: written}).parse()
		if err != nil || !bytes.Equal(fingerprint("", got), fingerprint("", again)) {
			t.Fatalf("%q: written again as %q it is another request (%v)", data, written, err)
		}
	})
}

func checkRefusal(t *testing.T, data []byte, err error) {
	t.Helper()
	var bad *requestError
	if !errors.As(err, &bad) || len(bad.fields) != 1 || !utf8.ValidString(bad.fields[0].Pointer) {
		t.Fatalf("%q: refused with %#v", data, err)
	}
	if !json.Valid(data) {
		return
	}
	for _, ours := range []string{"twice", "U+0000", "surrogate", "UTF-8", "out of range", "deeper"} {
		if strings.Contains(bad.fields[0].Reason, ours) {
			return
		}
	}
	t.Fatalf("%q is good JSON and was refused: %v", data, bad.fields)
}

func TestAFingerprintDependsOnTheMeaningAlone(t *testing.T) {
	print := func(text string) string {
		v, _, err := read(text, false)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		return string(fingerprint("POST /x", v))
	}
	for _, same := range [][]string{
		{`{"a":1,"b":"x"}`, ` { "b" : "\u0078" , "a" : 1.0 } `},
		{`100`, `1e2`, `1.00E+2`, `1000e-1`},
		{`0`, `-0`, `0.000`, `0e9`},
		{`12345678901234567890.5`, `123456789012345678905e-1`},
	} {
		for _, other := range same[1:] {
			if print(same[0]) != print(other) {
				t.Errorf("%s and %s differ", same[0], other)
			}
		}
	}
	for _, differ := range [][2]string{
		{`{"a":1}`, `{"a":"1"}`},
		{`[]`, `{}`},
		{`null`, `"null"`},
		{`1`, `-1`},
		{`10`, `1`},
		{`["a","b"]`, `["a,b"]`},
		{`["a\",\"b"]`, `["a","b"]`},
		{`9007199254740993`, `9007199254740992`},
		{`{"a":{}}`, `{"a":[]}`},
		{`[[1],2]`, `[[1,2]]`},
	} {
		if print(differ[0]) == print(differ[1]) {
			t.Errorf("%s and %s are the same", differ[0], differ[1])
		}
	}
	if bytes.Equal(fingerprint("a", nil), fingerprint("b", nil)) {
		t.Error("the route does not count")
	}
}
