package local

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// progress prints one line per step with the seconds since the beginning.
type progress struct {
	prefix string
	log    io.Writer
	start  time.Time
}

func newProgress(prefix string, log io.Writer) *progress {
	if log == nil {
		log = io.Discard
	}
	return &progress{prefix: prefix, log: log, start: time.Now()}
}

func (p *progress) say(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	_, _ = fmt.Fprintf(p.log, "%s: %s (%.1fs)\n", p.prefix, line, time.Since(p.start).Seconds())
}

// lastLines returns the end of a log for an error message.
func lastLines(path string, n int) string {
	file, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = file.Close() }()
	const tail = 16 << 10
	if size, err := file.Seek(0, io.SeekEnd); err == nil && size > tail {
		_, _ = file.Seek(-tail, io.SeekEnd)
	} else {
		_, _ = file.Seek(0, io.SeekStart)
	}
	raw, _ := io.ReadAll(file)
	return lastOf(string(raw), n)
}

func lastOf(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	return strings.Join(lines, "\n")
}
