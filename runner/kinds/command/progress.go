package command

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"slipway.dev/slipway/pkg/handler"
)

// How often the progress file is looked at, and how much of its end is read.
const (
	progressEvery = time.Second
	progressRead  = 4 << 10
)

// watchProgress tells what the progress file says, each time that it has changed, until the function that it returns is
// called.
func watchProgress(file string, tell func(done, total int64, message string)) (stop func()) {
	ended := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		var last handler.Progress
		for {
			select {
			case <-ended:
				return
			case <-tick.C:
				if p, ok := readProgress(file); ok && p != last {
					last = p
					tell(p.Done, p.Total, p.Message)
				}
			}
		}
	})
	return func() {
		close(ended)
		watching.Wait()
	}
}

// readProgress reads the last whole line of the file.
func readProgress(name string) (handler.Progress, bool) {
	info, err := os.Stat(name)
	if err != nil || !info.Mode().IsRegular() { // a pipe would block
		return handler.Progress{}, false
	}
	file, err := os.Open(name)
	if err != nil {
		return handler.Progress{}, false
	}
	defer func() { _ = file.Close() }() // only read
	text := make([]byte, progressRead)
	n, err := file.ReadAt(text, max(0, info.Size()-progressRead))
	if err != nil && !errors.Is(err, io.EOF) {
		return handler.Progress{}, false
	}
	lines := bytes.Split(bytes.TrimSpace(text[:n]), []byte("\n"))
	return parseProgress(strings.TrimSpace(string(lines[len(lines)-1])))
}

// parseProgress reads `done/total message` or a JSON object.
func parseProgress(line string) (p handler.Progress, ok bool) {
	if strings.HasPrefix(line, "{") {
		if err := json.Unmarshal([]byte(line), &p); err != nil {
			return handler.Progress{}, false
		}
		return p, p.Done >= 0 && p.Total >= 0
	}
	share, message, _ := strings.Cut(line, " ")
	done, total, found := strings.Cut(share, "/")
	if !found {
		return handler.Progress{}, false
	}
	d, errDone := strconv.ParseInt(done, 10, 64)
	t, errTotal := strconv.ParseInt(total, 10, 64)
	if errDone != nil || errTotal != nil || d < 0 || t < 0 {
		return handler.Progress{}, false
	}
	return handler.Progress{Done: d, Total: t, Message: strings.TrimSpace(message)}, true
}
