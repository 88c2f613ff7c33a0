// Command work is the handler of the chaos run: it tells the recorder that it begins, that it is alive five times a
// second, and that it ends. What it does besides is in the file $SLIPWAY_PARAMS. Who it is it has from its pod, by the
// downward API (FENCE, POD), so that it would also tell of a start that should not have been.
//
// Allowed imports: the standard library and e2e/recorder.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"slipway.dev/slipway/e2e/recorder"
)

// params say how the work goes.
type params struct {
	Recorder  string `json:"recorder"` // host:port
	Lane      string `json:"lane"`
	Millis    int    `json:"millis"`     // how long it works
	Exit      int    `json:"exit"`       // its exit code, where it fails
	FailFirst int    `json:"fail_first"` // so many attempts fail
	Crash     bool   `json:"crash"`      // those that fail do so without a word, by a signal
	Deaf      bool   `json:"deaf"`       // SIGTERM changes nothing
	Linger    int    `json:"linger"`     // milliseconds that it takes to stop after SIGTERM
}

func main() {
	p, err := read()
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err) // a broken log cannot be reported anywhere
		os.Exit(125)
	}
	os.Exit(run(p))
}

func read() (p params, err error) {
	raw, err := os.ReadFile(os.Getenv("SLIPWAY_PARAMS"))
	if err != nil {
		return p, err
	}
	return p, json.Unmarshal(raw, &p)
}

// run gives the exit code.
func run(p params) int {
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM)
	attempt, _ := strconv.Atoi(os.Getenv("SLIPWAY_ATTEMPT_NUMBER"))
	fence, _ := strconv.ParseInt(os.Getenv("FENCE"), 10, 64)
	entry := recorder.Entry{
		Task: os.Getenv("SLIPWAY_TASK"), Lane: p.Lane, Attempt: attempt, Fence: fence, Pod: os.Getenv("POD"),
	}
	say := func(what, note string) {
		entry.What, entry.Note = what, note
		tell(p.Recorder, entry)
	}
	say(recorder.Begin, "")
	stopped := work(p, told, func() { say(recorder.Alive, "") })
	switch {
	case stopped:
		say(recorder.End, "stopped")
		return 143
	case attempt <= p.FailFirst && p.Crash:
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // until it arrives
	case attempt <= p.FailFirst:
		say(recorder.End, "failed")
		return p.Exit
	}
	say(recorder.End, "done")
	return 0
}

// work goes on for its time, or until it was told to stop and did.
func work(p params, told <-chan os.Signal, alive func()) (stopped bool) {
	beat := time.NewTicker(200 * time.Millisecond)
	defer beat.Stop()
	over := time.After(time.Duration(p.Millis) * time.Millisecond)
	for {
		select {
		case <-beat.C:
			alive()
		case <-over:
			return stopped
		case <-told:
			if !p.Deaf && !stopped {
				stopped = true
				over = time.After(time.Duration(p.Linger) * time.Millisecond)
			}
		}
	}
}

// tell sends an entry until it is taken: what is not written down has not been done.
func tell(address string, e recorder.Entry) {
	raw, err := json.Marshal(e)
	if err != nil {
		panic(err) // an Entry is plain data
	}
	for {
		answer, err := http.Post("http://"+address+"/entries", "application/json", bytes.NewReader(raw))
		if err == nil {
			_ = answer.Body.Close()
			if answer.StatusCode == http.StatusNoContent {
				return
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
}
