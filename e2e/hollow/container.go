package hollow

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// user is whom containers run as; the image belongs to nobody else.
const user = 65532

// container is one process, the first of a pid namespace: with it everything in there dies.
type container struct {
	name  string
	image string
	cmd   *exec.Cmd
	done  chan struct{} // closed once it is gone
	began time.Time
	ended time.Time
	oom   bool   // told by a fault: what kills it is out of memory
	said  string // its termination message
}

// root makes a pod's root folder: links to the image, the volumes, the devices that a program cannot do without.
func (l *life) makeRoot(ctx context.Context, pod *corev1.Pod) (string, error) {
	root := filepath.Join(l.node.fleet.o.Dir, "roots", string(pod.UID))
	for _, folder := range []string{"/dev", "/proc/self", "/tmp", "/etc"} {
		if err := openFolder(filepath.Join(root, folder)); err != nil {
			return root, err
		}
	}
	for inside := range l.node.fleet.o.Programs {
		to := filepath.Join(root, inside)
		if err := openFolder(filepath.Dir(to)); err != nil {
			return root, err
		}
		if err := os.Link(filepath.Join(l.node.fleet.o.Dir, "image", inside), to); err != nil {
			return root, err
		}
	}
	if err := syscall.Mknod(filepath.Join(root, "dev/null"), syscall.S_IFCHR|0o666, 1<<8|3); err != nil {
		return root, fmt.Errorf("make /dev/null: %w", err)
	}
	if err := os.Chmod(filepath.Join(root, "dev/null"), 0o666); err != nil {
		return root, err
	}
	// Its own program is all that a runner asks /proc for.
	return root, errors.Join(
		os.Symlink(l.node.fleet.o.Entrypoint[0], filepath.Join(root, "proc/self/exe")),
		l.makeVolumes(ctx, pod, root),
	)
}

func openFolder(path string) error {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	return os.Chmod(path, 0o777)
}

