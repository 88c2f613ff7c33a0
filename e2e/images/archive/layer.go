package archive

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// epoch is the time of every file and image: what is the same must look the same.
var epoch = time.Unix(0, 0).UTC()

// file is one entry of a layer: a folder, a symbolic link, or a regular file with its bytes here or on disk.
type file struct {
	path  string // absolute in the image
	mode  fs.FileMode
	owner int
	link  string
	text  []byte
	from  string // on this machine; else text
}

// layer is a set of files; folders above them are made.
type layer []file

// folder makes an entry for a folder.
func folder(path string, mode fs.FileMode, owner int) file {
	return file{path: path, mode: fs.ModeDir | mode, owner: owner}
}

// sorted gives the entries with the folders above them, each path once, parents first; a later entry replaces an
// earlier one.
func (l layer) sorted() layer {
	entries := map[string]file{}
	for _, f := range l {
		f.path = path.Clean("/" + f.path)
		for dir := path.Dir(f.path); dir != "/"; dir = path.Dir(dir) {
			if _, there := entries[dir]; !there {
				entries[dir] = folder(dir, 0o755, 0)
			}
		}
		entries[f.path] = f
	}
	all := make(layer, 0, len(entries))
	for _, f := range entries {
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b file) int { return cmp.Compare(a.path, b.path) })
	return all
}

// writeTo writes the layer as a tar stream.
func (l layer) writeTo(out io.Writer) error {
	w := tar.NewWriter(out)
	for _, f := range l.sorted() {
		if err := f.writeTo(w); err != nil {
			return fmt.Errorf("write %s: %w", f.path, err)
		}
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("write the layer: %w", err)
	}
	return nil
}

func (f file) writeTo(w *tar.Writer) error {
	h := &tar.Header{
		Name: strings.TrimPrefix(f.path, "/"), Mode: int64(f.mode.Perm()), Uid: f.owner, Gid: f.owner, ModTime: epoch, Format: tar.FormatPAX,
	}
	if f.mode&fs.ModeSticky != 0 {
		h.Mode |= 0o1000
	}
	switch {
	case f.mode.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
		return w.WriteHeader(h)
	case f.link != "":
		h.Typeflag, h.Linkname = tar.TypeSymlink, f.link
		return w.WriteHeader(h)
	}
	text := f.text
	if f.from != "" {
		raw, err := os.ReadFile(f.from)
		if err != nil {
			return err
		}
		text = raw
	}
	h.Typeflag, h.Size = tar.TypeReg, int64(len(text))
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	_, err := w.Write(text)
	return err
}

// image makes the image.
func (r recipe) image() (v1.Image, error) {
	image := empty.Image
	for _, l := range r.layers {
		var raw bytes.Buffer
		if err := l.writeTo(&raw); err != nil {
			return nil, err
		}
		content, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(raw.Bytes())), nil },
			tarball.WithCompressionLevel(gzip.DefaultCompression))
		if err != nil {
			return nil, fmt.Errorf("make a layer: %w", err)
		}
		if image, err = mutate.AppendLayers(image, content); err != nil {
			return nil, fmt.Errorf("append a layer: %w", err)
		}
	}
	made, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("configure the image: %w", err)
	}
	made = made.DeepCopy()
	made.OS, made.Architecture, made.Created = "linux", runtime.GOARCH, v1.Time{Time: epoch}
	made.Config = v1.Config{
		Entrypoint: r.config.Entrypoint, User: r.config.User, Env: r.config.Env, WorkingDir: r.config.WorkingDir, StopSignal: r.config.StopSignal,
	}
	if image, err = mutate.ConfigFile(image, made); err != nil {
		return nil, fmt.Errorf("configure the image: %w", err)
	}
	return image, nil
}

// treeOf takes a folder of this machine as it is, links included; skip leaves out what it says yes to.
func treeOf(root string, skip func(path string) bool) (layer, error) {
	var l layer
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if skip != nil && skip(path) {
			if entry.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		switch {
		case entry.IsDir():
			l = append(l, folder(path, info.Mode().Perm(), 0))
		case info.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
				return nil // a link that leads nowhere here leads nowhere there
			}
			l = append(l, file{path: path, mode: 0o777, link: to})
		case info.Mode().IsRegular():
			l = append(l, file{path: path, mode: info.Mode().Perm(), from: path})
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", root, err)
	}
	return l, nil
}
