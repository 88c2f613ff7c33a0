package schedule

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestZonesComeFromTheBuiltInDataWhateverTheMachineHas(t *testing.T) {
	summer := time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC)
	machine, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatalf("load the machine's zone: %v", err)
	}
	if _, offset := summer.In(machine).Zone(); offset != 9*3600 {
		t.Fatalf("the machine's Berlin is not the false one (offset %d): this test shows nothing", offset)
	}
	built, err := LoadZone("Europe/Berlin")
	if err != nil {
		t.Fatalf("load the zone: %v", err)
	}
	if _, offset := summer.In(built).Zone(); offset != 2*3600 {
		t.Errorf("Berlin is %d s from UTC in summer: zone data of the machine is read", offset)
	}
	if built.String() != "Europe/Berlin" {
		t.Errorf("the zone calls itself %s", built)
	}
}

func TestEveryListedZoneLoads(t *testing.T) {
	names := Zones()
	if len(names) < 590 {
		t.Errorf("only %d zones", len(names))
	}
	for _, name := range names {
		if _, err := LoadZone(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWhatIsNoZoneIsRefusedByItsField(t *testing.T) {
	for name, want := range map[string]string{
		"":                        "is empty",
		"Local":                   "another one on each machine",
		"local":                   "another one on each machine",
		"Factory":                 "not known",
		"Europe/Berln":            "not known",
		"europe/berlin":           "did you mean Europe/Berlin?",
		"berlin":                  "did you mean Europe/Berlin?",
		"../etc/passwd":           "not known",
		"/usr/share/zoneinfo/UTC": "not known",
		"Europe/":                 "not known",
		"UTC\x00":                 "control",
		"Zürich":                  "non-ASCII",
		"UTC+1":                   "not known",
		"UTC" + " ":               "not known",
		strings.Repeat("A/", 5e3): "more than 64",
	} {
		_, err := LoadZone(name)
		var invalid *InvalidError
		if !errors.As(err, &invalid) || invalid.Fields[0].Pointer != "/zone" || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: got %v, want /zone … %s", name, err, want)
		}
	}
}
