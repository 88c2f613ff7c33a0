package recorder

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEntriesAreStampedOnArrivalAndKeptInOrder(t *testing.T) {
	r, err := Start(t.Context(), "127.0.0.1", filepath.Join(t.TempDir(), "entries"))
	if err != nil {
		t.Fatal(err)
	}
	before := time.Now()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, body := range []string{
		`{"what":"begin","task":"a","lane":"l:n/x","attempt":2,"fence":7,"pod":"p","at":"2001-01-01T00:00:00Z"}`,
		`{"what":"end","task":"a"}`,
	} {
		answer, err := client.Post("http://"+r.Address+"/entries", "application/json", strings.NewReader(body))
		if err != nil || answer.StatusCode != http.StatusNoContent {
			t.Fatalf("%v, %v", answer, err)
		}
		_ = answer.Body.Close()
	}
	answer, err := client.Get("http://" + r.Address + "/entries")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(answer.Body)
	_ = answer.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	var got []Entry
	for lines := bufio.NewScanner(bytes.NewReader(raw)); lines.Scan(); {
		var e Entry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		got = append(got, e)
	}
	if len(got) != 2 || got[0].What != Begin || got[0].Fence != 7 || got[0].Attempt != 2 || got[0].Lane != "l:n/x" || got[1].What != End {
		t.Fatalf("%+v", got)
	}
	if got[0].At.Before(before) || got[1].At.Before(got[0].At) {
		t.Errorf("stamps %v, %v", got[0].At, got[1].At)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}
