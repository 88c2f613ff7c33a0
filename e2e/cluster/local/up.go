package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"slipway.dev/slipway/e2e/packages"
)

// Up returns a running cluster: at once if it runs, else after it started what
// is missing. It may be repeated after a crash at any point.
func Up(ctx context.Context, o Options) (*Cluster, error) {
	if o.Name == "" {
		o.Name = "demo"
	}
	if o.Profile == "" {
		o.Profile = Node
	}
	if o.Profile != API && o.Profile != Node && o.Profile != Fake {
		return nil, fmt.Errorf("profile %q: use %q, %q or %q", o.Profile, API, Node, Fake)
	}
	if o.Storage && o.Profile != Node {
		return nil, fmt.Errorf("storage needs a node: ask for profile %q, not %q", Node, o.Profile)
	}
	if o.Profile == Node && os.Geteuid() != 0 {
		return nil, errors.New("profile node makes namespaces and cgroups and needs root: run it with sudo, or use profile api")
	}
	p := newProgress("cluster "+o.Name, o.Log)
	held, err := lockName(ctx, o.Name, p)
	if err != nil {
		return nil, err
	}
	defer func() { _ = held.Close() }()
	if o.Profile == Node {
		needs := Needs
		if o.Storage {
			needs = slices.Concat(needs, storageNeeds)
		}
		if err := packages.Ensure(ctx, p.log, needs...); err != nil {
			return nil, err
		}
	}
	c, err := prepare(ctx, o)
	if err != nil {
		return nil, err
	}
	if c.healthy(ctx) {
		p.say("already runs")
		return c, nil
	}
	if err := c.build(ctx, o.Log); err != nil {
		return nil, err
	}
	if err := c.bring(ctx, p); err != nil {
		return nil, fmt.Errorf("bring up cluster %s: %w", o.Name, err)
	}
	return c, nil
}

// build compiles what the cluster runs, or finds it compiled.
func (c *Cluster) build(ctx context.Context, log io.Writer) error {
	r := &c.record
	for _, need := range []struct {
		set    set
		folder *string
		needed bool
	}{
		{kubernetesSet, &r.Bin, true},
		{kwokSet, &r.Kwok, r.Profile == Fake},
		{sidecarSet, &r.Sidecar, r.Storage},
		{driverSet, &r.Driver, r.Storage},
	} {
		if !need.needed {
			continue
		}
		var err error
		if *need.folder, err = buildSet(ctx, log, need.set); err != nil {
			return err
		}
	}
	return nil
}

// lockName serializes Up and Down of one name. The file is removed by Down.
func lockName(ctx context.Context, name string, p *progress) (*os.File, error) {
	dir, _, err := place(name)
	if err != nil {
		return nil, err
	}
	return lock(ctx, filepath.Join(filepath.Dir(dir), "."+name+".lock"), func() {
		p.say("another up or down of this cluster runs, waiting for it")
	})
}

// prepare reads the cluster's record, or decides on a new one.
func prepare(ctx context.Context, o Options) (*Cluster, error) {
	dir, id, err := place(o.Name)
	if err != nil {
		return nil, err
	}
	r := record{Name: o.Name, ID: id, Profile: o.Profile, Tuned: o.Tuned, Fsync: o.Fsync, Storage: o.Storage}
	raw, err := os.ReadFile(filepath.Join(dir, "cluster.json"))
	switch {
	case err == nil:
		if err := json.Unmarshal(raw, &r); err != nil {
			return nil, fmt.Errorf("read cluster.json: %w; run down first", err)
		}
		if r.Profile != o.Profile || r.Tuned != o.Tuned || r.Fsync != o.Fsync || r.Storage != o.Storage {
			return nil, fmt.Errorf("cluster %s exists with profile=%s tuned=%t fsync=%t storage=%t: ask for that, or run down first",
				o.Name, r.Profile, r.Tuned, r.Fsync, r.Storage)
		}
		return r.cluster(dir), nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("read cluster.json: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make state folder: %w", err)
	}
	for try := 1; ; try++ {
		if err := r.chooseAddress(ctx); err != nil {
			return nil, err
		}
		c := r.cluster(dir)
		if err := c.save(); err != nil || r.Profile != Node {
			return c, err
		}
		// Another cluster that starts at the same time may have been faster.
		if err := c.claimBlock(ctx); err == nil || try == 5 {
			return c, err
		}
	}
}

