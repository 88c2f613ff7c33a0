package store_test

import (
	"testing"

	"slipway.dev/slipway/controlplane/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestStoreOpensOnAMigratedDatabase(t *testing.T) {
	s := pgtest.New(t)
	if err := s.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.Instance() == "" || len(s.SessionKey()) != 32 {
		t.Fatalf("instance %q, %d bytes of key", s.Instance(), len(s.SessionKey()))
	}
}
