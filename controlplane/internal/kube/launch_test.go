package kube

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/pkg/task"
)

func TestALaunchRepeatedAdoptsItsOwnJob(t *testing.T) {
	r := newRig(t)
	tk, a := r.attempt()
	name, uid, err := r.client.Launch(t.Context(), tk, a)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		again, sameUID, err := r.client.Launch(t.Context(), tk, a)
		if err != nil || again != name || sameUID != uid {
			t.Fatalf("got %s %s %v, want %s %s", again, sameUID, err, name, uid)
		}
	}
	jobs := have(server.api.BatchV1().Jobs(r.namespace).List(t.Context(), metav1.ListOptions{}))(t)
	if len(jobs.Items) != 1 || string(jobs.Items[0].UID) != uid {
		t.Fatalf("%d jobs", len(jobs.Items))
	}
}

func TestAStrangersJobIsNeverAdopted(t *testing.T) {
	r := newRig(t)
	for name, change := range map[string]func(labels map[string]string){
		"another fence":    func(l map[string]string) { l[LabelFence] = "999999" },
		"another attempt":  func(l map[string]string) { l[LabelAttempt] = "999999" },
		"another task":     func(l map[string]string) { l[LabelTask] = "x" },
		"another instance": func(l map[string]string) { l[LabelInstance] = "x" },
		"nobody's":         func(l map[string]string) { clear(l); l["of"] = "nobody" },
	} {
		tk, a := r.attempt()
		job := have(r.client.job(tk, a))(t)
		change(job.Labels)
		made := have(server.api.BatchV1().Jobs(r.namespace).Create(t.Context(), job, metav1.CreateOptions{}))(t)
		if _, _, err := r.client.Launch(t.Context(), tk, a); !errors.Is(err, task.ErrTaken) {
			t.Errorf("%s: got %v, want that the name is taken", name, err)
		}
		is := have(server.api.BatchV1().Jobs(r.namespace).Get(t.Context(), job.Name, metav1.GetOptions{}))(t)
		if is.UID != made.UID || is.DeletionTimestamp != nil || is.Generation != made.Generation {
			t.Errorf("%s: it was touched", name)
		}
	}
}

func TestAJobThatIsBeingDeletedIsNotAdopted(t *testing.T) {
	r := newRig(t)
	tk, a, _ := r.launch()
	if err := server.api.BatchV1().Jobs(r.namespace).Delete(t.Context(), a.JobName, metav1.DeleteOptions{
		PropagationPolicy: new(metav1.DeletePropagationForeground),
	}); err != nil {
		t.Fatal(err)
	}
	if r.job(a).DeletionTimestamp == nil {
		t.Fatal("the job is not being deleted")
	}
	if _, _, err := r.client.Launch(t.Context(), tk, a); !errors.Is(err, task.ErrTaken) {
		t.Errorf("got %v, want that the name is taken", err)
	}
}

func TestALaunchIsKnownByThePodItLeft(t *testing.T) {
	r := newRig(t)
	_, other := r.attempt()
	if name, _, err := r.client.Left(t.Context(), other); name != "" || err != nil {
		t.Errorf("never launched: got %q, %v", name, err)
	}
	_, a, pod := r.launch()
	r.bind(pod)
	job := r.job(a)
	if err := server.api.BatchV1().Jobs(r.namespace).Delete(t.Context(), a.JobName, metav1.DeleteOptions{
		PropagationPolicy: new(metav1.DeletePropagationBackground),
	}); err != nil {
		t.Fatal(err)
	}
	name, uid, err := r.client.Left(t.Context(), a)
	if name != job.Name || uid != string(job.UID) || err != nil {
		t.Errorf("got %s %s %v, want %s %s", name, uid, err, job.Name, job.UID)
	}
}

func (r *rig) quota(hard corev1.ResourceList) {
	r.t.Helper()
	have(server.api.CoreV1().ResourceQuotas(r.namespace).Create(r.t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: hard},
	}, metav1.CreateOptions{}))(r.t)
	r.eventually("a counted quota", func(ctx context.Context) bool {
		q, err := server.api.CoreV1().ResourceQuotas(r.namespace).Get(ctx, "q", metav1.GetOptions{})
		return err == nil && len(q.Status.Used) == len(hard)
	})
}

