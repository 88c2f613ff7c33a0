package archive

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Repository is where the images are named before anybody pushes them: a name that no registry answers to.
const Repository = "slipway.dev"

// Names lists every image, in the order in which they are built.
var Names = []string{"controlplane", "runner", "postgres"}

// Options says what to build.
type Options struct {
	Names   []string  // of Names; none means all
	Root    string    // folder of the module; default: found from the working folder
	Out     string    // folder for archives named NAME.tar besides the cache; default: none
	Version string    // told by the programs; default "dev"
	Log     io.Writer // progress lines; default: none
}

// Image is one image on disk.
type Image struct {
	Name    string `json:"name"`
	Ref     string `json:"ref"`     // slipway.dev/NAME:HASH
	Archive string `json:"archive"` // docker archive in the cache
	Size    int64  `json:"size"`    // of the archive, compressed, in bytes
}

// recipe is everything that an image is made of.
type recipe struct {
	layers []layer
	config config
}

// config is the part of an image's configuration that Slipway sets.
type config struct {
	Entrypoint []string
	User       string
	Env        []string
	WorkingDir string
	StopSignal string
}

// Build builds what is asked for, or finds it in the cache.
func Build(ctx context.Context, o Options) ([]Image, error) {
	if len(o.Names) == 0 {
		o.Names = Names
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
	if o.Version == "" {
		o.Version = "dev"
	}
	root, err := moduleRoot(o.Root)
	if err != nil {
		return nil, err
	}
	o.Root = root
	cache, err := cacheFolder()
	if err != nil {
		return nil, err
	}
	var images []Image
	for _, name := range o.Names {
		image, err := buildOne(ctx, o, name, cache)
		if err != nil {
			return nil, fmt.Errorf("build image %s: %w", name, err)
		}
		images = append(images, image)
	}
	return images, nil
}

func buildOne(ctx context.Context, o Options, name, cache string) (Image, error) {
	began := time.Now()
	r, err := recipeFor(ctx, o, name)
	if err != nil {
		return Image{}, err
	}
	hash, err := r.hash()
	if err != nil {
		return Image{}, err
	}
	image := Image{
		Name: name, Ref: Repository + "/" + name + ":" + hash,
		Archive: filepath.Join(cache, name+"-"+hash+".tar"),
	}
	found := "unchanged"
	if _, err := os.Stat(image.Archive); errors.Is(err, fs.ErrNotExist) {
		found = "built"
		if err := r.write(image); err != nil {
			return Image{}, err
		}
	}
	info, err := os.Stat(image.Archive)
	if err != nil {
		return Image{}, fmt.Errorf("find the archive: %w", err)
	}
	image.Size = info.Size()
	if o.Out != "" {
		if err := copyTo(filepath.Join(o.Out, name+".tar"), image.Archive); err != nil {
			return Image{}, err
		}
	}
	_, _ = fmt.Fprintf(o.Log, "images: %s %s, %.1f MB (%.1fs)\n", image.Ref, found, float64(image.Size)/1e6, time.Since(began).Seconds())
	return image, nil
}

func recipeFor(ctx context.Context, o Options, name string) (recipe, error) {
	switch name {
	case "controlplane":
		return controlplane(ctx, o)
	case "runner":
		return runner(ctx, o)
	case "postgres":
		return postgresImage(ctx, o)
	}
	return recipe{}, fmt.Errorf("there is no such image; choose from %s", strings.Join(Names, ", "))
}

// hash names the content: every file's path, mode, owner and bytes, and the configuration.
func (r recipe) hash() (string, error) {
	h := sha256.New()
	if err := json.NewEncoder(h).Encode(r.config); err != nil {
		return "", fmt.Errorf("hash the configuration: %w", err)
	}
	for _, l := range r.layers {
		if err := l.writeTo(h); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil))[:16], nil
}

// write puts the image together and the archive in its place in one step.
func (r recipe) write(image Image) error {
	ref, err := name.NewTag(image.Ref)
	if err != nil {
		return fmt.Errorf("name the image: %w", err)
	}
	content, err := r.image()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(image.Archive), 0o755); err != nil {
		return fmt.Errorf("make the cache: %w", err)
	}
	part, err := os.CreateTemp(filepath.Dir(image.Archive), ".part-*")
	if err != nil {
		return fmt.Errorf("write the archive: %w", err)
	}
	defer func() { _ = os.Remove(part.Name()) }() // gone already where all went well
	if err := errors.Join(tarball.Write(ref, content, part), part.Close()); err != nil {
		return fmt.Errorf("write the archive: %w", err)
	}
	if err := os.Rename(part.Name(), image.Archive); err != nil {
		return fmt.Errorf("write the archive: %w", err)
	}
	return forget(image)
}

// kept is how many archives of one image stay in the cache.
const kept = 5

// forget removes the oldest archives of an image beyond what is kept.
func forget(image Image) error {
	old, err := filepath.Glob(filepath.Join(filepath.Dir(image.Archive), image.Name+"-*.tar"))
	if err != nil {
		return fmt.Errorf("list the cache: %w", err)
	}
	age := func(path string) time.Time {
		info, err := os.Stat(path)
		if err != nil {
			return time.Time{}
		}
		return info.ModTime()
	}
	slices.SortFunc(old, func(a, b string) int { return age(b).Compare(age(a)) })
	for _, path := range old[min(kept, len(old)):] {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("clean the cache: %w", err)
		}
	}
	return nil
}

func copyTo(to, from string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return fmt.Errorf("make the folder for archives: %w", err)
	}
	raw, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("copy the archive: %w", err)
	}
	if err := os.WriteFile(to, raw, 0o644); err != nil {
		return fmt.Errorf("copy the archive: %w", err)
	}
	return nil
}

// cacheFolder is where archives are kept: $SLIPWAY_CACHE or ~/.cache/slipway.
func cacheFolder() (string, error) {
	base := os.Getenv("SLIPWAY_CACHE")
	if base == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("choose a cache: set SLIPWAY_CACHE: %w", err)
		}
		base = filepath.Join(home, ".cache/slipway")
	}
	return filepath.Join(base, "images"), nil
}

// moduleRoot finds the folder with go.mod at or above dir.
func moduleRoot(dir string) (string, error) {
	if dir == "" {
		dir = "."
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "go.mod")); err == nil {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("find the module: no go.mod at or above %s", dir)
		}
	}
}
