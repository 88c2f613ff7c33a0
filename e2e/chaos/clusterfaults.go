package chaos

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"slipway.dev/slipway/e2e/hollow"
	"slipway.dev/slipway/e2e/proxy"
)

// podFaults are what kubelets and people do to pods and Jobs.
func (s *storm) podFaults() []fault {
	zero := int64(0)
	victim := func(kind string, do func(ctx context.Context, random *rand.Rand, p hollow.Pod) error) fault {
		return fault{kind, func(ctx context.Context, random *rand.Rand) (string, bool) {
			running := s.fleet.Running()
			if len(running) == 0 {
				return "", false
			}
			p := running[random.IntN(len(running))]
			return p.Namespace + "/" + p.Name, do(ctx, random, p) == nil
		}}
	}
	deleteJob := func(how metav1.DeletionPropagation) func(context.Context, *rand.Rand, hollow.Pod) error {
		return func(ctx context.Context, _ *rand.Rand, p hollow.Pod) error {
			return s.rig.Kube.BatchV1().Jobs(p.Namespace).Delete(ctx, p.Job, metav1.DeleteOptions{PropagationPolicy: &how})
		}
	}
	hinder := func(kind string, h hollow.Hindrance) fault {
		return fault{kind, func(_ context.Context, random *rand.Rand) (string, bool) {
			h.For = time.Duration(1+random.IntN(4)) * time.Second
			s.fleet.Hinder(h)
			return h.For.String(), true
		}}
	}
	return []fault{
		victim("runner_kill", func(_ context.Context, _ *rand.Rand, p hollow.Pod) error { p.Kill(); return nil }),
		victim("runner_oom", func(_ context.Context, _ *rand.Rand, p hollow.Pod) error { p.OOM(); return nil }),
		victim("runner_freeze", func(ctx context.Context, random *rand.Rand, p hollow.Pod) error {
			go p.Freeze(ctx, time.Duration(500+random.IntN(5500))*time.Millisecond) // it wakes it in any case
			return nil
		}),
		victim("pod_evicted_by_kubelet", func(_ context.Context, _ *rand.Rand, p hollow.Pod) error { p.Evict(); return nil }),
		victim("pod_evicted_by_api", func(ctx context.Context, _ *rand.Rand, p hollow.Pod) error {
			return s.rig.Kube.PolicyV1().Evictions(p.Namespace).Evict(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace}})
		}),
		victim("pod_delete", func(ctx context.Context, _ *rand.Rand, p hollow.Pod) error {
			return s.rig.Kube.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{})
		}),
		victim("pod_force_delete", func(ctx context.Context, _ *rand.Rand, p hollow.Pod) error {
			return s.rig.Kube.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: &zero})
		}),
		// Every finalizer is taken off first: no evidence stays, and the Job controller makes a second pod while the first
		// may still be at work.
		victim("pod_vanish", func(ctx context.Context, _ *rand.Rand, p hollow.Pod) error {
			pods := s.rig.Kube.CoreV1().Pods(p.Namespace)
			if _, err := pods.Patch(ctx, p.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
				return err
			}
			return pods.Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: &zero})
		}),
		victim("job_delete_background", deleteJob(metav1.DeletePropagationBackground)),
		victim("job_delete_foreground", deleteJob(metav1.DeletePropagationForeground)),
		victim("job_delete_orphan", deleteJob(metav1.DeletePropagationOrphan)),
		hinder("image_pull", hollow.Hindrance{Reason: "ImagePullBackOff", Message: "Back-off pulling image"}),
		hinder("slow_start", hollow.Hindrance{Reason: "ContainerCreating"}),
	}
}

// nodeFaults cut a node off for less than its fence time.
func (s *storm) nodeFaults() []fault {
	return []fault{{"node_cut", func(ctx context.Context, random *rand.Rand) (string, bool) {
		n, ok := s.anyNode(random)
		if !ok {
			return "", false
		}
		s.fleet.Cut(ctx, n, time.Duration(2+random.IntN(8))*time.Second)
		return n.Name, true
	}}}
}