func TestAQuotaOnJobsIsToldApartAndNamed(t *testing.T) {
	r := newRig(t)
	r.quota(corev1.ResourceList{"count/jobs.batch": resource.MustParse("1")})
	r.launch()
	r.eventually("the first Job to be counted", func(ctx context.Context) bool {
		q, err := server.api.CoreV1().ResourceQuotas(r.namespace).Get(ctx, "q", metav1.GetOptions{})
		used := q.Status.Used["count/jobs.batch"]
		return err == nil && used.Value() == 1
	})
	tk, a := r.attempt()
	_, _, err := r.client.Launch(t.Context(), tk, a)
	if refusal := wantRefusal(t, err, task.RefusedQuota, "exceeded quota"); !refusal.JobCount {
		t.Error("it is not known as a quota that counts jobs")
	}
}

func TestAQuotaOnPodsIsNamedByTheDryRun(t *testing.T) {
	for name, hard := range map[string]corev1.ResourceList{
		"pods":            {"pods": resource.MustParse("0")},
		"count of pods":   {"count/pods": resource.MustParse("0")},
		"memory":          {"requests.memory": resource.MustParse("10Mi")},
		"limit of memory": {"limits.memory": resource.MustParse("20Mi")},
		"cpu":             {"cpu": resource.MustParse("1m")},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.quota(hard)
			tk, a := r.attempt(func(tk *task.Task) {
				tk.Spec.Requests = map[string]string{"cpu": "10m", "memory": "16Mi"}
				tk.Spec.Limits = map[string]string{"memory": "32Mi"}
			})
			err := r.client.DryRun(t.Context(), tk, a)
			if refusal := wantRefusal(t, err, task.RefusedQuota, "exceeded quota"); refusal.JobCount {
				t.Error("it is taken for a quota that counts jobs")
			}
		})
	}
}

func TestARehearsalAsksForTheJobTooAndLeavesNothing(t *testing.T) {
	r := newRig(t)
	tk, a := r.attempt()
	if err := r.client.Rehearse(t.Context(), tk, a); err != nil {
		t.Fatal(err)
	}
	left := have(server.api.BatchV1().Jobs(r.namespace).List(t.Context(), metav1.ListOptions{}))(t)
	if len(left.Items) != 0 {
		t.Errorf("%d jobs are left", len(left.Items))
	}
	r.quota(corev1.ResourceList{"count/jobs.batch": resource.MustParse("0")})
	if err := r.client.DryRun(t.Context(), tk, a); err != nil {
		t.Fatalf("the pod alone: %v", err)
	}
	wantRefusal(t, r.client.Rehearse(t.Context(), tk, a), task.RefusedQuota, "exceeded quota")
}

func TestThePodPassesTheStrictestPodSecurity(t *testing.T) {
	r := newRig(t)
	strict := r.namespace + "-strict"
	r.makeNamespace(strict, map[string]string{"pod-security.kubernetes.io/enforce": "restricted"})
	r.client.cfg.Namespaces = append(r.client.cfg.Namespaces, strict)
	tk, a := r.attempt()
	a.Namespace = strict
	for _, wrap := range []task.Wrap{task.WrapExec, task.WrapNone, task.WrapOwn} {
		tk.Spec.Pod = task.Pod{Wrap: wrap, Command: []string{"true"}, Tolerations: []task.Toleration{{Key: "a", Operator: "Exists"}}}
		if err := r.client.DryRun(t.Context(), tk, a); err != nil {
			t.Fatalf("wrap %q: %v", wrap, err)
		}
	}

	// The same pod with one right too many is refused for what it is.
	template := have(r.client.podTemplate(tk, a))(t)
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Namespace, pod.GenerateName = strict, "x-"
	pod.Spec.Containers[0].SecurityContext.AllowPrivilegeEscalation = new(true)
	err := r.client.tryPod(t.Context(), pod)
	if err == nil {
		t.Fatal("it was not refused")
	}
	wantRefusal(t, r.client.refusal(t.Context(), err, asker{namespace: strict, pod: pod}), task.RefusedInvalid, "PodSecurity")
}

