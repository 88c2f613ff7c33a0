package store_test

import "testing"

func TestStoreOpensOnAMigratedDatabase(t *testing.T) {
	s := newDatabase(t)
	if err := s.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.Instance() == "" || len(s.SessionKey()) != 32 {
		t.Fatalf("instance %q, %d bytes of key", s.Instance(), len(s.SessionKey()))
	}
}