// lossFaults lose a node for good, with its Node deleted while its processes run on until their lanes were handed on:
// where there is one, a node with a handler that would do so too.
func (s *storm) lossFaults() []fault {
	return []fault{{"node_loss", func(ctx context.Context, random *rand.Rand) (string, bool) {
		n, ok := s.anyNode(random)
		if !ok {
			return "", false
		}
		if with := s.longOn(); with != nil {
			n = with
		}
		err := s.fleet.Lose(ctx, n, time.Duration(random.IntN(3000))*time.Millisecond, runsOn)
		return n.Name, err == nil
	}}}
}

// longOn finds a node on which a handler works on until it is stopped; nil where there is none.
func (s *storm) longOn() *hollow.Node {
	for _, p := range s.fleet.Running() {
		if !s.works(p.Task) {
			continue
		}
		for _, n := range s.fleet.Nodes() {
			if n.Name == p.Node {
				return n
			}
		}
	}
	return nil
}

func (s *storm) anyNode(random *rand.Rand) (*hollow.Node, bool) {
	heard := s.fleet.Nodes()
	if len(heard) < nodes/2 {
		return nil, false
	}
	return heard[random.IntN(len(heard))], true
}

// serverFaults break the database for everybody.
func (s *storm) serverFaults() []fault {
	return []fault{
		{"database_restart", func(ctx context.Context, _ *rand.Rand) (string, bool) {
			if err := s.rig.Postgres.Pause(); err != nil {
				s.t.Errorf("stop the database: %v", err)
			}
			return "", s.restartDatabase(ctx)
		}},
		{"database_crash", func(ctx context.Context, _ *rand.Rand) (string, bool) {
			if err := s.rig.Postgres.Kill(); err != nil {
				s.t.Errorf("kill the database: %v", err)
			}
			return "", s.restartDatabase(ctx)
		}},
		{"database_terminate", func(ctx context.Context, _ *rand.Rand) (string, bool) {
			return "", s.sql(ctx, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'slipway' AND pid <> pg_backend_pid()")
		}},
		{"database_read_only", func(ctx context.Context, random *rand.Rand) (string, bool) {
			ok := s.sql(ctx, "ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()")
			nap(ctx, time.Duration(500+random.IntN(2000))*time.Millisecond)
			s.writable(ctx)
			return "", ok
		}},
		{"database_full", func(ctx context.Context, _ *rand.Rand) (string, bool) {
			ok := s.sql(ctx, "ALTER DATABASE slipway CONNECTION LIMIT 0", "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'slipway'")
			nap(ctx, time.Second)
			s.sql(context.WithoutCancel(ctx), "ALTER DATABASE slipway CONNECTION LIMIT -1")
			return "", ok
		}},
	}
}

func (s *storm) restartDatabase(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	if err := s.rig.Postgres.Restart(ctx); err != nil {
		s.t.Errorf("start the database again: %v", err)
		return false
	}
	return true
}

func (s *storm) writable(ctx context.Context) {
	s.sql(context.WithoutCancel(ctx), "ALTER SYSTEM RESET default_transaction_read_only", "SELECT pg_reload_conf()")
}

// sql runs statements past all proxies, in the server's own database.
func (s *storm) sql(ctx context.Context, statements ...string) bool {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.rig.Postgres.URL("postgres"))
	if err != nil {
		s.t.Errorf("connect to the database: %v", err)
		return false
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }() // all is done
	for _, statement := range statements {
		if _, err := conn.Exec(ctx, statement); err != nil {
			s.t.Errorf("%s: %v", statement, err)
			return false
		}
	}
	return true
}

// etcdFaults are what goes on in the cluster besides.
func (s *storm) etcdFaults() []fault {
	return []fault{
		{"unrelated_writes", func(ctx context.Context, _ *rand.Rand) (string, bool) { return "", s.writeMuch(ctx) }},
		{"etcd_compaction", func(ctx context.Context, _ *rand.Rand) (string, bool) { return s.compact(ctx) }},
	}
}

