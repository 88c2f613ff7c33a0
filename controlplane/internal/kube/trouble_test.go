package kube

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"slipway.dev/slipway/e2e/proxy"
	"slipway.dev/slipway/pkg/task"
)

// troubled is a Client of a server that answers every request in one way.
func troubled(t *testing.T, answer http.HandlerFunc) *Client {
	t.Helper()
	s := httptest.NewTLSServer(answer)
	s.Config.ErrorLog = nil
	t.Cleanup(s.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return paperClient(t, func(cfg *Config) {
		cfg.REST = &rest.Config{Host: s.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
		cfg.Timeout = 2 * time.Second
	})
}

// answers writes with a Status; cause names what made it, where not empty.
func answers(code int, reason metav1.StatusReason, after int, cause metav1.CauseType) http.HandlerFunc {
	body := proxy.APIStatus(code, string(reason), after).Body
	if cause != "" {
		body = strings.TrimSuffix(body, "}") + fmt.Sprintf(`,"details":{"causes":[{"reason":%q}]}}`, cause)
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if after > 0 {
			w.Header().Set("Retry-After", fmt.Sprint(after))
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

func halfBody(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", "1000")
	_, _ = io.WriteString(w, `{"kind":"Job",`)
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

func resetConn(w http.ResponseWriter, _ *http.Request) {
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	if raw, ok := c.(interface{ NetConn() net.Conn }); ok {
		_ = raw.NetConn().(*net.TCPConn).SetLinger(0)
	}
	_ = c.Close()
}

// What each class of answer means: for a create a cause, for the other calls whether anything is known after it.
func TestEachAnswerOfTheServerMeansWhatItSays(t *testing.T) {
	const no, gone, known = "unavailable", "gone", "an error"
	namespaceGone := answers(404, metav1.StatusReasonNotFound, 0, "")
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		create task.RefusalCause
		after  time.Duration
		read   string // get
		list   string // list and log
		write  string // patch and delete
	}{
		"401":                    {answers(401, metav1.StatusReasonUnauthorized, 0, ""), task.RefusedUnavailable, 0, no, no, no},
		"403":                    {answers(403, metav1.StatusReasonForbidden, 0, ""), task.RefusedUnknown, 0, known, known, known},
		"403 terminating":        {answers(403, metav1.StatusReasonForbidden, 0, corev1.NamespaceTerminatingCause), task.RefusedNamespace, 0, known, known, known},
		"404":                    {namespaceGone, task.RefusedUnknown, 0, gone, known, gone},
		"409":                    {answers(409, metav1.StatusReasonConflict, 0, ""), task.RefusedUnknown, 0, known, known, gone},
		"409 exists, not read":   {answers(409, metav1.StatusReasonAlreadyExists, 0, ""), task.RefusedUnavailable, 0, known, known, known},
		"410":                    {answers(410, metav1.StatusReasonExpired, 0, ""), task.RefusedUnknown, 0, known, known, known},
		"413":                    {answers(413, metav1.StatusReasonRequestEntityTooLarge, 0, ""), task.RefusedInvalid, 0, known, known, known},
		"422":                    {answers(422, metav1.StatusReasonInvalid, 0, ""), task.RefusedInvalid, 0, known, known, known},
		"429":                    {answers(429, metav1.StatusReasonTooManyRequests, 0, ""), task.RefusedUnavailable, 0, no, no, no},
		"429, longer than given": {answers(429, metav1.StatusReasonTooManyRequests, 30, ""), task.RefusedUnavailable, 30 * time.Second, no, no, no},
		"429, soon":              {answers(429, metav1.StatusReasonTooManyRequests, 1, ""), task.RefusedUnavailable, time.Second, no, no, no},
		"500":                    {answers(500, metav1.StatusReasonInternalError, 0, ""), task.RefusedUnavailable, 0, no, no, no},
		"502 of somebody else": {
			func(w http.ResponseWriter, _ *http.Request) {
				http.Error(w, "<html>bad gateway", http.StatusBadGateway)
			},
			task.RefusedUnavailable, 0, no, no, no,
		},
		"503":         {answers(503, metav1.StatusReasonServiceUnavailable, 7, ""), task.RefusedUnavailable, 7 * time.Second, no, no, no},
		"504":         {answers(504, metav1.StatusReasonTimeout, 0, ""), task.RefusedUnavailable, 0, no, no, no},
		"reset":       {resetConn, task.RefusedUnavailable, 0, no, no, no},
		"half a body": {halfBody, task.RefusedUnavailable, 0, no, no, no},
		"no answer": {func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // only then a client that leaves is noticed
			<-r.Context().Done()
		}, task.RefusedUnavailable, 0, no, no, no},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := troubled(t, c.answer)
			tk, a := paperAttempt()
			_, _, err := client.Launch(t.Context(), tk, a)
			if r := wantRefusal(t, err, c.create); r.RetryAfter != c.after {
				t.Errorf("create: to be tried again after %v, want %v", r.RetryAfter, c.after)
			}
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p", UID: "u"}}
			_, err = client.PodOf(t.Context(), "shop", "p", "u")
			wantMeaning(t, "get", err, c.read)
			_, err = client.Observe(t.Context(), a, true)
			wantMeaning(t, "list", err, c.list)
			if name != "half a body" { // no end of a log is an outcome
				_, err = client.stream(t.Context(), pod, &corev1.PodLogOptions{})
				wantMeaning(t, "log", err, c.list)
			}
			wantMeaning(t, "delete", client.deleteJob(t.Context(), &batchv1.Job{ObjectMeta: pod.ObjectMeta}), c.write)
			wantMeaning(t, "patch", client.patchPod(t.Context(), pod, types.MergePatchType, "{}"), c.write)
		})
	}
}

func writeJob(w http.ResponseWriter, job *batchv1.Job) {
	w.Header().Set("Content-Type", "application/json")
	raw, err := json.Marshal(job)
	if err != nil {
		panic(err)
	}
	_, _ = w.Write(raw)
}

func wantMeaning(t *testing.T, call string, err error, want string) {
	t.Helper()
	got := "an error"
	switch {
	case err == nil, errors.Is(err, task.ErrNotFound):
		got = "gone"
	case errors.Is(err, task.ErrUnavailable):
		got = "unavailable"
	}
	if got != want {
		t.Errorf("%s: %s (%v), want %s", call, got, err, want)
	}
}

func TestACertificateThatNobodyTrustsIsUnavailable(t *testing.T) {
	s := httptest.NewTLSServer(http.NotFoundHandler())
	defer s.Close()
	s.Config.ErrorLog = nil
	c := paperClient(t, func(cfg *Config) { cfg.REST = &rest.Config{Host: s.URL} })
	tk, a := paperAttempt()
	_, _, err := c.Launch(t.Context(), tk, a)
	wantRefusal(t, err, task.RefusedUnavailable, "certificate")
}

func TestAJobWhoseAnswerWasLostIsAdopted(t *testing.T) {
	var creates atomic.Int64
	tk, a := paperAttempt()
	var made *batchv1.Job
	c := troubled(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodGet:
			writeJob(w, made)
		case creates.Add(1) == 1:
			halfBody(w, r)
		default:
			answers(409, metav1.StatusReasonAlreadyExists, 0, "")(w, r)
		}
	})
	made, err := c.job(tk, a)
	if err != nil {
		t.Fatal(err)
	}
	made.UID, made.TypeMeta = "made", metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"}
	_, _, err = c.Launch(t.Context(), tk, a)
	wantRefusal(t, err, task.RefusedUnavailable)
	if _, uid, err := c.Launch(t.Context(), tk, a); err != nil || uid != "made" {
		t.Errorf("the second try gave %q, %v", uid, err)
	}
}

