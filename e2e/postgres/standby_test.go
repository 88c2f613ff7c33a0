package postgres

import (
	"testing"
	"time"
)

func TestAStandbyTakesOverWithWhatItHeardAndASavedStateComesBack(t *testing.T) {
	s, err := Start(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	ends := func(s *Server) {
		t.Cleanup(func() {
			if err := s.Stop(Fast); err != nil {
				t.Error(err)
			}
		})
	}
	ends(s)
	query(t, s, "create table n (i int)")
	back, err := s.Save(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	query(t, s, "insert into n values (1)")
	rows := query(t, s, "select count(*) from n")
	if err := back(t.Context()); err != nil {
		t.Fatal(err)
	}
	if was, is := rows, query(t, s, "select count(*) from n"); was == is || is != "0" {
		t.Fatalf("%s rows before, %s after what was saved is back", was, is)
	}
	standby, err := s.Standby(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ends(standby)
	query(t, s, "insert into n values (1), (2), (3)")
	for deadline := time.Now().Add(20 * time.Second); query(t, standby, "select count(*) > 2 from n") != "t"; {
		if time.Now().After(deadline) {
			t.Fatal("the standby never heard of it")
		}
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := standby.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	query(t, standby, "insert into n values (5)")
}
