package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"slipway.dev/slipway/pkg/api"
)

// Config says where the server is and who is calling.
type Config struct {
	Server string // as http://slipway.slipway-system:8080
	// Token gives the bearer token of each request; nil sends none.
	Token func(ctx context.Context) (string, error)
	// TokenHeader is the header that carries it; empty: Authorization. Behind the API server's service proxy, which
	// keeps that one for itself, it is Slipway-Authorization.
	TokenHeader string
	HTTP        *http.Client // nil: http.DefaultClient
	// Tries is how often a request that may be sent twice is sent in all; 0: 5.
	Tries int
}

// StaticToken is a Token that is always the same.
func StaticToken(token string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return token, nil }
}

// Client calls the API.
type Client struct {
	wire  *Wire
	tries int
}

// Bounds of a Client.
const (
	defaultTries = 5
	firstWait    = 200 * time.Millisecond
	longestWait  = 10 * time.Second
	maxAnswer    = 256 << 20
)

// New makes a Client. It connects to nothing.
func New(c Config) (*Client, error) {
	server, err := url.Parse(c.Server)
	if err != nil || server.Host == "" || server.Scheme != "http" && server.Scheme != "https" {
		return nil, errors.New("make a client: the server must be an http or https URL")
	}
	options := []ClientOption{WithRequestEditorFn(func(ctx context.Context, r *http.Request) error {
		if c.Token == nil {
			return nil
		}
		token, err := c.Token(ctx)
		if err != nil {
			return fmt.Errorf("get a token: %w", err)
		}
		header := c.TokenHeader
		if header == "" {
			header = "Authorization"
		}
		r.Header.Set(header, "Bearer "+token)
		return nil
	})}
	if c.HTTP != nil {
		options = append(options, WithHTTPClient(c.HTTP))
	}
	wire, err := NewClient(c.Server, options...)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	if c.Tries <= 0 {
		c.Tries = defaultTries
	}
	return &Client{wire: wire, tries: c.Tries}, nil
}

// Error is the server's no.
type Error struct {
	api.Problem
	RetryAfter time.Duration // 0: it gave none
}

// Error gives the server's words, with the fields at fault.
func (e *Error) Error() string {
	text := fmt.Sprintf("%d %s", e.Status, e.Title)
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	for _, f := range e.Errors {
		text += fmt.Sprintf("; %s %s", f.Pointer, f.Reason)
	}
	return text
}

// IsNotFound reports whether err says that the thing is absent, or not the caller's to see.
func IsNotFound(err error) bool { return isStatus(err, http.StatusNotFound) }

// IsConflict reports whether err is a conflict with what is there.
func IsConflict(err error) bool { return isStatus(err, http.StatusConflict) }

func isStatus(err error, status int) bool {
	var e *Error
	return errors.As(err, &e) && e.Status == status
}

// attempt is one way to send a request.
type attempt func() (*http.Response, error)

// send sends a request until it is answered for good. Only one that may be sent twice is sent again.
func (c *Client) send(ctx context.Context, twice bool, one attempt) (*http.Response, error) {
	wait := firstWait
	for try := 1; ; try++ {
		answer, err := one()
		if err == nil && answer.StatusCode < http.StatusBadRequest {
			return answer, nil
		}
		if err == nil {
			err = refusal(answer)
		}
		var no *Error
		again := twice && try < c.tries && ctx.Err() == nil
		if errors.As(err, &no) {
			again = again && slices.Contains([]int{http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusBadGateway, http.StatusGatewayTimeout}, no.Status)
			wait = max(wait, min(no.RetryAfter, longestWait))
		}
		if !again {
			return nil, err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, errors.Join(err, ctx.Err())
		}
		wait = min(2*wait, longestWait)
	}
}

// refusal reads a problem; what is none, as from a proxy, becomes one.
func refusal(answer *http.Response) error {
	defer func() { _ = answer.Body.Close() }() // it was read
	e := &Error{}
	raw, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	if err != nil || json.Unmarshal(raw, &e.Problem) != nil || e.Status == 0 {
		e.Problem = api.Problem{Status: answer.StatusCode, Title: http.StatusText(answer.StatusCode)}
	}
	if seconds, err := strconv.Atoi(answer.Header.Get("Retry-After")); err == nil && seconds > 0 {
		e.RetryAfter = time.Duration(seconds) * time.Second
	}
	return e
}

// read sends and decodes the answer into v.
func (c *Client) read(ctx context.Context, twice bool, v any, one attempt) (http.Header, error) {
	answer, err := c.send(ctx, twice, one)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }() // it was read
	if err := json.NewDecoder(io.LimitReader(answer.Body, maxAnswer)).Decode(v); err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	return answer.Header, nil
}
