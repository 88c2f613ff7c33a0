package local

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"runtime"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// PauseImage names the image of every pod's sandbox.
const PauseImage = "slipway.local/pause:1"

// loadPause imports the pause image, made of the one static program.
func (c *Cluster) loadPause(ctx context.Context) error {
	program, err := os.ReadFile(c.program("pause"))
	if err != nil {
		return fmt.Errorf("make pause image: %w", err)
	}
	archive := c.path("node", "pause.tar")
	if err := writePauseImage(archive, program); err != nil {
		return err
	}
	return c.Load(ctx, archive)
}

func writePauseImage(archive string, program []byte) error {
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	if err := w.WriteHeader(&tar.Header{Name: "pause", Mode: 0o755, Size: int64(len(program)), Typeflag: tar.TypeReg}); err != nil {
		return fmt.Errorf("make pause image: %w", err)
	}
	if _, err := w.Write(program); err != nil {
		return fmt.Errorf("make pause image: %w", err)
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("make pause image: %w", err)
	}
	image, err := imageOf(layer.Bytes())
	if err != nil {
		return fmt.Errorf("make pause image: %w", err)
	}
	tag, err := name.NewTag(PauseImage)
	if err != nil {
		return fmt.Errorf("make pause image: %w", err)
	}
	if err := tarball.WriteToFile(archive, tag, image); err != nil {
		return fmt.Errorf("write pause image: %w", err)
	}
	return nil
}

func imageOf(files []byte) (v1.Image, error) {
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files)), nil })
	if err != nil {
		return nil, err
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Config.Entrypoint = []string{"/pause"}
	config.Config.User = "65535:65535"
	return mutate.ConfigFile(image, config)
}
