package proxy

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"regexp"
	"strings"
)

// frame is one message with a type.
type frame struct {
	kind byte
	raw  []byte
}

func (f frame) body() []byte { return f.raw[5:] }

// ends reports whether the client waits for an answer after it, or sends it outside of any group.
func (f frame) ends() bool { return !strings.ContainsRune("PBDEC", rune(f.kind)) }

var errFrame = errors.New("not a frame of the protocol")

func readFrame(r *bufio.Reader) (frame, error) {
	kind, err := r.ReadByte()
	if err != nil {
		return frame{}, err
	}
	rest, err := readUntyped(r)
	if err != nil {
		return frame{}, err
	}
	return frame{kind, append([]byte{kind}, rest...)}, nil
}

// readUntyped reads a length and what follows.
func readUntyped(r *bufio.Reader) ([]byte, error) {
	const most = 64 << 20
	head := make([]byte, 4)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint32(head))
	if n < len(head) || n > most {
		return nil, errFrame
	}
	raw := make([]byte, n)
	copy(raw, head)
	_, err := io.ReadFull(r, raw[len(head):])
	return raw, err
}

// asksForEncryption reports whether a message before the start-up is the question for TLS or GSSAPI.
func asksForEncryption(m []byte) bool {
	const tls, gss = 80877103, 80877104
	if len(m) != 8 {
		return false
	}
	code := binary.BigEndian.Uint32(m[4:])
	return code == tls || code == gss
}

// group is what the client sends before it waits for an answer.
type group struct {
	raw  []byte
	runs []string // the SQL that it runs
}

// commits reports whether it ends a transaction for good.
func (g group) commits() bool {
	for _, sql := range g.runs {
		if word := strings.ToLower(strings.TrimRight(strings.TrimSpace(sql), ";")); word == "commit" || word == "end" {
			return true
		}
	}
	return false
}

var writes = regexp.MustCompile(`(?i)\b(INSERT|UPDATE|DELETE|CREATE|nextval|pg_notify)\b`)

func (g group) writes() bool { return writes.MatchString(strings.Join(g.runs, "\n")) }
