package main

import (
	"bytes"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"slipway.dev/slipway/e2e/authority"
	"slipway.dev/slipway/e2e/images/archive"
)

func namespace(name string, labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

func TestANamespaceOfSomebodyElseIsNotTakenOver(t *testing.T) {
	c := &cluster{api: fake.NewClientset(namespace(tenant, nil))}
	if err := mayUse(t.Context(), c, tenant); err == nil {
		t.Error("a namespace without our label was taken")
	}
	if err := remove(t.Context(), c, newProgress(&bytes.Buffer{})); err == nil {
		t.Error("a namespace without our label would be removed")
	}
	c.api = fake.NewClientset(namespace(tenant, map[string]string{partOf: product}))
	for _, name := range []string{tenant, system} {
		if err := mayUse(t.Context(), c, name); err != nil {
			t.Error(err)
		}
	}
}

func TestThePasswordOfAnEarlierRunIsKept(t *testing.T) {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: database}, Data: map[string][]byte{"password": []byte("before")},
	}
	if got, err := keptPassword(t.Context(), &cluster{api: fake.NewClientset(secret)}); err != nil || got != "before" {
		t.Errorf("%q, %v", got, err)
	}
	first, err1 := keptPassword(t.Context(), &cluster{api: fake.NewClientset()})
	second, err2 := keptPassword(t.Context(), &cluster{api: fake.NewClientset()})
	if err1 != nil || err2 != nil || len(first) != 48 || first == second {
		t.Errorf("%q and %q: %v, %v", first, second, err1, err2)
	}
}

func TestACertificateIsKeptAsLongAsItIsGoodForTheServicesAddress(t *testing.T) {
	c := &cluster{api: fake.NewClientset()}
	first, err := keptPair(t.Context(), c, "10.1.2.3")
	if err != nil || !first.Fits(renewBefore, "10.1.2.3", "slipway.slipway-system.svc", "slipway") {
		t.Fatalf("%s, %v", first.Cert, err)
	}
	c.api = fake.NewClientset(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: tlsSecret},
		Data:       map[string][]byte{"tls.crt": first.Cert, "tls.key": first.Key, "ca.crt": first.CA},
	})
	if again, err := keptPair(t.Context(), c, "10.1.2.3"); err != nil || !bytes.Equal(again.Cert, first.Cert) {
		t.Errorf("made anew: %v", err)
	}
	if moved, err := keptPair(t.Context(), c, "10.1.2.4"); err != nil || bytes.Equal(moved.Cert, first.Cert) || !moved.Fits(renewBefore, "10.1.2.4") {
		t.Errorf("not made anew for another address: %v", err)
	}
}

func TestWhatIsAppliedNamesTheImagesThatWereBuilt(t *testing.T) {
	images := []archive.Image{
		{Name: "controlplane", Ref: "registry.example.com:5000/team/controlplane:aa"},
		{Name: "runner", Ref: "registry.example.com:5000/team/runner:bb"},
		{Name: "postgres", Ref: "registry.example.com:5000/team/postgres:cc"},
	}
	pair := authority.Pair{Cert: []byte("cert\n"), Key: []byte("key\n"), CA: []byte("ca\n")}
	for _, overlay := range []string{"overlays/local", "overlays/current"} {
		out, err := render(overlay, images, secrets{"s3cret", pair})
		if err != nil {
			t.Fatal(err)
		}
		text := string(out)
		for want, times := range map[string]int{
			"image: registry.example.com:5000/team/controlplane:aa": 2, "image: registry.example.com:5000/team/postgres:cc": 1,
			"value: registry.example.com:5000/team/runner:bb": 1, "password: czNjcmV0": 1, "name: slipway-database\n": 4,
			"tls.crt: Y2VydAo=": 1, "tls.key: a2V5Cg==": 1, "ca.crt: Y2EK": 1, "ecretName: slipway-tls\n": 1,
		} {
			if got := strings.Count(text, want); got != times {
				t.Errorf("%s: %q stands there %d times, want %d", overlay, want, got, times)
			}
		}
		if strings.Contains(text, "image: slipway.dev/") {
			t.Errorf("%s: an image was left as it stands in the manifests", overlay)
		}
	}
}

const evidenceFinalizer = "slipway.dev/evidence"

func TestReleaseDeletesOurJobsAndLetsOurPodsGoAndNobodyElses(t *testing.T) {
	ours := map[string]string{"app.kubernetes.io/managed-by": "slipway"}
	pod := func(name string, labels map[string]string, finalizers ...string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: name, Labels: labels, Finalizers: finalizers}}
	}
	job := func(name string, labels map[string]string) *batchv1.Job {
		return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: name, Labels: labels}}
	}
	c := &cluster{api: fake.NewClientset(
		pod("held", ours, "batch.kubernetes.io/job-tracking", evidenceFinalizer), pod("free", ours), pod("other", nil, evidenceFinalizer),
		job("mine", ours), job("theirs", nil),
	)}
	if err := release(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"held": "batch.kubernetes.io/job-tracking", "free": "", "other": evidenceFinalizer} {
		got, err := c.api.CoreV1().Pods(tenant).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil || strings.Join(got.Finalizers, ",") != want {
			t.Errorf("pod %s: %v, %v", name, got.Finalizers, err)
		}
	}
}

func TestTroublesOfSeveralPodsAreOneLine(t *testing.T) {
	waiting := func(reason, message string) corev1.Pod {
		return corev1.Pod{Status: corev1.PodStatus{InitContainerStatuses: []corev1.ContainerStatus{
			{Name: "migrate", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}},
		}}}
	}
	pods := []corev1.Pod{waiting("ErrImagePull", "no such host"), waiting("ImagePullBackOff", "back-off"), waiting("PodInitializing", "")}
	if got, want := troubles(pods), "migrate ImagePullBackOff (2 pods): no such host"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if !noImage(pods) || noImage([]corev1.Pod{waiting("CrashLoopBackOff", "")}) {
		t.Error("a missing image is not told from other trouble")
	}
}

func TestSettingsThatContradictAreRefused(t *testing.T) {
	for _, env := range []map[string]string{
		{"CLUSTER": "mine", "IMAGE_REGISTRY": ""}, {"CLUSTER": "", "IMAGE_REGISTRY": "registry.example.com"},
	} {
		for name, value := range env {
			t.Setenv(name, value)
		}
		if err := run(t.Context(), nil, &bytes.Buffer{}); err == nil {
			t.Errorf("%v was taken", env)
		}
	}
	t.Setenv("CLUSTER", "")
	t.Setenv("IMAGE_REGISTRY", "")
	if err := run(t.Context(), []string{"sideways"}, &bytes.Buffer{}); err == nil {
		t.Error("an unknown command was taken")
	}
}
