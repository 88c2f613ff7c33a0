// Command loopcsi is the CSI driver of the local cluster's storage. A volume is one file system in a sparse file, ext4 or xfs,
// mounted by a loop device, and a snapshot is a copy of such a file: growth, contents and errors are real. What a test
// wants of it beyond that is in the file of switches, see rule.
//
// Everything that it has stands in one folder, as files; it keeps nothing in memory and may be killed at any time.
//
//	volumes/ID.img, volumes/ID.json       a volume and what is known of it
//	snapshots/ID.img, snapshots/ID.json   a snapshot and what is known of it
//	switches.json                         written by tests, read at each call
//	calls.jsonl                           each call that was answered, with its answer
//
// Imports: the standard library, grpc, the CSI specification, and of Kubernetes mount-utils and the kubelet's plugin
// registration.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	pluginregistration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"k8s.io/mount-utils"
)

// driverName is what StorageClasses name as their provisioner.
const driverName = "loop.csi.slipway.dev"

// topologyKey is the label of the node that a volume can be used on.
const topologyKey = driverName + "/node"

func main() {
	dir := flag.String("dir", "", "folder of everything that the driver keeps")
	socket := flag.String("socket", "", "where it listens")
	registry := flag.String("registry", "", "folder in which the kubelet looks for plugins")
	node := flag.String("node", "", "name of the node")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *dir, *socket, *registry, *node)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "loopcsi:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dir, socket, registry, node string) error {
	d := &driver{disk: disk{dir}, node: node, mounter: mount.NewWithoutSystemd("")}
	for _, folder := range []string{d.disk.volumes(), d.disk.snapshots(), registry, filepath.Dir(socket)} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return fmt.Errorf("make folders: %w", err)
		}
	}
	driver := grpc.NewServer(grpc.UnaryInterceptor(d.intercept))
	csi.RegisterIdentityServer(driver, d)
	csi.RegisterControllerServer(driver, d)
	csi.RegisterNodeServer(driver, d)
	plugin := grpc.NewServer()
	pluginregistration.RegisterRegistrationServer(plugin, &registration{socket: socket})

	ended := make(chan error, 2)
	// The kubelet calls the driver as soon as it sees the plugin.
	for _, s := range []struct {
		server *grpc.Server
		path   string
	}{{driver, socket}, {plugin, filepath.Join(registry, driverName+"-reg.sock")}} {
		listener, err := listen(s.path)
		if err != nil {
			return err
		}
		go func() { ended <- s.server.Serve(listener) }()
		defer s.server.Stop()
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-ended:
		return fmt.Errorf("serve: %w", err)
	}
}

// listen takes the place of a driver that was killed.
func listen(path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listen: %w", err)
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return listener, nil
}

// registration tells the kubelet where the driver is.
type registration struct {
	pluginregistration.UnimplementedRegistrationServer
	socket string
}

// GetInfo is the kubelet's question.
func (r *registration) GetInfo(context.Context, *pluginregistration.InfoRequest) (*pluginregistration.PluginInfo, error) {
	return &pluginregistration.PluginInfo{
		Type: pluginregistration.CSIPlugin, Name: driverName, Endpoint: r.socket, SupportedVersions: []string{"1.0.0"},
	}, nil
}

// NotifyRegistrationStatus is the kubelet's verdict.
func (r *registration) NotifyRegistrationStatus(_ context.Context, status *pluginregistration.RegistrationStatus) (*pluginregistration.RegistrationStatusResponse, error) {
	if !status.GetPluginRegistered() {
		fmt.Fprintln(os.Stderr, "loopcsi: the kubelet refused the driver:", status.GetError())
	}
	return &pluginregistration.RegistrationStatusResponse{}, nil
}
