package migrations

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"testing"
)

// released are the migrations that databases have run: they never run again, so that a change of one reaches nobody.
var released = map[string]string{
	"0001_first.sql":     "c5697b43623da9359214fb19233ebe91fa0be30fc1092828d0415b185f364c67",
	"0002_audit.sql":     "36bb2ba07189d17c7ac3229f5a360c8dcc938eae1dd3df0691e7d9382b1b4422",
	"0003_edge.sql":      "75289da983324004438b6fb70feca52ef9e5512ec0d9fac879283ffb6d628673",
	"0004_lanes.sql":     "84b61c62b374ea09e7a28666d47da74bac4fcbb371ed6989c6fc3b54c44464f5",
	"0005_executors.sql": "58b14bff13ccf2f9a6ceb83635da630edfdbd54c35099e4e9142a16eea2e942d",
	"0006_schedules.sql": "e5dd1d6f789260dcdbdbd70fe9768e8c86925387f4674bafcff8ce2754fb02a9",
}

func TestAMigrationThatWasReleasedNeverChanges(t *testing.T) {
	files, err := fs.Glob(Files, "*.sql")
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range files {
		text, err := Files.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(text)
		if got := hex.EncodeToString(sum[:]); released[name] != "" && released[name] != got {
			t.Errorf("%s has changed: databases that have run it would not; write the next one instead", name)
		}
		if name[:4] != fmt.Sprintf("%04d", i+1) {
			t.Errorf("%s is number %d", name, i+1)
		}
	}
	if len(files) != Latest {
		t.Errorf("%d migrations, and Latest is %d", len(files), Latest)
	}
}
