package schedule

import (
	"archive/zip"
	"bytes"
	_ "embed" // the zone data
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// zoneData is lib/time/zoneinfo.zip of the Go toolchain, the same data that time/tzdata embeds. It is embedded here
// because time.LoadLocation reads ZONEINFO and the machine's own files first, and two replicas that differ in those would
// fire at different instants. Newer data is a change of its own: cp "$(go env GOROOT)/lib/time/zoneinfo.zip" .
//
//go:embed zoneinfo.zip
var zoneData []byte

// MaxZone is the length of the longest name that is looked up.
const MaxZone = 64

// zoneFiles is the index of zoneData: it is ours, so what does not read is a fault of the build and shows in every test.
var zoneFiles = sync.OnceValue(func() map[string]*zip.File {
	archive, err := zip.NewReader(bytes.NewReader(zoneData), int64(len(zoneData)))
	if err != nil {
		return nil
	}
	files := make(map[string]*zip.File, len(archive.File))
	for _, f := range archive.File {
		if !strings.HasSuffix(f.Name, "/") && f.Name != "Factory" { // Factory is the zone of a machine that nobody has set up
			files[f.Name] = f
		}
	}
	return files
})

// zones keeps what was loaded; there are no more than there are names.
var zones sync.Map

// Zones lists every zone name that [LoadZone] knows, sorted.
func Zones() []string {
	names := make([]string, 0, len(zoneFiles()))
	for name := range zoneFiles() {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// LoadZone gives the zone of that IANA name from the built-in data, and from nowhere else. Its error is an
// [InvalidError] for /zone.
func LoadZone(name string) (*time.Location, error) {
	var w wrong
	const give = "give an IANA name such as Europe/Berlin, or UTC"
	switch {
	case name == "":
		w.add("/zone", "is empty; %s", give)
	case len(name) > MaxZone:
		w.add("/zone", "has more than %d characters; %s", MaxZone, give)
	case !clean(name):
		w.add("/zone", "has a control or non-ASCII character; %s", give)
	case strings.EqualFold(name, "local"):
		w.add("/zone", "is no zone: Local is another one on each machine; %s", give)
	}
	if len(w) > 0 {
		return nil, w.err()
	}
	if loaded, ok := zones.Load(name); ok {
		return loaded.(*time.Location), nil
	}
	file, ok := zoneFiles()[name]
	if !ok {
		w.add("/zone", "%q is not known%s; %s", name, near(name), give)
		return nil, w.err()
	}
	loc, err := readZone(file)
	if err != nil {
		return nil, fmt.Errorf("read the zone data of %s: %w", name, err)
	}
	zones.Store(name, loc)
	return loc, nil
}

func readZone(file *zip.File) (*time.Location, error) {
	in, err := file.Open()
	if err != nil {
		return nil, err
	}
	defer in.Close() //nolint:errcheck // it reads from memory
	data, err := io.ReadAll(in)
	if err != nil {
		return nil, err
	}
	return time.LoadLocationFromTZData(file.Name, data)
}

// near offers the name that differs in case only, or the one that ends in what was given.
func near(name string) string {
	for _, known := range Zones() {
		if strings.EqualFold(known, name) || strings.EqualFold(known[strings.LastIndex(known, "/")+1:], name) {
			return fmt.Sprintf(" (did you mean %s?)", known)
		}
	}
	return ""
}
