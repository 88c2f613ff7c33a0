package rig

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"slipway.dev/slipway/e2e/cluster/local"
	"slipway.dev/slipway/e2e/postgres"
)

// Options says what New makes.
type Options struct {
	Profile    local.Profile
	Storage    bool              // the node has volumes: see e2e/storage
	Replicas   int               // started by New; default 1
	Namespaces int               // tenants; default 1
	Share      *Rig              // another Slipway whose tenants this one uses too; default: tenants of its own
	Env        map[string]string // of every replica, beside what the rig sets
	Version    *Version          // of what New starts, until Upgrade; default: this tree
	Direct     bool              // runners call the replica that made their Job; default: the gate
	TLS        bool              // serve it, with an authority of the rig's own; default: plain HTTP
	Proxied    bool              // a fault proxy stands before each replica: see Replica.Database and Replica.Cluster
	Durable    bool              // what was committed outlives a crash of the database; default: it may not
	Settings   map[string]string // of PostgreSQL, beside what the rig sets
	Seed       uint64            // of what the proxies draw
	Clock      time.Time         // where a clock of the test's own stands, for the database; default: there is none
}

// Rig is one Slipway: its own database, hence its own instance, on a cluster that it may share.
type Rig struct {
	Cluster    *local.Cluster
	Kube       kubernetes.Interface // as the cluster's administrator
	Config     *rest.Config         // the same
	Postgres   *postgres.Server
	Gate       *Gate
	Namespaces []string // enabled for Slipway
	Replicas   []*Replica

	options Options
	dir     string
	http    *http.Client // of users and of the rig itself
}

// Namespace is the first tenant.
func (r *Rig) Namespace() string { return r.Namespaces[0] }

// New brings up what o asks for. It is torn down with the test; the cluster stays for the next one, until Main.
func New(t testing.TB, o Options) *Rig {
	t.Helper()
	o.Replicas, o.Namespaces = max(o.Replicas, 1), max(o.Namespaces, 1)
	r := &Rig{Cluster: SharedCluster(t, o.Profile, o.Storage), options: o, dir: t.TempDir()}
	r.connect(t)
	if o.Share != nil {
		r.Namespaces = o.Share.Namespaces
	} else {
		for range o.Namespaces {
			r.Namespaces = append(r.Namespaces, r.makeTenant(t))
		}
	}
	server, err := postgres.Start(t.Context(), postgres.Options{Fsync: o.Durable, Settings: o.Settings})
	if err != nil {
		t.Fatalf("start PostgreSQL: %v", err)
	}
	r.Postgres = server
	t.Cleanup(func() {
		if err := server.Stop(postgres.Fast); err != nil {
			t.Errorf("stop PostgreSQL: %v", err)
		}
	})
	if r.Gate, err = newGate(t.Context(), r.Cluster.HostIP); err != nil {
		t.Fatalf("open the gate: %v", err)
	}
	t.Cleanup(r.Gate.close)
	r.http = http.DefaultClient
	if o.TLS {
		r.Certify(t, r.Certificate(t))
	}
	if o.Version != nil {
		o.Version.load(t, r)
	}
	r.createDatabase(t)
	if !o.Clock.IsZero() {
		r.setUpClock(t, o.Clock)
	}
	r.admit(t, r.access(), r.Cluster.APIServer, r.authority(t))
	t.Cleanup(func() { r.teardown(t) })
	for range o.Replicas {
		r.AddReplica(t, nil)
	}
	for _, replica := range r.Replicas {
		replica.WaitReady(t)
	}
	return r
}

func (r *Rig) connect(t testing.TB) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", r.Cluster.Kubeconfig)
	if err != nil {
		t.Fatalf("read the administrator's kubeconfig: %v", err)
	}
	config.QPS = -1
	r.Config = config
	if r.Kube, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatalf("connect to the cluster: %v", err)
	}
}

// clusters are shared by the tests of one process: bringing one up costs more than most tests.
var clusters struct {
	sync.Mutex
	up map[string]*local.Cluster
}

// SharedCluster is the cluster that New uses: for a test that needs no Slipway on it.
func SharedCluster(t testing.TB, profile local.Profile, storage bool) *local.Cluster {
	t.Helper()
	clusters.Lock()
	defer clusters.Unlock()
	name := clusterName(profile, storage)
	if c := clusters.up[name]; c != nil {
		return c
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	began := time.Now()
	// Fake nodes are there to measure on.
	c, err := local.Up(ctx, local.Options{Name: name, Profile: profile, Storage: storage, Tuned: true, Fsync: profile == local.Fake, Log: Progress})
	if err != nil {
		t.Fatalf("bring up the cluster: %v", err)
	}
	if profile == local.Node {
		if err := loadImages(ctx, c); err != nil {
			t.Fatalf("load the images: %v", err)
		}
	}
	if err := applyRights(ctx, c); err != nil {
		t.Fatalf("apply the rights: %v", err)
	}
	fmt.Fprintf(Progress, "rig: cluster %s is ready (%.1fs)\n", name, time.Since(began).Seconds())
	if clusters.up == nil {
		clusters.up = map[string]*local.Cluster{}
	}
	clusters.up[name] = c
	return c
}

// clusterName differs between test processes, so that they never share.
func clusterName(profile local.Profile, storage bool) string {
	kind := string(profile)
	if storage {
		kind = "storage"
	}
	return fmt.Sprintf("test-%s-%d", kind, os.Getpid())
}

// Progress takes what the rig says about itself while a test waits.
var Progress io.Writer = os.Stderr

// Main runs the tests of a package and takes down what they shared.
func Main(m *testing.M) int {
	code := m.Run()
	err := Down()
	if built.path != "" {
		err = errors.Join(err, os.RemoveAll(filepath.Dir(built.path)))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	return code
}

// Down takes down what the tests of this process shared; Main does so by itself.
func Down() error {
	clusters.Lock()
	defer clusters.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var errs []error
	for name := range clusters.up {
		if err := local.Down(ctx, name); err != nil {
			errs = append(errs, fmt.Errorf("take down cluster %s: %w", name, err))
		}
	}
	clusters.up = nil
	return errors.Join(errs...)
}

// root is the folder of the module.
var root = sync.OnceValue(func() string {
	dir, err := os.Getwd()
	for err == nil {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if filepath.Dir(dir) == dir {
			break
		}
		dir = filepath.Dir(dir)
	}
	panic("the rig runs inside the module's tree")
})

func randomText(n int) string { return strings.ToLower(rand.Text())[:n] }