// clusterFaults are what all replicas suffer at once, and what changes for one of them.
func (s *storm) clusterFaults() []fault {
	return []fault{
		{"api_outage", func(ctx context.Context, random *rand.Rand) (string, bool) {
			var back []func()
			for _, p := range s.rig.Replicas {
				back = append(back, p.Cluster.Add(proxy.APIFault{Action: proxy.APISever}))
			}
			nap(ctx, time.Duration(1000+random.IntN(3000))*time.Millisecond)
			for _, mend := range back {
				mend()
			}
			return "", true
		}},
		{"token_rotation", func(_ context.Context, random *rand.Rand) (string, bool) {
			p := s.rig.Replicas[random.IntN(replicas)]
			p.RevocableToken(s.t) // the one before stays good, as one that a kubelet has replaced
			return p.Name, true
		}},
		{"gate_cut", func(ctx context.Context, random *rand.Rand) (string, bool) {
			s.rig.Gate.Cut()
			nap(ctx, time.Duration(500+random.IntN(2500))*time.Millisecond)
			s.rig.Gate.Mend()
			return "", true
		}},
	}
}

// writeMuch writes objects that are nobody's business.
func (s *storm) writeMuch(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	maps := s.rig.Kube.CoreV1().ConfigMaps("default")
	var group sync.WaitGroup
	var mu sync.Mutex
	written := 0
	for range 10 {
		group.Go(func() {
			for range 20 {
				_, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "unrelated-"}}, metav1.CreateOptions{})
				if err == nil {
					mu.Lock()
					written++
					mu.Unlock()
				}
			}
		})
	}
	group.Wait()
	_ = maps.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "metadata.name!=kube-root-ca.crt"}) // they harm nobody
	return written > 0
}

// compact drops every revision of etcd but the newest, so that every watch position before it has expired.
func (s *storm) compact(ctx context.Context) (string, bool) {
	list, err := s.rig.Kube.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return "", false
	}
	dir := s.rig.Cluster.Dir
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "pki", "etcd-client.crt"), filepath.Join(dir, "pki", "etcd-client.key"))
	if err != nil {
		s.t.Errorf("read the key to etcd: %v", err)
		return "", false
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{
		Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true,
	}}}
	body := fmt.Sprintf(`{"revision": %q, "physical": true}`, list.ResourceVersion)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.etcd()+"/v3/kv/compaction", strings.NewReader(body))
	if err != nil {
		return "", false
	}
	answer, err := client.Do(request)
	if err != nil {
		s.t.Errorf("compact etcd: %v", err)
		return "", false
	}
	defer func() { _ = answer.Body.Close() }() // only read
	var text bytes.Buffer
	_, _ = text.ReadFrom(answer.Body) // for the note
	return "to " + list.ResourceVersion, answer.StatusCode == http.StatusOK || strings.Contains(text.String(), "compacted")
}

// mend takes every fault away and sees to it that all replicas run.
func (s *storm) mend() {
	ctx := context.WithoutCancel(s.t.Context())
	s.rig.Gate.Mend()
	s.writable(ctx)
	s.sql(ctx, "ALTER DATABASE slipway CONNECTION LIMIT -1")
	for i, p := range s.rig.Replicas {
		p.Database.Set()
		p.Cluster.Clear()
		if !p.Running() {
			s.raise(ctx, i)
		}
	}
}

// etcd finds the address of etcd where the API server has it from.
func (s *storm) etcd() string {
	pid, err := s.rig.Cluster.Pid("kube-apiserver")
	if err != nil {
		s.t.Errorf("find etcd: %v", err)
		return ""
	}
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		s.t.Errorf("find etcd: %v", err)
		return ""
	}
	_, rest, _ := strings.Cut(string(line), "--etcd-servers=")
	address, _, _ := strings.Cut(rest, "\x00")
	return address
}
