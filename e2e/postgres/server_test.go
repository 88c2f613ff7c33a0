package postgres

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestServerKeepsItsDataThroughEveryKindOfEndAndLeavesNothing(t *testing.T) {
	s, err := Start(t.Context(), Options{Fsync: true})
	if err != nil {
		t.Fatal(err)
	}
	query(t, s, "create table kept (n int)")
	for i, end := range []func() error{s.Pause, s.Kill, func() error { return s.Stop(Immediate) }} {
		query(t, s, "insert into kept values (1)")
		if err := end(); err != nil {
			t.Fatal(err)
		}
		if err := s.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := query(t, s, "select count(*) from kept"); got != string(rune('1'+i)) {
			t.Fatalf("rows after end %d: %s", i, got)
		}
	}
	if err := s.Stop(Fast); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(s.dir); !os.IsNotExist(err) {
		t.Fatalf("the folder is left: %v", err)
	}
}

func query(t *testing.T, s *Server, sql string) string {
	t.Helper()
	for _, url := range []string{s.TCP("postgres"), s.URL("postgres")} {
		cmd := exec.Command(filepath.Join(s.bin, "psql"), "-X", "-A", "-t", "-d", url, "-c", sql)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if !strings.HasPrefix(sql, "select") {
			return ""
		}
		if url == s.URL("postgres") {
			return string(bytes.TrimSpace(out))
		}
	}
	return ""
}