// chooseAddress decides where the parts listen. In profile Node the ports are
// in a network namespace and are the usual ones.
func (r *record) chooseAddress(ctx context.Context) error {
	if r.Profile == Node {
		taken, err := takenAddresses(ctx)
		if err != nil {
			return err
		}
		if r.Block, err = chooseBlock(r.ID, taken); err != nil {
			return err
		}
		r.Address = r.nodeAddress()
		r.Ports = ports{Etcd: 2379, EtcdPeer: 2380, APIServer: 6443, ControllerManager: 10257, Scheduler: 10259}
		return nil
	}
	r.Address = loopbackAddress(r.ID)
	free, err := freePorts(r.Address, 5)
	if err != nil {
		return err
	}
	r.Ports = ports{Etcd: free[0], EtcdPeer: free[1], APIServer: free[2], ControllerManager: free[3], Scheduler: free[4]}
	return nil
}

// freePorts holds all of them at once, so that none is given twice.
func freePorts(address netip.Addr, n int) ([]int, error) {
	var free []int
	for range n {
		listener, err := net.Listen("tcp", netip.AddrPortFrom(address, 0).String())
		if err != nil {
			return nil, fmt.Errorf("choose ports: %w", err)
		}
		defer func() { _ = listener.Close() }()
		free = append(free, listener.Addr().(*net.TCPAddr).Port)
	}
	return free, nil
}

// healthy is true if nothing needs to be done.
func (c *Cluster) healthy(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for _, p := range c.parts() {
		if _, ok := c.running(p.name); !ok || p.probe(ctx, c) != nil {
			return false
		}
	}
	if _, err := os.Stat(c.Kubectl); err != nil || probeAccount(ctx, c) != nil {
		return false
	}
	return c.Profile != Node || c.probeNode(ctx, time.Time{}) == nil
}

// bring starts what does not run. etcd and containerd need nothing and start
// first; the rest needs the API server.
func (c *Cluster) bring(ctx context.Context, p *progress) error {
	if c.Profile == Node {
		if err := c.makeNode(ctx, p); err != nil {
			return err
		}
	}
	if err := c.ensurePKI(time.Now()); err != nil {
		return err
	}
	if err := errors.Join(c.writeConfigs(), c.save()); err != nil {
		return err
	}
	*c = *c.record.cluster(c.Dir)
	stages := [][]string{{"etcd"}, {"kube-apiserver"}, {"kube-controller-manager"}}
	if c.Profile == Fake {
		stages[2] = append(stages[2], "kube-scheduler", "kwok")
	}
	if c.Profile == Node {
		stages = [][]string{
			{"containerd", "etcd"},
			{"kube-apiserver"},
			{"kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy"},
		}
	}
	heard := time.Time{} // a node that is heard of after this time is ready
	if _, ok := c.running("kubelet"); !ok {
		heard = time.Now().Truncate(time.Second)
	}
	for _, stage := range stages {
		if err := c.startStage(ctx, p, stage); err != nil {
			return err
		}
	}
	if err := poll(ctx, readyBound, func(ctx context.Context) error { return probeAccount(ctx, c) }); err != nil {
		return fmt.Errorf("wait for the default service account: %w; look at %s", err, c.logPath("kube-controller-manager"))
	}
	if c.Profile == Node {
		if err := c.awaitNode(ctx, heard); err != nil {
			return err
		}
		p.say("node %s ready", c.NodeName)
	}
	if c.Storage {
		if err := c.bringStorage(ctx, p); err != nil {
			return err
		}
	}
	p.say("up: export KUBECONFIG=%s", c.Kubeconfig)
	return nil
}

func (c *Cluster) startStage(ctx context.Context, p *progress, names []string) error {
	var started []part
	for _, name := range names {
		if name == "kwok" {
			if err := c.makeFakeNodes(ctx); err != nil {
				return err
			}
		}
		one, err := c.part(name)
		if err != nil {
			return err
		}
		if _, ok := c.running(name); !ok {
			if err := c.startProcess(ctx, one); err != nil {
				return err
			}
		}
		started = append(started, one)
	}
	for _, one := range started {
		if err := c.await(ctx, one); err != nil {
			return err
		}
		p.say("%s ready", one.name)
		if one.name == "containerd" {
			if err := c.loadPause(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}
