package local

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
)

// Profile says how much of a cluster is run.
type Profile string

const (
	// API is a control plane without a node: the test plays the kubelet.
	API Profile = "api"
	// Node is a control plane with one real node on this machine.
	Node Profile = "node"
	// Fake is a control plane with a scheduler, and nodes that kwok plays: pods end, and no program runs.
	Fake Profile = "fake"
)

// Options says what Up makes.
type Options struct {
	Name    string    // default "demo"
	Profile Profile   // default Node
	Log     io.Writer // progress lines; default: none
	Tuned   bool      // high client rates and many workers, for throughput figures; else stock
	Fsync   bool      // let etcd sync to disk, for benchmarks; else it does not
	Storage bool      // with volumes, see StorageDir; only in profile Node
}

// Cluster is one cluster on this machine. Its fields do not change while it lives.
type Cluster struct {
	Name       string
	Profile    Profile
	Dir        string // everything that the cluster keeps
	Kubeconfig string // file with the administrator's credentials
	APIServer  string // URL, reachable from the host
	HostIP     string // an address of the host: pods reach host processes that listen on it
	AuditLog   string // file, one JSON object a line: requests to Jobs and pods, and all other writes but events and leases
	Kubectl    string // path of the kubectl binary
	NodeName   string // the Node object's name; empty but in profile Node
	Storage    bool   // it has volumes

	record record
}

// record is what is written to cluster.json: all that another process needs to
// find, repair or remove the cluster.
type record struct {
	Name    string
	ID      string // the name and a hash of the state folder: unique on this machine
	Profile Profile
	Tuned   bool
	Fsync   bool
	Bin     string // folder of the Kubernetes binaries
	Kwok    string // folder of kwok, in profile Fake
	Storage bool
	Sidecar string       // folder of the CSI programs, with Storage
	Driver  string       // folder of the CSI driver, with Storage
	Address netip.Addr   // what every part listens on
	Block   netip.Prefix // the addresses of profile Node
	Ports   ports
}

type ports struct {
	Etcd, EtcdPeer, APIServer, ControllerManager, Scheduler int
}

var validName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,28}[a-z0-9])?$`)

// ErrNotFound is returned by Open for a cluster that does not exist.
var ErrNotFound = errors.New("there is no such cluster")

// Open finds a cluster that Up made, running or not.
func Open(name string) (*Cluster, error) {
	dir, _, err := place(name)
	if err != nil {
		return nil, err
	}
	raw, err := os.ReadFile(filepath.Join(dir, "cluster.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open cluster %s: %w; start it with \"go run ./e2e/cluster up --name %s\"", name, ErrNotFound, name)
	}
	if err != nil {
		return nil, fmt.Errorf("open cluster %s: %w", name, err)
	}
	var r record
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, fmt.Errorf("read %s/cluster.json: %w", dir, err)
	}
	return r.cluster(dir), nil
}

// List names the clusters that have a state folder.
func List() ([]string, error) {
	root, err := stateRoot()
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(root, "*", "cluster.json"))
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", root, err)
	}
	var names []string
	for _, file := range files {
		names = append(names, filepath.Base(filepath.Dir(file)))
	}
	return names, nil
}

func (r record) cluster(dir string) *Cluster {
	c := &Cluster{
		Name: r.Name, Profile: r.Profile, Dir: dir,
		Kubeconfig: filepath.Join(dir, "admin.kubeconfig"),
		APIServer:  fmt.Sprintf("https://%s:%d", r.Address, r.Ports.APIServer),
		HostIP:     "127.0.0.1",
		AuditLog:   filepath.Join(dir, "audit.log"),
		Kubectl:    filepath.Join(r.Bin, "kubectl"),
		Storage:    r.Storage,
		record:     r,
	}
	if r.Profile == Node {
		c.HostIP = r.hostAddress().String()
		c.NodeName = r.Name + "-node"
	}
	return c
}

func (c *Cluster) save() error {
	raw, err := json.MarshalIndent(c.record, "", "  ")
	if err != nil {
		return fmt.Errorf("write cluster.json: %w", err)
	}
	return writeFile(filepath.Join(c.Dir, "cluster.json"), raw)
}

func (c *Cluster) path(elem ...string) string {
	return filepath.Join(append([]string{c.Dir}, elem...)...)
}

// place returns the folder and the machine-wide id of a cluster.
func place(name string) (dir, id string, err error) {
	if !validName.MatchString(name) {
		return "", "", fmt.Errorf("cluster name %q: use 1 to 30 of a-z, 0-9 and -", name)
	}
	root, err := stateRoot()
	if err != nil {
		return "", "", err
	}
	sum := sha256.Sum256([]byte(root))
	return filepath.Join(root, name), name + "-" + hex.EncodeToString(sum[:3]), nil
}

func stateRoot() (string, error) { return rootFolder("SLIPWAY_STATE", ".local/state/slipway") }

func cacheRoot() (string, error) { return rootFolder("SLIPWAY_CACHE", ".cache/slipway") }

func rootFolder(variable, underHome string) (string, error) {
	if dir := os.Getenv(variable); dir != "" {
		return filepath.Abs(dir)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("choose a folder: set %s: %w", variable, err)
	}
	return filepath.Join(home, underHome), nil
}

// writeFile replaces a file in one step and keeps it from other users.
func writeFile(path string, content []byte) error {
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
