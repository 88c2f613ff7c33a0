package local

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"slipway.dev/slipway/e2e/packages"
)

// Parts names the programs of the cluster in the order of their start.
func (c *Cluster) Parts() []string {
	var names []string
	for _, p := range c.parts() {
		names = append(names, p.name)
	}
	return names
}

// Pid returns the process of a part.
func (c *Cluster) Pid(name string) (int, error) {
	p, err := c.find(name)
	return p.PID, err
}

// Signal sends a signal to a part, never to another process with its pid.
func (c *Cluster) Signal(name string, s os.Signal) error {
	p, err := c.find(name)
	if err != nil {
		return err
	}
	return p.signal(s)
}

// StopPart ends a part: SIGTERM, and SIGKILL after 5 s. It stays stopped until
// StartPart or Up. To see what a crash does, use Signal with SIGKILL.
func (c *Cluster) StopPart(ctx context.Context, name string) error {
	if _, err := c.part(name); err != nil {
		return err
	}
	p, ok := c.running(name)
	if !ok {
		return nil
	}
	_ = p.signal(syscall.SIGCONT) // a stopped process would not see SIGTERM
	if err := end(ctx, 5*time.Second, p); err != nil {
		return fmt.Errorf("stop %s: %w", name, err)
	}
	return nil
}

// StartPart starts a part that does not run and returns when it is ready.
func (c *Cluster) StartPart(ctx context.Context, name string) error {
	p, err := c.part(name)
	if err != nil {
		return err
	}
	if _, ok := c.running(name); !ok {
		if err := c.startProcess(ctx, p); err != nil {
			return err
		}
	}
	return c.await(ctx, p)
}

func (c *Cluster) find(name string) (process, error) {
	if _, err := c.part(name); err != nil {
		return process{}, err
	}
	p, ok := c.running(name)
	if !ok {
		return process{}, fmt.Errorf("find process of %s: %w", name, os.ErrProcessDone)
	}
	return p, nil
}

// startProcess first ends a process of the same part that no record tells of:
// its starter died before it could write one.
func (c *Cluster) startProcess(ctx context.Context, p part) error {
	strays := scan(func(pid int) bool {
		if !hasVariable(pid, c.mark()) || !hasVariable(pid, partVariable+"="+p.name) {
			return false
		}
		command, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		return err == nil && !strings.HasPrefix(string(command), "containerd-shim")
	})
	if err := end(ctx, 0, strays...); err != nil {
		return err
	}
	argv := p.argv(c)
	if c.Profile == Node {
		enter, err := c.enter()
		if err != nil {
			return err
		}
		argv = append(enter, argv...)
	}
	return c.launch(p.name, argv)
}

// Tune raises or lowers the client rates and worker counts of controller-manager and scheduler, and starts them anew: see
// Options.Tuned.
func (c *Cluster) Tune(ctx context.Context, tuned bool) error {
	if c.record.Tuned == tuned {
		return nil
	}
	c.record.Tuned = tuned
	if err := errors.Join(c.writeConfigs(), c.save()); err != nil {
		return err
	}
	for _, name := range []string{"kube-controller-manager", "kube-scheduler"} {
		if _, err := c.part(name); err != nil {
			continue // this profile has none
		}
		if err := errors.Join(c.StopPart(ctx, name), c.StartPart(ctx, name)); err != nil {
			return err
		}
	}
	return nil
}

// Compact drops everything but the newest revision from etcd: whoever is behind it has to list anew.
func (c *Cluster) Compact(ctx context.Context) error {
	var now struct {
		Header struct{ Revision string } // JSON of protobuf: a 64-bit number is text
	}
	etcd := c.url(c.record.Ports.Etcd)
	if err := c.ask(ctx, http.MethodPost, etcd+"/v3/kv/range", `{"key":"AA=="}`, &now); err != nil {
		return fmt.Errorf("read etcd's revision: %w", err)
	}
	if err := c.ask(ctx, http.MethodPost, etcd+"/v3/kv/compaction", `{"revision":"`+now.Header.Revision+`"}`, nil); err != nil {
		return fmt.Errorf("compact etcd: %w", err)
	}
	return nil
}

// NodeCommand prepares a command that runs in the node's network and mount
// namespaces: it sees the kubelet's folders and mounts, and Down ends it.
func (c *Cluster) NodeCommand(ctx context.Context, name string, args ...string) (*exec.Cmd, error) {
	enter, err := c.enter()
	if err != nil {
		return nil, err
	}
	argv := append(append(enter, name), args...)
	cmd := exec.CommandContext(ctx, packages.Find(argv[0]), argv[1:]...)
	cmd.Env = append(os.Environ(), "PATH="+packages.SearchPath, c.mark())
	return cmd, nil
}

// Load imports image archives, as docker or OCI tools write them, into the node.
func (c *Cluster) Load(ctx context.Context, archives ...string) error {
	for _, archive := range archives {
		if err := c.load(ctx, archive); err != nil {
			return fmt.Errorf("load image %s into cluster %s: %w", archive, c.Name, err)
		}
	}
	return nil
}

func (c *Cluster) load(ctx context.Context, archive string) error {
	// The archive goes in by standard input: its path may be hidden in the
	// node's mount namespace.
	file, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	cmd, err := c.NodeCommand(ctx, "ctr", "--namespace=k8s.io", "images", "import", "--snapshotter="+c.snapshotter(), "-")
	if err != nil {
		return err
	}
	cmd.Stdin = file
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, lastOf(string(out), 3))
	}
	return nil
}

// PartStatus is what Status tells of one part.
type PartStatus struct {
	Name  string
	PID   int // 0: does not run
	Error error
}

// Status looks at every part. Error is nil for one that answers as it should.
func (c *Cluster) Status(ctx context.Context) []PartStatus {
	var list []PartStatus
	for _, p := range c.parts() {
		status := PartStatus{Name: p.name, Error: errEnded}
		if found, ok := c.running(p.name); ok {
			attempt, cancel := context.WithTimeout(ctx, 3*time.Second)
			status.PID, status.Error = found.PID, p.probe(attempt, c)
			cancel()
		}
		list = append(list, status)
	}
	return list
}