func TestEachRefusalHasItsCause(t *testing.T) {
	r := newRig(t)
	t.Run("a limit below its request can never be", func(t *testing.T) {
		tk, a := r.attempt(func(tk *task.Task) {
			tk.Spec.Requests, tk.Spec.Limits = map[string]string{"memory": "64Mi"}, map[string]string{"memory": "32Mi"}
		})
		_, _, err := r.client.Launch(t.Context(), tk, a)
		wantRefusal(t, err, task.RefusedInvalid, "memory")
	})
	t.Run("a service account that does not exist", func(t *testing.T) {
		tk, a := r.attempt(func(tk *task.Task) { tk.Spec.ServiceAccount = "nope" })
		wantRefusal(t, r.client.DryRun(t.Context(), tk, a), task.RefusedInvalid, "nope")
	})
	t.Run("a priority class that does not exist", func(t *testing.T) {
		c := r.newClient(func(cfg *Config) { cfg.PriorityPrefix = "none-such-" })
		tk, a := r.attempt()
		wantRefusal(t, c.DryRun(t.Context(), tk, a), task.RefusedInvalid, "none-such-normal")
	})
	t.Run("a namespace that does not exist", func(t *testing.T) {
		c := r.newClient(func(cfg *Config) { cfg.REST, cfg.Namespaces = server.admin, []string{AllNamespaces} })
		tk, a := r.attempt()
		a.Namespace = "test-none-such"
		_, _, err := c.Launch(t.Context(), tk, a)
		wantRefusal(t, err, task.RefusedNamespace)
	})
	t.Run("a namespace without our rights waits and shows", func(t *testing.T) {
		c := r.newClient(func(cfg *Config) { cfg.Namespaces = []string{"default"} })
		tk, a := r.attempt()
		a.Namespace = "default"
		_, _, err := c.Launch(t.Context(), tk, a)
		wantRefusal(t, err, task.RefusedUnknown, "forbidden")
		wantRefusal(t, c.DryRun(t.Context(), tk, a), task.RefusedUnknown, "forbidden")
	})
	t.Run("a namespace that is terminating", func(t *testing.T) {
		_, _, pod := r.launch() // its finalizer keeps the namespace
		if err := server.api.CoreV1().Namespaces().Delete(t.Context(), r.namespace, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		r.eventually("a terminating namespace", func(ctx context.Context) bool {
			ns, err := server.api.CoreV1().Namespaces().Get(ctx, pod.Namespace, metav1.GetOptions{})
			return err == nil && ns.Status.Phase == corev1.NamespaceTerminating
		})
		tk, a := r.attempt()
		var err error
		r.eventually("a refusal by the namespace", func(context.Context) bool {
			_, _, err = r.client.Launch(t.Context(), tk, a)
			var refusal *task.Refusal // rights and accounts of the namespace go one by one
			return errors.As(err, &refusal) && refusal.Cause != task.RefusedUnknown
		})
		wantRefusal(t, err, task.RefusedNamespace)
	})
}

func TestAStraightLineCostsThreeCalls(t *testing.T) {
	r := newRig(t)
	r.eventually("idle watches", func(context.Context) bool { _, ok := r.client.SyncAge(); return ok })
	before := r.client.Calls()
	_, a, pod := r.launch()
	r.bind(pod)
	r.running(pod)
	r.ends(pod, corev1.ContainerStateTerminated{ExitCode: 0, Reason: "Completed"})
	started := time.Now()
	if s := r.observe(a, false); len(s.Pods) != 1 || !s.Pods[0].Ended() {
		t.Fatalf("the end is not seen: %+v", s)
	}
	if err := r.client.Close(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	t.Logf("closing took %v", time.Since(started))
	spent := map[Call]int64{}
	for call, n := range r.client.Calls() {
		if n -= before[call]; n > 0 && call.Verb != "watch" {
			spent[call] = n
		}
	}
	want := map[Call]int64{{"create", "jobs"}: 1, {"patch", "jobs"}: 1, {"patch", "pods"}: 1}
	if len(spent) != len(want) {
		t.Errorf("spent %v, want %v", spent, want)
	}
	for call, n := range want {
		if spent[call] != n {
			t.Errorf("%v: %d times, want %d", call, spent[call], n)
		}
	}
}
