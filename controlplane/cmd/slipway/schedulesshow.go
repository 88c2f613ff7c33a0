package main

import (
	"io"
	"strconv"
	"time"

	"slipway.dev/slipway/pkg/api"
)

// scheduleState is the first thing that a person has to know of a schedule.
func scheduleState(s api.Schedule) string {
	switch {
	case s.Broken != "":
		return "broken"
	case !s.Enabled:
		return "paused"
	case !s.Healthy:
		return "no success"
	case len(s.Live) > 0:
		return "running"
	}
	return "active"
}

func ruleText(s api.Schedule) string {
	if s.Every != "" {
		return "every " + s.Every
	}
	return s.Cron + " " + s.Zone
}

func scheduleTable(w io.Writer, all []api.Schedule, now time.Time) error {
	if err := line(w, "NAMESPACE", "NAME", "RULE", "STATE", "NEXT IN", "LAST FIRE", "LAST SUCCESS"); err != nil {
		return err
	}
	ago := func(t time.Time) string {
		if t.IsZero() {
			return "-"
		}
		return age(t, now) + " ago"
	}
	for _, s := range all {
		next := "-"
		if !s.NextAt.IsZero() {
			next = age(now, s.NextAt)
		}
		if err := line(w, s.Namespace, s.Name, ruleText(s), scheduleState(s), next, ago(s.LastFireAt), ago(s.LastSuccessAt)); err != nil {
			return err
		}
	}
	return nil
}

func scheduleRows(s api.Schedule) [][2]string {
	rows := [][2]string{
		{"name", s.Namespace + "/" + s.Name},
		{"id", s.ID},
		{"description", s.Description},
		{"owner", s.Owner},
		{"rule", ruleText(s)},
		{"kind", s.Template.Kind},
		{"state", scheduleState(s)},
		{"broken", s.Broken},
		{"waits", s.Waits},
		{"next", instant(s.NextAt)},
		{"missed", s.Missed},
		{"overlap", s.Overlap},
		{"last fire", instant(s.LastFireAt)},
		{"last task", s.LastTask},
		{"last success", instant(s.LastSuccessAt)},
	}
	for _, id := range s.Live {
		rows = append(rows, [2]string{"live", id})
	}
	return append(rows, [2]string{"revision", strconv.FormatInt(s.Revision, 10)}, [2]string{"changed", instant(s.ChangedAt) + " by " + s.ChangedBy})
}

func fireTable(w io.Writer, all []api.Fire) error {
	if err := line(w, "AT", "MEANT FOR", "OUTCOME", "BY", "TASK", "WHY"); err != nil {
		return err
	}
	for _, f := range all {
		if err := line(w, f.At.UTC().Format(time.RFC3339), f.Nominal, f.Outcome, f.Source, f.Task, f.Why); err != nil {
			return err
		}
	}
	return nil
}

func comingTable(w io.Writer, p api.SchedulePreview) error {
	if err := line(w, p.Explained); err != nil {
		return err
	}
	for _, i := range p.Items {
		note := i.Note
		switch {
		case i.Blackout != "":
			note = "not fired: in blackout " + i.Blackout
		case !i.Fires:
			note = "not fired: gap"
		case !i.Due.Equal(i.At):
			note = "due " + i.Due.UTC().Format("15:04:05.000Z") + " " + note
		}
		if err := line(w, i.At.UTC().Format(time.RFC3339), i.Nominal, note); err != nil {
			return err
		}
	}
	return nil
}
