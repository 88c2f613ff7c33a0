package cluster

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/pkg/api"
)

// maxRefusal bounds what is read of a refusal.
const maxRefusal = 1 << 20

// proxied sends requests through the service proxy and says in the API's own form what the API server refuses, so that
// nobody takes it for the control plane's word.
type proxied struct {
	next    http.RoundTripper
	cluster *Cluster
	own     bool
}

// RoundTrip sends one request.
func (p *proxied) RoundTrip(r *http.Request) (*http.Response, error) {
	own := p.own && r.Header.Get(TokenHeader) == ""
	if login := r.Header.Get("Authorization"); own && login != "" {
		r = r.Clone(r.Context())
		r.Header.Set(TokenHeader, login)
	}
	answer, err := p.next.RoundTrip(r)
	if err != nil || answer.StatusCode < http.StatusBadRequest {
		return answer, err
	}
	raw, err := io.ReadAll(io.LimitReader(answer.Body, maxRefusal))
	_ = answer.Body.Close()          // it was read
	if err != nil && len(raw) == 0 { // one that breaks off has said enough
		return nil, fmt.Errorf("read a refusal: %w", err)
	}
	if detail := p.cluster.explain(answer.StatusCode, raw, own); detail != "" {
		raw, err = json.Marshal(api.Problem{
			Type: "urn:slipway:problem:service_proxy", Title: http.StatusText(answer.StatusCode), Status: answer.StatusCode, Detail: detail,
		})
		if err != nil {
			return nil, fmt.Errorf("write a refusal: %w", err)
		}
		answer.Header.Set("Content-Type", "application/problem+json")
		answer.Header.Set("Content-Length", strconv.Itoa(len(raw)))
		answer.ContentLength = int64(len(raw))
	}
	answer.Body = io.NopCloser(bytes.NewReader(raw))
	return answer, nil
}

// scheme is the service by another scheme.
func (c *Cluster) scheme(name string) string {
	_, rest, _ := strings.Cut(c.cfg.Service, ":")
	return name + ":" + rest
}

// explain puts a refusal into words; empty means that it is the control plane's and speaks for itself.
func (c *Cluster) explain(status int, raw []byte, own bool) string {
	var said metav1.Status
	text, unreached := bytes.CutPrefix(bytes.TrimSpace(raw), []byte("error trying to reach service: "))
	switch {
	case bytes.Contains(text, []byte("server gave HTTP response to HTTPS client")):
		return "this control plane serves plain HTTP: say --service " + c.scheme("http")
	case bytes.Contains(text, []byte("sent an HTTP request to an HTTPS server")):
		return "this control plane serves TLS: say --service " + c.scheme("https")
	case unreached:
		said.Message = string(text)
	case json.Unmarshal(raw, &said) != nil || said.Kind != "Status":
		if own && status == http.StatusUnauthorized {
			return "the control plane does not take your kubeconfig's own token: name a service account to be, with " +
				"--as-service-account, or have the API server's audience added to SLIPWAY_AUDIENCES"
		}
		return ""
	}
	switch status {
	case http.StatusUnauthorized:
		return "the API server does not know you: the login in your kubeconfig is not valid, or no longer"
	case http.StatusForbidden:
		return fmt.Sprintf("you may not use the service proxy of Slipway: it takes a RoleBinding to Role slipway-proxy in namespace %s "+
			"(get, create, patch, delete on services/proxy, resourceNames [%s])", c.cfg.SystemNamespace, c.cfg.Service)
	case http.StatusNotFound:
		name := strings.Split(c.cfg.Service+"::", ":")[1]
		return fmt.Sprintf("there is no service %s in namespace %s: is Slipway installed there?", name, c.cfg.SystemNamespace)
	case http.StatusServiceUnavailable, http.StatusBadGateway, http.StatusGatewayTimeout:
		return fmt.Sprintf("the API server does not reach a control plane in namespace %s: %s", c.cfg.SystemNamespace, said.Message)
	}
	return said.Message
}
