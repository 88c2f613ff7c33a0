package kube

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/transport"
)

// access makes the REST configuration: protobuf, no limiter of the client's own, pings that find a dead connection, and
// authorities that may be replaced.
func access(cfg Config) (*rest.Config, error) {
	found, err := cfg.REST, error(nil)
	switch {
	case found != nil:
		found = rest.CopyConfig(found)
	case cfg.Kubeconfig != "":
		found, err = clientcmd.BuildConfigFromFlags("", cfg.Kubeconfig)
	default:
		found, err = rest.InClusterConfig()
	}
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w", err)
	}
	found.ContentType = "application/vnd.kubernetes.protobuf"
	found.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	found.QPS = -1
	found.UserAgent = "slipway"
	rereadAuthorities(found)
	return found, pings()
}

// pings sets how client-go finds a dead HTTP/2 connection; it reads these from the environment alone.
func pings() error {
	for name, seconds := range map[string]string{"HTTP2_READ_IDLE_TIMEOUT_SECONDS": "10", "HTTP2_PING_TIMEOUT_SECONDS": "5"} {
		if os.Getenv(name) != "" {
			continue
		}
		if err := os.Setenv(name, seconds); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	return nil
}

// rereadToken reads the file of the token again once a minute, and at once when the API server refuses the one in use:
// client-go by itself would show a revoked token for the rest of that minute, and lose the request that finds out.
func rereadToken(c *rest.Config) {
	if c.BearerTokenFile == "" {
		return
	}
	source := transport.NewCachedFileTokenSource(c.BearerTokenFile)
	c.BearerToken, c.BearerTokenFile = "", ""
	c.Wrap(transport.ResettableTokenSourceWrapTransport(source))
	c.Wrap(onceMore)
}

// onceMore sends again what was refused for its token, which is then read anew. Nothing was done for such a request.
func onceMore(next http.RoundTripper) http.RoundTripper {
	return roundTrip(func(r *http.Request) (*http.Response, error) {
		answer, err := next.RoundTrip(r)
		if err != nil || answer.StatusCode != http.StatusUnauthorized || r.Body != nil && r.GetBody == nil {
			return answer, err
		}
		again := r.Clone(r.Context())
		if r.Body != nil {
			if again.Body, err = r.GetBody(); err != nil {
				return answer, nil //nolint:nilerr // the refusal stands
			}
		}
		_ = answer.Body.Close()
		return next.RoundTrip(again)
	})
}

// authorities connects anew when the API server's certificate is not trusted and the file of authorities has changed.
// client-go by itself reads that file every five minutes.
type authorities struct {
	config *rest.Config

	mu   sync.Mutex
	text []byte // of the file, as next trusts it
	next http.RoundTripper
}

func rereadAuthorities(c *rest.Config) {
	if c.CAFile == "" || len(c.CAData) > 0 {
		return
	}
	text, err := os.ReadFile(c.CAFile)
	if err != nil {
		return // client-go says so
	}
	a := &authorities{config: rest.CopyConfig(c), text: text}
	c.Wrap(func(next http.RoundTripper) http.RoundTripper {
		a.next = next
		return a
	})
}

// RoundTrip implements http.RoundTripper. The request that finds out fails: nothing of it was sent, and who sent it tries
// again.
func (a *authorities) RoundTrip(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	next := a.next
	a.mu.Unlock()
	answer, err := next.RoundTrip(r)
	var untrusted *tls.CertificateVerificationError
	if errors.As(err, &untrusted) {
		a.reread(next)
	}
	return answer, err
}

func (a *authorities) reread(failed http.RoundTripper) {
	a.mu.Lock()
	defer a.mu.Unlock()
	text, err := os.ReadFile(a.config.CAFile)
	if err != nil || a.next != failed || bytes.Equal(text, a.text) {
		return
	}
	fresh := rest.AnonymousClientConfig(a.config) // who we are is added by the wrappers outside of this one
	fresh.TLSClientConfig = a.config.TLSClientConfig
	fresh.CAFile, fresh.CAData = "", text
	next, err := rest.TransportFor(fresh)
	if err != nil {
		return // a file that is no PEM, or only half: the next try reads it again
	}
	utilnet.CloseIdleConnectionsFor(failed)
	a.text, a.next = text, next
}

// busyError is an answer that asks for more patience than the caller has time.
type busyError struct {
	status int
	after  time.Duration
}

func (e *busyError) Error() string {
	return fmt.Sprintf("the API server answered %d and wants to be asked again after %v", e.status, e.after)
}

// patient keeps the server's wish where client-go would lose it: it waits by itself as long as Retry-After says, until
// the caller's time is over, and then tells of that time only.
func patient(next http.RoundTripper) http.RoundTripper {
	return roundTrip(func(r *http.Request) (*http.Response, error) {
		answer, err := next.RoundTrip(r)
		if err != nil || answer.StatusCode != http.StatusTooManyRequests && answer.StatusCode < http.StatusInternalServerError {
			return answer, err
		}
		deadline, bounded := r.Context().Deadline()
		after, asked := wish(answer)
		if !asked || !bounded || time.Until(deadline) > after {
			return answer, nil
		}
		_ = answer.Body.Close()
		return nil, &busyError{status: answer.StatusCode, after: after}
	})
}

// wish is how long the server wants not to be asked.
func wish(answer *http.Response) (after time.Duration, asked bool) {
	n, err := strconv.Atoi(answer.Header.Get("Retry-After"))
	return time.Duration(n) * time.Second, err == nil
}

// roundTrip makes a RoundTripper of a function.
type roundTrip func(*http.Request) (*http.Response, error)

// RoundTrip calls f.
func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
