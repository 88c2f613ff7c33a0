package hollow

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// alone is a life without a cluster: a pod without a token asks the API server for nothing.
func alone(t *testing.T) *life {
	t.Helper()
	f := New(Options{
		Programs: map[string]string{"/bin/busybox": "/bin/busybox"}, Entrypoint: []string{"/bin/busybox"},
		Service: "10.0.0.1:80", Dir: t.TempDir(),
	})
	t.Cleanup(f.group.Wait)
	if err := f.unpack(); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "u", Labels: map[string]string{"a/b": "c"}}}
	return newLife(&Node{fleet: f, way: &way{address: "127.0.0.9:1"}}, pod)
}

func (l *life) shell(t *testing.T, script string) (*container, string) {
	t.Helper()
	spec := corev1.Container{Name: "main", Args: []string{"sh", "-c", script}, Env: []corev1.EnvVar{
		{Name: "URL", Value: "http://10.0.0.1:80"},
		{Name: "LABEL", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels['a/b']"}}},
	}}
	root, err := l.makeRoot(t.Context(), l.known)
	if err != nil {
		t.Fatal(err)
	}
	c, err := l.start(l.known, spec, root)
	if err != nil {
		t.Fatal(err)
	}
	return c, root
}

func TestAContainerIsAProcessOfItsOwnWorld(t *testing.T) {
	l := alone(t)
	c, root := l.shell(t, `echo $$ $URL $LABEL > /dev/termination-log; echo x > /dev/null || exit 9; [ -e /bin/busybox ] && exit 3`)
	<-c.done
	if got := message(root, corev1.Container{}); got != "1 http://127.0.0.9:1 c\n" || c.code() != 3 {
		t.Errorf("%q, exit code %d", got, c.code())
	}
}

func TestWithItsFirstProcessAllOfAContainerDies(t *testing.T) {
	l := alone(t)
	c, root := l.shell(t, `/bin/busybox sh -c 'while :; do echo x >> /tmp/beat; /bin/busybox usleep 20000; done' & wait`)
	beats := func() int {
		text, _ := os.ReadFile(filepath.Join(root, "tmp", "beat"))
		return len(text)
	}
	await := func(what string, ok func() bool) {
		t.Helper()
		for by := time.Now().Add(20 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(by) {
				t.Fatal("not within 20 s: " + what)
			}
		}
	}
	await("it begins", func() bool { return beats() > 4 })
	Pod{life: l, main: c}.main.freeze()
	still := beats()
	time.Sleep(200 * time.Millisecond)
	if now := beats(); now > still+2 {
		t.Errorf("%d beats while it was frozen", (now-still)/2)
	}
	c.wake()
	await("it goes on", func() bool { return beats() > still+4 })
	Pod{life: l, main: c}.Kill()
	<-c.done
	still = beats()
	time.Sleep(200 * time.Millisecond)
	if beats() != still || c.code() != 137 {
		t.Errorf("exit code %d, and %d beats after it", c.code(), (beats()-still)/2)
	}
}

func TestWhatCannotBeStartedIsSaid(t *testing.T) {
	l := alone(t)
	root, err := l.makeRoot(t.Context(), l.known)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.start(l.known, corev1.Container{Name: "main", Command: []string{"/missing"}}, root); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("%v", err)
	}
}
