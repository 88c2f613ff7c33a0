package local

import (
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
	"strings"
	"time"
)

// readyBound is long because a cold start on two busy cores is slow; a part
// that ended is noticed at once.
const readyBound = 2 * time.Minute

// await polls until the part is ready, and fails when it ended.
func (c *Cluster) await(ctx context.Context, p part) error {
	running := func() error {
		if _, ok := c.running(p.name); !ok {
			return errEnded
		}
		return nil
	}
	err := poll(ctx, readyBound, func(ctx context.Context) error {
		if err := running(); err != nil {
			return err
		}
		return p.probe(ctx, c)
	})
	if err != nil {
		return fmt.Errorf("wait for %s: %w; look at %s, then run down and up again; its last lines:\n%s",
			p.name, err, c.logPath(p.name), lastLines(c.logPath(p.name), 15))
	}
	return nil
}

var errEnded = errors.New("the process ended")

// poll repeats a probe until it succeeds, the bound is over or nothing is left
// to wait for, and returns the probe's last error.
func poll(ctx context.Context, bound time.Duration, probe func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	for {
		attempt, stop := context.WithTimeout(ctx, 5*time.Second)
		err := probe(attempt)
		stop()
		if err == nil || errors.Is(err, errEnded) {
			return err
		}
		if pause(ctx, 50*time.Millisecond) != nil {
			return fmt.Errorf("not ready after %s: %w", bound, err)
		}
	}
}

func probeEtcd(ctx context.Context, c *Cluster) error {
	return c.get(ctx, c.url(c.record.Ports.Etcd)+"/readyz", nil)
}

func probeAPIServer(ctx context.Context, c *Cluster) error {
	return c.get(ctx, c.APIServer+"/readyz", nil)
}

func probeControllerManager(ctx context.Context, c *Cluster) error {
	return c.get(ctx, c.url(c.record.Ports.ControllerManager)+"/healthz", nil)
}

func probeScheduler(ctx context.Context, c *Cluster) error {
	return c.get(ctx, c.url(c.record.Ports.Scheduler)+"/readyz", nil)
}

func probeKubelet(ctx context.Context, c *Cluster) error {
	return c.get(ctx, c.url(10250)+"/healthz", nil)
}

func probeProxy(ctx context.Context, c *Cluster) error {
	return c.get(ctx, fmt.Sprintf("http://%s:10256/livez", c.record.Address), nil)
}

// probeContainerd reaches the socket through the mount namespace's root.
func probeContainerd(ctx context.Context, c *Cluster) error {
	keeper, ok := c.running(keeperPart)
	if !ok {
		return errEnded
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", fmt.Sprintf("/proc/%d/root/run/containerd/containerd.sock", keeper.PID))
	if err != nil {
		return err
	}
	return conn.Close()
}

// probeAccount waits for what every pod needs.
func probeAccount(ctx context.Context, c *Cluster) error {
	return c.get(ctx, c.APIServer+"/api/v1/namespaces/default/serviceaccounts/default", nil)
}

// awaitNode waits for word from a kubelet that was started after the given time.
func (c *Cluster) awaitNode(ctx context.Context, since time.Time) error {
	err := poll(ctx, readyBound, func(ctx context.Context) error { return c.probeNode(ctx, since) })
	if err != nil {
		return fmt.Errorf("wait for the node: %w; look at %s; its last lines:\n%s",
			err, c.logPath("kubelet"), lastLines(c.logPath("kubelet"), 15))
	}
	return nil
}

func (c *Cluster) probeNode(ctx context.Context, since time.Time) error {
	var node struct {
		Status struct {
			Conditions []struct {
				Type, Status, Message string
				LastHeartbeatTime     time.Time
			}
		}
	}
	if err := c.get(ctx, c.APIServer+"/api/v1/nodes/"+c.NodeName, &node); err != nil {
		return err
	}
	for _, condition := range node.Status.Conditions {
		switch {
		case condition.Type != "Ready":
		case condition.Status != "True":
			return errors.New("the node is not ready: " + condition.Message)
		case condition.LastHeartbeatTime.Before(since):
			return errors.New("the kubelet has not reported since its start")
		default:
			return nil
		}
	}
	return errors.New("the node has no Ready condition yet")
}

// get asks as the administrator and decodes a JSON answer if wanted.
func (c *Cluster) get(ctx context.Context, url string, into any) error {
	return c.ask(ctx, http.MethodGet, url, "", into)
}

func (c *Cluster) ask(ctx context.Context, method, url, question string, into any) error {
	ca, err := os.ReadFile(c.pki("ca.crt"))
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	pair, err := tls.LoadX509KeyPair(c.pki("admin.crt"), c.pki("admin.key"))
	if err != nil {
		return err
	}
	transport := &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
	}
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(question))
	if err != nil {
		return err
	}
	if method == http.MethodPatch {
		request.Header.Set("Content-Type", "application/apply-patch+yaml")
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return err
	}
	if response.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: %s: %.200s", method, url, response.Status, body)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(body, into)
}
