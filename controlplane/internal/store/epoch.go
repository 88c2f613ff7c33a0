package store

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"

	"gorm.io/gorm"
)

// partLane is a lane that is one part of a partition: `family:namespace/PART-of-PARTS`.
var partLane = regexp.MustCompile(`^(.+/)(?:0|[1-9][0-9]{0,3})-of-([1-9][0-9]{0,3})$`)

// partition tells what the lanes of a partition share, and how many they are; 0: the lane is none of one.
func partition(lane string) (lanes string, parts int) {
	m := partLane.FindStringSubmatch(lane)
	if m == nil {
		return "", 0
	}
	parts, err := strconv.Atoi(m[2])
	if err != nil {
		return "", 0
	}
	return m[1], parts
}

// epochRow is how many parts the lanes that begin alike are cut into, for as long as anything is open in them.
type epochRow struct {
	Lanes string `json:"lanes"`
	Parts int    `json:"parts"`
}

// epochs refuses entries of a partition while Tasks are open in the same lanes cut otherwise: what is about the same
// thing would be in two lanes then, with no order between them. Where nothing is open, a new epoch begins.
func (w *submit) epochs(tx *gorm.DB) error {
	wanted, first := map[string]int{}, map[string]*entry{}
	for _, e := range w.fresh() {
		lanes, parts := partition(e.lane)
		if parts == 0 {
			continue
		}
		if have, ok := wanted[lanes]; ok && have != parts {
			return FieldErrors{{e.pointer + "/lane", fmt.Sprintf("cuts the lanes of %s into %d parts, another item into %d", lanes, parts, have)}}
		}
		wanted[lanes], first[lanes] = parts, e
	}
	if len(wanted) == 0 {
		return nil
	}
	var kept []string
	if err := query(tx, "epoch/keep", args{"epochs": epochsOf(wanted)}, &kept); err != nil {
		return err
	}
	for _, lanes := range kept {
		delete(wanted, lanes)
	}
	if len(wanted) == 0 {
		return nil
	}
	return w.turn(tx, wanted, first)
}

// turn begins new epochs. The locks keep out submits of the old ones; what those have stored is seen by the statement
// after.
func (w *submit) turn(tx *gorm.DB, wanted map[string]int, first map[string]*entry) error {
	var old []epochRow
	if err := query(tx, "epoch/lock", args{"lanes": jsonOf(slices.Collect(maps.Keys(wanted)))}, &old); err != nil {
		return err
	}
	old = slices.DeleteFunc(old, func(r epochRow) bool { return r.Parts == wanted[r.Lanes] }) // by another, just now
	var open []struct{ Lanes, ID string }
	if err := query(tx, "epoch/open", args{"epochs": jsonOf(old)}, &open); err != nil {
		return err
	}
	var clash []Conflict
	for _, o := range open {
		clash = append(clash, Conflict{Item: first[o.Lanes].top, TaskID: o.ID, Reason: ConflictEpoch})
	}
	if len(clash) > 0 {
		return conflict(clash...)
	}
	_, err := exec(tx, "epoch/turn", args{"epochs": epochsOf(wanted)})
	return err
}

// epochsOf writes as a recordset into how many parts lanes are cut.
func epochsOf(parts map[string]int) string {
	rows := make([]epochRow, 0, len(parts))
	for lanes, n := range parts {
		rows = append(rows, epochRow{lanes, n})
	}
	return jsonOf(rows)
}
