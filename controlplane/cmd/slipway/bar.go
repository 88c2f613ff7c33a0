package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"slipway.dev/slipway/pkg/api"
)

// barCells is how wide the bar itself is, lineCells how wide its line may become.
const (
	barCells  = 24
	lineCells = 79
)

// onTerminal tells whether a person looks at w.
func onTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// bar draws how far a Task is, over and over on one line, until it has ended.
type bar struct {
	to  io.Writer
	now func() time.Time
}

func (b bar) draw(t api.Task) {
	if _, err := io.WriteString(b.to, "\r\x1b[K"+barLine(t, b.now())); err != nil {
		return // nobody looks any more; the waiting goes on
	}
}

func (b bar) clear() { _, _ = io.WriteString(b.to, "\r\x1b[K") } // nobody looks any more

// barLine is that line.
func barLine(t api.Task, now time.Time) string {
	parts := []string{}
	if p := t.Progress; p != nil && p.Total > 0 {
		share := min(max(p.Done/p.Total, 0), 1)
		full := int(share * barCells)
		parts = append(parts, fmt.Sprintf("[%s%s] %3.0f%%", strings.Repeat("#", full), strings.Repeat(".", barCells-full), 100*share))
	}
	parts = append(parts, string(t.Phase))
	if text := waiting(t); text != "" {
		parts = append(parts, "for "+text)
	}
	parts = append(parts, progress(t))
	since := t.StartedAt
	if since.IsZero() {
		since = t.CreatedAt
	}
	line := strings.Join(strings.Fields(strings.Join(append(parts, age(since, now)), " ")), " ")
	if cells := []rune(line); len(cells) > lineCells {
		line = string(cells[:lineCells-1]) + "…"
	}
	return line
}