// makeVolumes makes each volume where the first container mounts it, and links elsewhere.
func (l *life) makeVolumes(ctx context.Context, pod *corev1.Pod, root string) error {
	at := map[string]string{}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for _, m := range c.VolumeMounts {
			path := filepath.Join(root, m.MountPath)
			first, made := at[m.Name]
			if made {
				if first != m.MountPath {
					_ = os.Symlink(first, path) // two containers may mount it at the same place
				}
				continue
			}
			at[m.Name] = m.MountPath
			if err := openFolder(path); err != nil {
				return err
			}
			i := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
			if i < 0 || pod.Spec.Volumes[i].Projected == nil {
				continue
			}
			for _, s := range pod.Spec.Volumes[i].Projected.Sources {
				if s.ServiceAccountToken == nil {
					continue
				}
				if err := l.writeToken(ctx, pod, s.ServiceAccountToken, filepath.Join(path, s.ServiceAccountToken.Path)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// writeToken asks for the token that the pod is to have.
func (l *life) writeToken(ctx context.Context, pod *corev1.Pod, p *corev1.ServiceAccountTokenProjection, file string) error {
	ask := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		Audiences: []string{p.Audience}, ExpirationSeconds: p.ExpirationSeconds,
		BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID},
	}}
	var token string
	err := l.node.call(ctx, func(ctx context.Context) error {
		answer, err := l.node.fleet.o.Kube.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(ctx, pod.Spec.ServiceAccountName, ask, metav1.CreateOptions{})
		if err == nil {
			token = answer.Status.Token
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("ask for the pod's token: %w", err)
	}
	return os.WriteFile(file, []byte(token), 0o644)
}

// start starts a container below root.
func (l *life) start(pod *corev1.Pod, spec corev1.Container, root string) (*container, error) {
	if err := os.WriteFile(filepath.Join(root, terminationPath(spec)), nil, 0o666); err != nil {
		return nil, err
	}
	if err := os.Chmod(filepath.Join(root, terminationPath(spec)), 0o666); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(filepath.Join(l.node.fleet.o.Dir, "logs", pod.Name+"."+spec.Name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }() // the process has its own
	argv := slices.Concat(spec.Command, spec.Args)
	if len(spec.Command) == 0 {
		argv = slices.Concat(l.node.fleet.o.Entrypoint, spec.Args)
	}
	c := &container{name: spec.Name, image: spec.Image, done: make(chan struct{}), began: time.Now()}
	c.cmd = &exec.Cmd{
		Path: argv[0], Args: argv, Dir: "/", Env: l.environment(pod, spec), Stdout: log, Stderr: log,
		SysProcAttr: &syscall.SysProcAttr{
			Chroot: root, Cloneflags: syscall.CLONE_NEWPID, Setsid: true, Pdeathsig: syscall.SIGKILL,
			Credential: &syscall.Credential{Uid: user, Gid: user},
		},
	}
	started := make(chan error, 1)
	l.node.fleet.group.Go(func() { c.live(started) })
	return c, <-started
}

// live starts the process below a thread of its own, because a death signal is bound to the thread.
func (c *container) live(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(c.done)
	err := c.cmd.Start()
	started <- err
	if err == nil {
		_ = c.cmd.Wait() // its state tells how it ended
	}
	c.ended = time.Now()
}

func terminationPath(spec corev1.Container) string {
	if spec.TerminationMessagePath == "" {
		return corev1.TerminationMessagePathDefault
	}
	return spec.TerminationMessagePath
}

// environment resolves the variables of a container. What names the control plane's address names the node's way.
func (l *life) environment(pod *corev1.Pod, spec corev1.Container) []string {
	env := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/", "GOMAXPROCS=1"}
	for _, v := range spec.Env {
		value := v.Value
		if v.ValueFrom != nil && v.ValueFrom.FieldRef != nil {
			value = field(pod, v.ValueFrom.FieldRef.FieldPath)
		}
		env = append(env, v.Name+"="+strings.ReplaceAll(value, l.node.fleet.o.Service, l.node.way.address))
	}
	return env
}

// field is the downward API.
func field(pod *corev1.Pod, path string) string {
	switch path {
	case "metadata.name":
		return pod.Name
	case "metadata.namespace":
		return pod.Namespace
	case "metadata.uid":
		return string(pod.UID)
	case "spec.nodeName":
		return pod.Spec.NodeName
	}
	if key, ok := strings.CutPrefix(path, "metadata.labels['"); ok {
		return pod.Labels[strings.TrimSuffix(key, "']")]
	}
	if key, ok := strings.CutPrefix(path, "metadata.annotations['"); ok {
		return pod.Annotations[strings.TrimSuffix(key, "']")]
	}
	return ""
}

func (c *container) signal(s syscall.Signal) {
	_ = c.cmd.Process.Signal(s) // it may be gone
}

// freeze stops every process of the container.
func (c *container) freeze() {
	for known := 0; ; {
		all := descendants(c.cmd.Process.Pid)
		for _, pid := range all {
			_ = syscall.Kill(pid, syscall.SIGSTOP) // it may be gone
		}
		if len(all) == known {
			return
		}
		known = len(all)
	}
}

func (c *container) wake() {
	for _, pid := range descendants(c.cmd.Process.Pid) {
		_ = syscall.Kill(pid, syscall.SIGCONT) // it may be gone
	}
}

// descendants lists a process and all that came from it: none outlives its pid namespace, so none has another parent.
func descendants(pid int) []int {
	all := []int{pid}
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return nil
	}
	for _, thread := range threads {
		children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, thread.Name()))
		if err != nil {
			continue
		}
		for _, word := range bytes.Fields(children) {
			if child, err := strconv.Atoi(string(word)); err == nil {
				all = append(all, descendants(child)...)
			}
		}
	}
	return all
}
