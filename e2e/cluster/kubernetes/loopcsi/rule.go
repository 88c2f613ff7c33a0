package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// rule changes what calls do. It is written by a test and holds until the test takes it away; e2e/storage has the same
// struct with the meaning of each field.
type rule struct {
	Method   string `json:"method"`
	Object   string `json:"object"`
	DelayMS  int    `json:"delayMs"`
	Silent   bool   `json:"silent"`
	Code     string `json:"code"`
	Message  string `json:"message"`
	Late     bool   `json:"late"`
	RoundTo  int64  `json:"roundTo"`
	NotReady bool   `json:"notReady"`
}

// applies says whether the rule is about a call of this method on one of these objects.
func (r rule) applies(method string, objects []string) bool {
	if r.Method != "" && r.Method != method {
		return false
	}
	return r.Object == "" || slices.ContainsFunc(objects, func(object string) bool {
		namespace, _, _ := strings.Cut(object, "/")
		return r.Object == object || r.Object == namespace
	})
}

// rules reads the switches; of several that apply, each field's first value counts.
func (d *driver) rules(method string, objects []string) (rule, error) {
	raw, err := os.ReadFile(d.disk.switches())
	if errors.Is(err, fs.ErrNotExist) {
		return rule{}, nil
	}
	if err != nil {
		return rule{}, fmt.Errorf("read switches: %w", err)
	}
	var all []rule
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&all); err != nil {
		return rule{}, fmt.Errorf("read switches: %w", err)
	}
	var sum rule
	for _, r := range all {
		if !r.applies(method, objects) {
			continue
		}
		sum.DelayMS = max(sum.DelayMS, r.DelayMS)
		sum.RoundTo = max(sum.RoundTo, r.RoundTo)
		sum.Silent = sum.Silent || r.Silent
		sum.NotReady = sum.NotReady || r.NotReady
		sum.Late = sum.Late || r.Late
		if sum.Code == "" {
			sum.Code, sum.Message = r.Code, r.Message
		}
	}
	return sum, nil
}

// intercept lets the switches act around a call, and writes down what was answered.
func (d *driver) intercept(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	method, objects := path.Base(info.FullMethod), d.disk.objectsOf(request)
	began := time.Now()
	answer, err := d.obey(ctx, method, objects, func() (any, error) { return handler(ctx, request) })
	d.note(call{
		At: began, MS: time.Since(began).Milliseconds(), Method: method, Objects: objects,
		Code: status.Code(err).String(), Message: status.Convert(err).Message(),
	})
	return answer, err
}

func (d *driver) obey(ctx context.Context, method string, objects []string, act func() (any, error)) (any, error) {
	r, err := d.rules(method, objects)
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	if !r.Late {
		if err := d.refuse(ctx, method, objects); err != nil {
			return nil, err
		}
		return act()
	}
	answer, err := act()
	if err != nil {
		return nil, err
	}
	return answer, d.refuse(ctx, method, objects)
}

// refuse waits and fails as the switches say. A wait ends with the rule that asked for it, or with the caller's patience.
func (d *driver) refuse(ctx context.Context, method string, objects []string) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); ; {
		r, err := d.rules(method, objects)
		if err != nil {
			return status.Error(codes.Internal, err.Error())
		}
		if !r.Silent && time.Since(began) >= time.Duration(r.DelayMS)*time.Millisecond {
			return r.failure()
		}
		select {
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case <-tick.C:
		}
	}
}

func (r rule) failure() error {
	if r.Code == "" {
		return nil
	}
	for code := codes.OK; code <= codes.Unauthenticated; code++ {
		if code.String() == r.Code {
			return status.Error(code, r.Message)
		}
	}
	return status.Errorf(codes.Internal, "switches: there is no gRPC code %q", r.Code)
}

// call is one line of calls.jsonl.
type call struct {
	At      time.Time `json:"at"`
	MS      int64     `json:"ms"`
	Method  string    `json:"method"`
	Objects []string  `json:"objects"`
	Code    string    `json:"code"`
	Message string    `json:"message,omitempty"`
}

// note leaves out what is only asked, over and over.
func (d *driver) note(c call) {
	if len(c.Objects) == 0 {
		return
	}
	raw, err := json.Marshal(c)
	if err == nil {
		d.journal.Lock()
		defer d.journal.Unlock()
		err = appendLine(d.disk.calls(), raw)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "loopcsi: note a call:", err)
	}
}
