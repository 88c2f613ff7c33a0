package archive

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// build builds one image, or takes it from the cache, where its content is the key.
func build(t *testing.T, name string) Image {
	t.Helper()
	if _, err := exec.LookPath("dpkg"); err != nil {
		t.Skip("images are made of Debian's packages")
	}
	images, err := Build(t.Context(), Options{Names: []string{name}})
	if err != nil {
		t.Fatal(err)
	}
	return images[0]
}

// content reads an archive: its configuration, and its files with their headers.
func content(t *testing.T, image Image) (v1.Config, map[string]*tar.Header, map[string][]byte) {
	t.Helper()
	read, err := tarball.ImageFromPath(image.Archive, nil)
	if err != nil {
		t.Fatal(err)
	}
	made, err := read.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if !made.Created.Equal(epoch) {
		t.Errorf("the image tells the time %v", made.Created)
	}
	headers, bodies := map[string]*tar.Header{}, map[string][]byte{}
	flat := mutate.Extract(read)
	defer func() { _ = flat.Close() }() // only read
	for files := tar.NewReader(flat); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return made.Config, headers, bodies
		}
		if err != nil {
			t.Fatal(err)
		}
		name := path.Clean("/" + h.Name)
		headers[name] = h
		if bodies[name], err = io.ReadAll(files); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTheRunnersImageIsSmallStaticAndNotRoot(t *testing.T) {
	image := build(t, "runner")
	config, headers, bodies := content(t, image)
	total := 0
	for name, body := range bodies {
		total += len(body)
		if h := headers[name]; !h.ModTime.Equal(epoch) || h.Uid != 0 && name != "/slipway" {
			t.Errorf("%s: time %v, owner %d", name, h.ModTime, h.Uid)
		}
	}
	if total > 30e6 || image.Size > 30e6 {
		t.Errorf("%d bytes of files, %d of archive", total, image.Size)
	}
	if config.User != "65532:65532" || strings.Join(config.Entrypoint, " ") != "/slipway-runner" {
		t.Errorf("configuration %+v", config)
	}
	for _, name := range []string{"/slipway-runner", "/bin/busybox"} {
		program, err := elf.NewFile(bytes.NewReader(bodies[name]))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, p := range program.Progs {
			if p.Type == elf.PT_INTERP {
				t.Errorf("%s is not static", name)
			}
		}
	}
	for _, tool := range []string{"sh", "sleep", "echo", "cat", "env", "tail"} {
		if h := headers["/bin/"+tool]; h == nil || h.Linkname != "busybox" {
			t.Errorf("there is no %s", tool)
		}
	}
	if len(bodies[certificates]) == 0 {
		t.Error("there are no certificate authorities")
	}
}

func TestTheSameInputsGiveTheSameBytes(t *testing.T) {
	first := build(t, "runner")
	t.Setenv("SLIPWAY_CACHE", t.TempDir())
	second := build(t, "runner")
	if first.Ref != second.Ref {
		t.Errorf("%s and %s", first.Ref, second.Ref)
	}
	a, err := os.ReadFile(first.Archive)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(second.Archive)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a, b) {
		t.Error("the archives differ")
	}
}

func TestAnImageThatHasNotChangedIsNotBuiltAgain(t *testing.T) {
	image := build(t, "runner")
	before, err := os.Stat(image.Archive)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	if _, err := Build(t.Context(), Options{Names: []string{"runner"}, Log: &log}); err != nil {
		t.Fatal(err)
	}
	after, err := os.Stat(image.Archive)
	if err != nil || !before.ModTime().Equal(after.ModTime()) || !strings.Contains(log.String(), "unchanged") {
		t.Errorf("%v, %q", err, log.String())
	}
}

// The image's own files make a server that works: they are laid out and its initdb is run on them.
func TestThePostgresImageHoldsEverythingThatItNeeds(t *testing.T) {
	image := build(t, "postgres")
	config, headers, bodies := content(t, image)
	if config.User != "999:999" || config.StopSignal != "SIGINT" {
		t.Errorf("configuration %+v", config)
	}
	if os.Geteuid() != 0 {
		t.Skip("only root may change the root of a process")
	}
	root := t.TempDir()
	for name, h := range headers {
		if err := lay(filepath.Join(root, name), h, bodies[name]); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(root, "dev"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mknod(filepath.Join(root, "dev/null"), syscall.S_IFCHR|0o666, 1<<8|3); err != nil {
		t.Skipf("no device can be made here: %v", err)
	}
	for _, open := range []string{root, filepath.Join(root, "dev/null"), filepath.Dir(root)} {
		if err := os.Chmod(open, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	script := `mkdir -p /tmp/pg && cd /tmp/pg && initdb -D /tmp/pg/data -U postgres --locale=C.UTF-8 --encoding=UTF8 >/tmp/pg/log 2>&1 || { cat /tmp/pg/log; exit 1; }
echo "select 6*7 as answer, to_char(timestamptz '2026-07-01 12:00+00' at time zone 'Europe/Paris', 'HH24') as hour" | postgres --single -D /tmp/pg/data postgres`
	cmd := exec.CommandContext(t.Context(), "chroot", "--userspec=999:999", root, "/bin/sh", "-c", script)
	cmd.Env = config.Env
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), `answer = "42"`) || !strings.Contains(string(out), `hour = "14"`) {
		t.Errorf("%v:\n%s", err, out)
	}
}

func lay(to string, h *tar.Header, body []byte) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	mode := h.FileInfo().Mode()
	switch h.Typeflag {
	case tar.TypeDir:
		if err := os.Mkdir(to, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	case tar.TypeSymlink:
		return os.Symlink(h.Linkname, to)
	default:
		if err := os.WriteFile(to, body, 0o644); err != nil {
			return err
		}
	}
	if err := os.Chown(to, h.Uid, h.Gid); err != nil {
		return err
	}
	return os.Chmod(to, mode.Perm()|mode&fs.ModeSticky)
}

func TestALibraryThatIsMissingIsNoticed(t *testing.T) {
	if _, err := needed(t.Context(), []string{"/etc/passwd"}); err == nil {
		t.Error("a file that is no program has no libraries, and that was taken")
	}
}

func TestAnUnknownImageIsRefused(t *testing.T) {
	if _, err := Build(t.Context(), Options{Names: []string{"mysql"}}); err == nil || !strings.Contains(err.Error(), "controlplane, runner, postgres") {
		t.Errorf("%v", err)
	}
}
