package archive

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Push uploads an image to a registry, for example registry.example.com/team, and gives its name there. Credentials are
// those of the docker configuration. What the registry has already is not sent again.
func Push(ctx context.Context, image Image, registry string) (Image, error) {
	tag := image.Ref[strings.LastIndexByte(image.Ref, ':')+1:]
	to, err := name.NewTag(strings.TrimRight(registry, "/") + "/" + image.Name + ":" + tag)
	if err != nil {
		return Image{}, fmt.Errorf("name image %s: %w", image.Name, err)
	}
	content, err := tarball.ImageFromPath(image.Archive, nil)
	if err != nil {
		return Image{}, fmt.Errorf("read image %s: %w", image.Name, err)
	}
	if err := remote.Write(to, content, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		return Image{}, fmt.Errorf("push image %s: %w", image.Name, err)
	}
	image.Ref = to.Name()
	return image, nil
}
