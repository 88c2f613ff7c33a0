package certs

import (
	"bytes"
	"crypto/tls"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"slipway.dev/slipway/e2e/authority"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shelf is where a test's files lie.
type shelf struct {
	t   *testing.T
	dir string
	log bytes.Buffer
}

func newShelf(t *testing.T) *shelf { return &shelf{t: t, dir: t.TempDir()} }

func (s *shelf) put(name string, text []byte) string {
	s.t.Helper()
	file := filepath.Join(s.dir, name)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		s.t.Fatal(err)
	}
	return file
}

func (s *shelf) pair() authority.Pair {
	s.t.Helper()
	p, err := authority.Make("slipway")
	if err != nil {
		s.t.Fatal(err)
	}
	return p
}

func (s *shelf) open(p authority.Pair) *Files {
	s.t.Helper()
	f, err := Open(Config{
		Cert: s.put("tls.crt", p.Cert), Key: s.put("tls.key", p.Key), CA: s.put("ca.crt", p.CA), Every: 10 * time.Second,
		Log: slog.New(slog.NewTextHandler(&s.log, nil)),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return f
}

// serves tells whether f serves with p.
func (s *shelf) serves(f *Files, p authority.Pair) bool {
	s.t.Helper()
	got, err := f.Server().GetCertificate(nil)
	if err != nil {
		s.t.Fatal(err)
	}
	want, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		s.t.Fatal(err)
	}
	return bytes.Equal(got.Certificate[0], want.Certificate[0])
}

func TestAChangedPairIsServedAfterOnePoll(t *testing.T) {
	s := newShelf(t)
	first, second := s.pair(), s.pair()
	synctest.Test(t, func(t *testing.T) {
		f := s.open(first)
		go func() { _ = f.Run(t.Context()) }()
		s.put("tls.crt", second.Cert)
		s.put("tls.key", second.Key)
		s.put("ca.crt", second.CA)
		time.Sleep(9 * time.Second)
		if !s.serves(f, first) {
			t.Error("changed before the files were read")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if !s.serves(f, second) || f.CA() != string(second.CA) {
			t.Error("the new pair is not in use after a poll")
		}
		if got := f.Standing(); got.Reloads != 1 || got.Failures != 0 || got.Stale || got.NotAfter.IsZero() {
			t.Errorf("%+v", got)
		}
	})
}

func TestAHalfWrittenPairKeepsTheOldOneAndSaysSoOnce(t *testing.T) {
	for name, half := range map[string]func(s *shelf, next authority.Pair){
		"the key is the old one": func(s *shelf, next authority.Pair) { s.put("tls.crt", next.Cert) },
		"the certificate ends in the middle": func(s *shelf, next authority.Pair) {
			s.put("tls.crt", next.Cert[:len(next.Cert)/2])
			s.put("tls.key", next.Key)
		},
		"the key is gone":        func(s *shelf, _ authority.Pair) { _ = os.Remove(filepath.Join(s.dir, "tls.key")) },
		"the authority is empty": func(s *shelf, _ authority.Pair) { s.put("ca.crt", nil) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newShelf(t)
			first, second := s.pair(), s.pair()
			f := s.open(first)
			half(s, second)
			f.look()
			f.look()
			if got := f.Standing(); !s.serves(f, first) || f.CA() != string(first.CA) || got.Failures != 2 || !got.Stale || got.Reloads != 0 {
				t.Errorf("%+v", got)
			}
			if n := strings.Count(s.log.String(), "cannot be used"); n != 1 {
				t.Errorf("said %d times: %s", n, s.log.String())
			}
			s.put("tls.crt", second.Cert)
			s.put("tls.key", second.Key)
			s.put("ca.crt", second.CA)
			f.look()
			if got := f.Standing(); !s.serves(f, second) || got.Stale || got.Reloads != 1 {
				t.Errorf("%+v", got)
			}
			if strings.Contains(s.log.String(), "PRIVATE KEY") {
				t.Error("a key stands in the log")
			}
		})
	}
}

func TestWhatCannotBeUsedAtTheStartIsRefusedAndNamed(t *testing.T) {
	s := newShelf(t)
	a, b := s.pair(), s.pair()
	cert, key := s.put("a.crt", a.Cert), s.put("b.key", b.Key)
	for want, c := range map[string]Config{
		"private key does not match": {Cert: cert, Key: key},
		"no such file":               {Cert: cert, Key: filepath.Join(s.dir, "none")},
		"no certificate in PEM":      {CA: key},
		"more than 65536":            {CA: s.put("big", bytes.Repeat(a.CA, 200))},
	} {
		if _, err := Open(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestWithoutFilesThereIsNoTLS(t *testing.T) {
	f, err := Open(Config{})
	if err != nil || f.Server() != nil || f.CA() != "" {
		t.Errorf("%v, %v", f, err)
	}
}
