package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// disk is the folder of what the driver has.
type disk struct{ dir string }

// volume is what is known of a volume beside its file.
type volume struct {
	ID     string `json:"id"`
	Object string `json:"object"` // namespace/name of the claim that it was made for
	Bytes  int64  `json:"bytes"`
	FS     string `json:"fs"`
	IOPS   string `json:"iops,omitempty"` // of its VolumeAttributesClass
	Grow   bool   `json:"grow,omitempty"` // a copy that is larger than its source: its file system grows at the first mount
}

// snapshot is what is known of a snapshot beside its file.
type snapshot struct {
	ID     string    `json:"id"`
	Object string    `json:"object"` // namespace/name of the VolumeSnapshot
	Volume string    `json:"volume"`
	Claim  string    `json:"claim"` // namespace/name of the volume's claim
	FS     string    `json:"fs"`
	Bytes  int64     `json:"bytes"`
	At     time.Time `json:"at"`
}

func (d disk) volumes() string   { return filepath.Join(d.dir, "volumes") }
func (d disk) snapshots() string { return filepath.Join(d.dir, "snapshots") }
func (d disk) switches() string  { return filepath.Join(d.dir, "switches.json") }
func (d disk) calls() string     { return filepath.Join(d.dir, "calls.jsonl") }

func image(folder, id string) string { return filepath.Join(folder, id+".img") }

// validID keeps ids inside their folder.
var validID = regexp.MustCompile(`^[a-z0-9][-a-z0-9.]{0,127}$`)

// read fills a record; false if there is none of this id.
func read(folder, id string, into any) (bool, error) {
	if !validID.MatchString(id) {
		return false, nil
	}
	raw, err := os.ReadFile(filepath.Join(folder, id+".json"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = json.Unmarshal(raw, into)
	}
	if err != nil {
		return false, fmt.Errorf("read record of %s: %w", id, err)
	}
	return true, nil
}

// write replaces a record in one step.
func write(folder, id string, record any) error {
	raw, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("write record of %s: %w", id, err)
	}
	path := filepath.Join(folder, id+".json")
	if err := os.WriteFile(path+".new", raw, 0o600); err != nil {
		return fmt.Errorf("write record of %s: %w", id, err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("write record of %s: %w", id, err)
	}
	return nil
}

// remove takes the record last: what is half removed is removed by the next try.
func remove(folder, id string) error {
	if !validID.MatchString(id) {
		return nil
	}
	for _, end := range []string{".img.new", ".img", ".json.new", ".json"} {
		if err := os.Remove(filepath.Join(folder, id+end)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove %s: %w", id, err)
		}
	}
	return nil
}

// list reads all records of a folder.
func list[T any](folder string) ([]T, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", folder, err)
	}
	var all []T
	for _, file := range files {
		var one T
		found, err := read(folder, strings.TrimSuffix(filepath.Base(file), ".json"), &one)
		if err != nil {
			return nil, err
		}
		if found {
			all = append(all, one)
		}
	}
	return all, nil
}

// objectsOf names what a request is about by what the cluster calls it.
func (d disk) objectsOf(request any) []string {
	var objects []string
	add := func(namespace, name string) {
		if name != "" {
			objects = append(objects, namespace+"/"+name)
		}
	}
	if r, ok := request.(interface{ GetParameters() map[string]string }); ok {
		for _, kind := range []string{"pvc", "volumesnapshot"} {
			at := "csi.storage.k8s.io/" + kind
			add(r.GetParameters()[at+"/namespace"], r.GetParameters()[at+"/name"])
		}
	}
	var v volume
	if r, ok := request.(interface{ GetVolumeId() string }); ok {
		if found, _ := read(d.volumes(), r.GetVolumeId(), &v); found { // a broken one shows where it is acted on
			objects = append(objects, v.Object)
		}
	}
	if r, ok := request.(interface{ GetSourceVolumeId() string }); ok {
		if found, _ := read(d.volumes(), r.GetSourceVolumeId(), &v); found {
			objects = append(objects, v.Object)
		}
	}
	var s snapshot
	if r, ok := request.(interface{ GetSnapshotId() string }); ok {
		if found, _ := read(d.snapshots(), r.GetSnapshotId(), &s); found {
			objects = append(objects, s.Object, s.Claim)
		}
	}
	return objects
}

func appendLine(path string, line []byte) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(append(line, '\n'))
	return errors.Join(err, file.Close())
}