// lines keeps what is logged.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements io.Writer.
func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewJSONHandler(l, nil)) }

func (l *lines) count(message string) int {
	return strings.Count(l.String(), fmt.Sprintf(`"msg":%q`, message))
}

// token is one of the control plane's own account.
func (s *apiServer) token(t *testing.T) string {
	t.Helper()
	ctx, account := t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "slipway"}}
	_, _ = s.api.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "slipway-system"}}, metav1.CreateOptions{})
	_, _ = s.api.CoreV1().ServiceAccounts("slipway-system").Create(ctx, account, metav1.CreateOptions{}) // both may be there
	answer := have(s.api.CoreV1().ServiceAccounts("slipway-system").CreateToken(ctx, "slipway", &authenticationv1.TokenRequest{}, metav1.CreateOptions{}))(t)
	return answer.Status.Token
}

// behind is a rig whose Client reaches the API server through a fault proxy.
func behind(t *testing.T, change ...func(*Config)) (*rig, *proxy.API) {
	t.Helper()
	server.start(t)
	api, err := proxy.NewAPI(t.Context(), proxy.APIOptions{Server: server.admin.Host, Authority: server.admin.CAData, Host: "127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(api.Close)
	r := newRig(t, append(change, func(cfg *Config) {
		cfg.REST = &rest.Config{
			Host: api.URL(), BearerToken: server.token(t), TLSClientConfig: rest.TLSClientConfig{CAData: api.CA()},
		}
	})...)
	return r, api
}

func TestSilenceIsFoundWithinItsBound(t *testing.T) {
	for what, fault := range map[string]proxy.APIFault{
		"of the connection":                   {Action: proxy.APISilentConnections},
		"of a watch whose connection is well": {Action: proxy.APISilentRequests, Match: proxy.APIMatch{Verbs: []string{"watch"}}},
	} {
		t.Run(what, func(t *testing.T) {
			r, api := behind(t, func(cfg *Config) { cfg.Renew = 6 * time.Second })
			_, a, pod := r.launch()
			r.bind(pod)
			r.running(pod)
			if gap := r.client.Gap(); gap != 0 {
				t.Errorf("a gap of %v before there is one", gap)
			}
			began := time.Now()
			api.Add(fault)
			r.tell(pod, corev1.PodFailed, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error"}})
			within(t, 30*time.Second, "word of the gap", func(context.Context) bool { return r.client.Gap() > 0 })
			t.Logf("found after %v", time.Since(began).Round(100*time.Millisecond))
			if s := r.observe(a, false); len(s.Pods) != 1 || s.Pods[0].Ended() {
				t.Errorf("the silence let something through: %+v", s)
			}
			api.Clear()
			within(t, 30*time.Second, "end of the pod in the cache", func(context.Context) bool {
				s := r.observe(a, false)
				return len(s.Pods) == 1 && s.Pods[0].Ended() && r.client.Gap() == 0
			})
		})
	}
}

func TestAnOlderEventChangesNothing(t *testing.T) {
	r, api := behind(t)
	_, a, pod := r.launch()
	r.bind(pod)
	r.running(pod)
	r.ends(pod, corev1.ContainerStateTerminated{ExitCode: 0, Reason: "Completed"})
	remove := api.Add(proxy.APIFault{Action: proxy.APIOlderEvent, Match: proxy.APIMatch{Resources: []string{"pods"}}})
	is := r.fresh(pod)
	for i := range 20 { // each of these events is followed by an older one
		is.Annotations = map[string]string{"n": fmt.Sprint(i)}
		is = have(server.api.CoreV1().Pods(r.namespace).Update(t.Context(), is, metav1.UpdateOptions{}))(t)
	}
	within(t, 20*time.Second, "older events", func(context.Context) bool { return api.Counts()["api_older_event"] >= 20 })
	remove()
	_, b, _ := r.launch() // its events come after all of those
	if s := r.observe(a, false); len(s.Pods) != 1 || !s.Pods[0].Ended() {
		t.Errorf("the cache went back: %+v", s.Pods)
	}
	if cached := r.client.cache.pod(pod.Namespace, pod.Name); cached == nil || cached.ResourceVersion != is.ResourceVersion {
		t.Errorf("the cache shows %v, want version %s", cached, is.ResourceVersion)
	}
	r.observe(b, false)
}

func TestAnExpiredWatchIsFollowedByAFreshListAndOneLine(t *testing.T) {
	var told lines
	r, api := behind(t, func(cfg *Config) { cfg.Renew, cfg.Log = time.Second, told.logger() })
	watch := proxy.APIMatch{Verbs: []string{"watch"}}
	api.Add(proxy.APIFault{Action: proxy.APIReply, Answer: proxy.APIStatus(410, "Expired", 0), Match: watch, Times: 2})
	api.Add(proxy.APIFault{Action: proxy.APIExpiredEvent, Match: watch, Times: 2})
	within(t, 20*time.Second, "four expired watches", func(context.Context) bool {
		n := api.Counts()
		return n["api_reply_410"] == 2 && n["api_expired_event"] == 2
	})
	_, _, pod := r.launch()
	r.bind(pod)
	r.running(pod)
	within(t, 20*time.Second, "the end of the gap", func(context.Context) bool { return r.client.Gap() == 0 })
	// The stream under an answer breaks off too, which a slow machine hears as a gap of its own.
	const answers = 4
	expired, begun, ended := strings.Count(told.String(), "a fault: Expired"), told.count("the cluster is not heard"), told.count("the cluster is heard again")
	if expired == 0 || expired > answers || begun > 2*answers || ended != begun {
		t.Errorf("%d gaps begun, %d of them expired, and %d ended are told for %d answers:\n%s", begun, expired, ended, answers, told.String())
	}
}
