package rig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"slipway.dev/slipway/e2e/proxy"
)

// Replica is one control plane, a process of this machine.
type Replica struct {
	Name    string
	Address string // host:port
	LogFile string
	// Database breaks the way to Postgres, where Options.Proxied is set.
	Database *proxy.Postgres
	// Cluster breaks the way to the API server, where Options.Proxied is set.
	Cluster *proxy.API

	rig    *Rig
	binary string
	env    map[string]string
	cmd    *exec.Cmd
	end    chan struct{}
}

// database is the name of the rig's database.
const database = "slipway"

// AddReplica starts one more control plane, with env over what the others have, and does not wait for it.
func (r *Rig) AddReplica(t testing.TB, env map[string]string) *Replica {
	t.Helper()
	return r.AddReplicaOf(t, r.options.Version, env)
}

// AddReplicaOf does the same with a control plane of v; nil is this tree.
func (r *Rig) AddReplicaOf(t testing.TB, v *Version, env map[string]string) *Replica {
	t.Helper()
	name := fmt.Sprintf("replica-%d", len(r.Replicas)+1)
	replica := &Replica{
		Name: name, Address: net.JoinHostPort(r.Cluster.HostIP, freePort(t, r.Cluster.HostIP)),
		LogFile: filepath.Join(r.dir, name+".log"), rig: r, binary: v.binary(t), env: maps.Clone(r.options.Env),
	}
	if replica.env == nil {
		replica.env = map[string]string{}
	}
	maps.Copy(replica.env, env)
	if r.options.Proxied {
		replica.standBehind(t, r.options.Seed+uint64(len(r.Replicas)))
	}
	r.Replicas = append(r.Replicas, replica)
	r.Gate.add(replica.Address)
	replica.Start(t)
	return replica
}

// Start starts the process, with extra over its environment for this one run.
func (p *Replica) Start(t testing.TB, extra ...map[string]string) {
	t.Helper()
	env := maps.Clone(p.rig.environment(p))
	for _, e := range extra {
		maps.Copy(env, e)
	}
	log, err := os.OpenFile(p.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatalf("open the log of %s: %v", p.Name, err)
	}
	defer log.Close()
	p.cmd = exec.Command(p.binary, "serve")
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.Env = flat(env)
	p.end = make(chan struct{})
	p.begin(t)
}

// begin starts the process below a thread that lives as long as it, because a death signal is bound to the thread: a
// test process that is killed takes its replicas with it.
func (p *Replica) begin(t testing.TB) {
	t.Helper()
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error, 1)
	go func(cmd *exec.Cmd, end chan struct{}) {
		defer close(end)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is the test's business, not the rig's
		}
	}(p.cmd, p.end)
	if err := <-started; err != nil {
		t.Fatalf("start %s: %v", p.Name, err)
	}
}

// Pid is that of the process started last.
func (p *Replica) Pid() int { return p.cmd.Process.Pid }

// Running reports whether the process lives.
func (p *Replica) Running() bool {
	select {
	case <-p.end:
		return false
	default:
		return true
	}
}

// Ended is closed once the process is gone.
func (p *Replica) Ended() <-chan struct{} { return p.end }

// Kill ends the process without a word, as a crash would.
func (p *Replica) Kill(t testing.TB) { p.signal(t, syscall.SIGKILL) }

// Stop asks the process to end and waits for it.
func (p *Replica) Stop(t testing.TB) { p.signal(t, syscall.SIGTERM) }

func (p *Replica) signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	p.send(t, s)
	select {
	case <-p.end:
	case <-time.After(60 * time.Second):
		t.Fatalf("%s did not end within a minute of %v; its last lines:\n%s", p.Name, s, p.Tail())
	}
}

func (p *Replica) send(t testing.TB, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatalf("signal %s: %v", p.Name, err)
	}
}

// WaitReady waits until the replica says that it is ready.
func (p *Replica) WaitReady(t testing.TB) {
	t.Helper()
	Eventually(t, p.Name+" to be ready", func(ctx context.Context) (bool, error) {
		if !p.Running() {
			t.Fatalf("%s ended before it was ready; its last lines:\n%s", p.Name, p.Tail())
		}
		status, body, err := p.Get(ctx, "/readyz")
		if err != nil {
			return false, err
		}
		if status != http.StatusOK {
			return false, fmt.Errorf("readyz: %s", body)
		}
		return true, nil
	})
}

// Get reads a path of this replica itself, past the gate.
func (p *Replica) Get(ctx context.Context, path string) (status int, body string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.rig.scheme()+p.Address+path, nil)
	if err != nil {
		return 0, "", err
	}
	request.Close = true
	answer, err := p.rig.http.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	return answer.StatusCode, string(raw), err
}

// Tail gives the end of the replica's log.
func (p *Replica) Tail() string {
	raw, err := os.ReadFile(p.LogFile)
	if err != nil {
		return err.Error()
	}
	return string(raw[max(0, len(raw)-4000):])
}

// environment is what the manifests would set.
func (r *Rig) environment(p *Replica) map[string]string {
	env := map[string]string{
		"SLIPWAY_DATABASE_URL":     p.databaseURL(),
		"SLIPWAY_LISTEN":           p.Address,
		"SLIPWAY_NAMESPACES":       strings.Join(r.Namespaces, ","),
		"SLIPWAY_RUNNER_IMAGE":     runnerImage(r.Cluster.Profile),
		"SLIPWAY_RUNNER_URL":       r.scheme() + r.Gate.Address,
		"SLIPWAY_KUBECONFIG":       p.access().kubeconfig,
		"SLIPWAY_REPLICA":          p.Name,
		"SLIPWAY_LOG_LEVEL":        "debug",
		"SLIPWAY_UPKEEP_NAMESPACE": "none", // nothing runs that the test has not asked for
		"TZ":                       os.Getenv("TZ"),
	}
	if r.options.Direct {
		env["SLIPWAY_RUNNER_URL"] = r.scheme() + p.Address
	}
	if r.options.TLS {
		env["SLIPWAY_TLS_CERT"], env["SLIPWAY_TLS_KEY"], env["SLIPWAY_RUNNER_CA"] = r.tlsFile("tls.crt"), r.tlsFile("tls.key"), r.tlsFile("ca.crt")
	} else {
		env["SLIPWAY_PLAIN_HTTP"] = "true"
	}
	maps.Copy(env, p.env)
	return env
}

// controlplane builds the binary once a test process, with failpoints and the race detector.
func controlplane(t testing.TB) string {
	t.Helper()
	built.once.Do(func() {
		dir, err := os.MkdirTemp("", "slipway-rig-")
		if err != nil {
			built.err = err
			return
		}
		built.path = filepath.Join(dir, "controlplane")
		cmd := exec.Command("go", "build", "-race", "-tags", "failpoints", "-o", built.path, "./controlplane")
		cmd.Dir = root()
		if out, err := cmd.CombinedOutput(); err != nil {
			built.err = fmt.Errorf("build the control plane: %w\n%s", err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.path
}

var built struct {
	once sync.Once
	path string
	err  error
}

func freePort(t testing.TB, host string) string {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatalf("find a free port: %v", err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatalf("read a port: %v", err)
	}
	return port
}

func flat(env map[string]string) []string {
	out := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}
	for k, v := range env {
		out = append(out, k+"="+v)
	}
	return out
}
