package proxy

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// event is one of a watch, as it came.
type event struct {
	raw  []byte // with its frame
	kind string // ADDED, MODIFIED, DELETED, BOOKMARK, ERROR
	uid  string // of its object; empty where it has none
}

// shape is how events are written.
type shape struct {
	reader   func(io.Reader) func() ([]byte, error) // gives one event after the other, with its frame
	parse    func(raw []byte) (event, error)
	modified func(e event) []byte // the same as MODIFIED
}

// lines are JSON, one object each.
var lines = shape{
	reader: func(body io.Reader) func() ([]byte, error) {
		in := json.NewDecoder(body)
		return func() ([]byte, error) {
			var raw json.RawMessage
			err := in.Decode(&raw)
			return append(raw, '\n'), err
		}
	},
	parse: func(raw []byte) (event, error) {
		var read struct {
			Type   string
			Object struct{ Metadata struct{ UID string } }
		}
		err := json.Unmarshal(raw, &read)
		return event{raw: raw, kind: read.Type, uid: read.Object.Metadata.UID}, err
	},
	modified: func(e event) []byte {
		var read struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		if json.Unmarshal(e.raw, &read) != nil {
			return e.raw // it was parsed before
		}
		read.Type = "MODIFIED"
		raw, err := json.Marshal(read)
		if err != nil {
			return e.raw
		}
		return append(raw, '\n')
	},
}

// longestEvent is more than an API server stores of one object.
const longestEvent = 16 << 20

// frames are protobuf: four bytes of length, then WatchEvent{1: type, 2: RawExtension{1: raw}}, where raw is "k8s\0" and
// Unknown{2: object}. Every object has its ObjectMeta in field 1, and that its uid in field 5.
var frames = shape{
	reader: func(body io.Reader) func() ([]byte, error) {
		in := bufio.NewReader(body)
		return func() ([]byte, error) {
			var size [4]byte
			if _, err := io.ReadFull(in, size[:]); err != nil {
				return nil, err
			}
			n := binary.BigEndian.Uint32(size[:])
			if n > longestEvent {
				return nil, fmt.Errorf("read an event: %d bytes are too many", n)
			}
			raw := append(size[:], make([]byte, n)...)
			_, err := io.ReadFull(in, raw[len(size):])
			return raw, err
		}
	},
	parse: func(raw []byte) (event, error) {
		kind, ok := field(raw[4:], 1)
		if !ok {
			return event{}, errors.New("read an event: it has no type")
		}
		read := event{raw: raw, kind: string(kind)}
		at := raw[4:]
		for _, number := range []int{2, 1} {
			if at, ok = field(at, number); !ok {
				return read, nil
			}
		}
		at = at[min(len("k8s\x00"), len(at)):]
		for _, number := range []int{2, 1, 5} {
			if at, ok = field(at, number); !ok {
				return read, nil
			}
		}
		read.uid = string(at)
		return read, nil
	},
	modified: func(e event) []byte {
		object, _ := field(e.raw[4:], 2)
		raw := make([]byte, 4, len(e.raw)+8)
		for i, value := range [][]byte{[]byte("MODIFIED"), object} {
			raw = append(raw, byte((i+1)<<3|2))
			raw = binary.AppendUvarint(raw, uint64(len(value)))
			raw = append(raw, value...)
		}
		binary.BigEndian.PutUint32(raw, uint32(len(raw)-4))
		return raw
	},
}

// field finds the first length-delimited field of that number in a protobuf message.
func field(message []byte, number int) ([]byte, bool) {
	for len(message) > 0 {
		tag, n := binary.Uvarint(message)
		if n <= 0 {
			return nil, false
		}
		message = message[n:]
		value, n := binary.Uvarint(message)
		switch tag & 7 {
		case 0:
		case 1:
			n, value = 0, 8
		case 2:
		case 5:
			n, value = 0, 4
		default:
			return nil, false
		}
		if n < 0 {
			return nil, false
		}
		message = message[n:]
		if tag&7 == 0 {
			continue
		}
		if value > uint64(len(message)) {
			return nil, false
		}
		if tag&7 == 2 && int(tag>>3) == number {
			return message[:value], true
		}
		message = message[value:]
	}
	return nil, false
}

// mostPast is how many events of one watch are kept to be sent again.
const mostPast = 512

// past keeps what watches have told, across their renewals.
type past struct {
	mu      sync.Mutex
	watches map[string]*told
}

// told is what one watch has told.
type told struct {
	events []event // the oldest first
	counts []int   // of each event
	newest map[string]int
	count  int
}

func newPast() *past { return &past{watches: map[string]*told{}} }

func (p *past) keep(watch string, e event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.watches[watch]
	if w == nil {
		w = &told{newest: map[string]int{}}
		p.watches[watch] = w
	}
	if e.uid == "" {
		return
	}
	w.count++
	w.newest[e.uid] = w.count
	if e.kind != "ADDED" && e.kind != "MODIFIED" {
		return
	}
	w.events, w.counts = append(w.events, e), append(w.counts, w.count)
	if over := len(w.events) - mostPast; over > 0 {
		w.events, w.counts = w.events[over:], w.counts[over:]
	}
}

// older lists the events of a watch that are not the newest of their objects.
func (p *past) older(watch string) []event {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.watches[watch]
	if w == nil {
		return nil
	}
	var all []event
	for i, e := range w.events {
		if w.newest[e.uid] > w.counts[i] {
			all = append(all, e)
		}
	}
	return all
}
