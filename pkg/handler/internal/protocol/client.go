// Package protocol speaks the runner protocol v1: start, heartbeat, finish.
//
// Allowed imports: the standard library and pkg/task.
package protocol

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"slipway.dev/slipway/pkg/task"
)

// Bounds of a call.
const (
	callTimeout = 10 * time.Second
	maxAnswer   = 1 << 20
)

// Identity is which Attempt this process stands for.
type Identity struct {
	Attempt int64
	Fence   int64
	PodUID  string
}

// Grant is the answer to a start: what to run, and the numbers to keep to.
type Grant struct {
	TaskID        string          `json:"task_id"`
	Kind          string          `json:"kind"`
	Namespace     string          `json:"namespace"`
	Params        json.RawMessage `json:"params"`
	SessionKey    string          `json:"session_key"`
	Run           task.Seconds    `json:"run_seconds"`
	Grace         task.Seconds    `json:"grace_seconds"`
	Heartbeat     task.Seconds    `json:"heartbeat_seconds"`
	FenceAfter    task.Seconds    `json:"fence_after_seconds"`
	AttemptNumber int             `json:"attempt_number"`
	Hold          task.Seconds    `json:"hold_seconds"` // that a heartbeat may ask for; 0: none
}

// Answer is the answer to a heartbeat.
type Answer struct {
	Cancel bool          `json:"cancel"`
	Left   *task.Seconds `json:"seconds_left"` // of the run deadline
}

// Finish is how the handler ended.
type Finish struct {
	Outcome    task.Outcome    `json:"outcome"`
	Reason     task.Reason     `json:"reason,omitempty"`
	Message    string          `json:"message,omitempty"`
	Result     json.RawMessage `json:"result,omitempty"`
	ExitCode   *int            `json:"exit_code,omitempty"`
	RetryAfter task.Seconds    `json:"retry_after,omitempty"`
	LogTail    []byte          `json:"log_tail,omitempty"` // base64 on the wire
}

// ErrStale is a 409: this pod does not hold the Attempt, or no longer.
var ErrStale = errors.New("refused as stale")

// RefusedError is any other answer that is no success.
type RefusedError struct {
	Status     int
	Text       string
	RetryAfter time.Duration
}

// Error tells the status and the beginning of the answer.
func (r *RefusedError) Error() string {
	if r.Text == "" {
		return fmt.Sprintf("answer %d", r.Status)
	}
	return fmt.Sprintf("answer %d: %s", r.Status, r.Text)
}

// Final reports whether the same call can never succeed: the control plane understood it and will not have it. An
// identity that is refused is not final: a TokenReview may lag behind the pod.
func (r *RefusedError) Final() bool {
	switch r.Status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return false
	}
	return r.Status >= 400 && r.Status < 500
}

// Client calls the control plane on behalf of one Attempt. Start must have succeeded before Beat and Finish.
type Client struct {
	base      string
	tokenFile string
	id        Identity
	http      *http.Client
	key       string
}

// Place is where the control plane is, and how to know it.
type Place struct {
	Base      string
	TokenFile string
	CA        string // in PEM: trusted, and no other; empty: the system's
}

// New makes a Client. The token is read from its file again at each start: the kubelet rotates it.
func New(at Place, id Identity) (*Client, error) {
	trusted := &tls.Config{MinVersion: tls.VersionTLS12}
	if at.CA != "" {
		trusted.RootCAs = x509.NewCertPool()
		if !trusted.RootCAs.AppendCertsFromPEM([]byte(at.CA)) {
			return nil, errors.New("the authority holds no certificate in PEM")
		}
	}
	return &Client{
		base: strings.TrimRight(at.Base, "/"), tokenFile: at.TokenFile, id: id,
		http: &http.Client{
			Transport: &http.Transport{
				DialContext:         (&net.Dialer{Timeout: callTimeout / 2}).DialContext,
				TLSClientConfig:     trusted,
				TLSHandshakeTimeout: callTimeout / 2,
				MaxIdleConns:        2,
				IdleConnTimeout:     time.Minute,
			},
			// A redirect would carry the token to somebody else.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// Close drops the connections that are kept open.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Start asks for the start of the Attempt.
func (c *Client) Start(ctx context.Context) (Grant, error) {
	token, err := os.ReadFile(c.tokenFile)
	if err != nil {
		return Grant{}, fmt.Errorf("read the pod's token: %w", err)
	}
	var g Grant
	body := struct {
		Attempt int64 `json:"attempt"`
		Fence   int64 `json:"fence"`
	}{c.id.Attempt, c.id.Fence}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := c.call(ctx, "start", strings.TrimSpace(string(token)), body, &g); err != nil {
		return Grant{}, err
	}
	c.key = g.SessionKey
	return g, nil
}

// session is what every call after start carries.
type session struct {
	Attempt int64  `json:"attempt"`
	Fence   int64  `json:"fence"`
	PodUID  string `json:"pod_uid"`
}

func (c *Client) session() session { return session{c.id.Attempt, c.id.Fence, c.id.PodUID} }

// Beat says that the handler is at work; progress may be nil. The answer may wait for a cancel for as long as hold.
func (c *Client) Beat(ctx context.Context, progress any, hold time.Duration) (Answer, error) {
	body := struct {
		session
		Progress any          `json:"progress,omitempty"`
		Hold     task.Seconds `json:"hold_seconds,omitempty"`
	}{c.session(), progress, task.Seconds(hold.Seconds())}
	ctx, cancel := context.WithTimeout(ctx, hold+callTimeout)
	defer cancel()
	var a Answer
	err := c.call(ctx, "heartbeat", c.key, body, &a)
	return a, err
}

// Finish reports the end.
func (c *Client) Finish(ctx context.Context, f Finish) error {
	body := struct {
		session
		Finish
	}{c.session(), f}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return c.call(ctx, "finish", c.key, body, nil)
}

func (c *Client) call(ctx context.Context, verb, bearer string, body, answer any) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode %s: %w", verb, err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+"/v1/runner/"+verb, bytes.NewReader(raw))
	if err != nil {
		return fmt.Errorf("make %s: %w", verb, err)
	}
	req.Header.Set("Authorization", "Bearer "+bearer)
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("call %s: %w", verb, err)
	}
	defer func() { _ = resp.Body.Close() }() // what was needed has been read
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read the answer to %s: %w", verb, err)
	}
	if resp.StatusCode == http.StatusConflict {
		return fmt.Errorf("%s: %w: %s", verb, ErrStale, excerpt(text))
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return fmt.Errorf("%s: %w", verb, &RefusedError{Status: resp.StatusCode, Text: excerpt(text), RetryAfter: retryAfter(resp)})
	}
	if answer == nil {
		return nil
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return fmt.Errorf("read the answer to %s: %w", verb, err)
	}
	return nil
}

func excerpt(text []byte) string {
	const most = 300
	return strings.ToValidUTF8(strings.TrimSpace(string(text[:min(len(text), most)])), "")
}

func retryAfter(resp *http.Response) time.Duration {
	seconds, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return 0
	}
	return time.Duration(seconds) * time.Second
}
