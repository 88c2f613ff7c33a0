package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/pkg/api"
	"slipway.dev/slipway/pkg/client"
)

// Bounds of the one Task.
const (
	taskWithin   = 3 * time.Minute
	submitWithin = 30 * time.Second
	tokenSeconds = 600
)

// show submits a Task, waits for its end, prints what Slipway and the cluster say of it, and has a schedule fire twice.
func show(ctx context.Context, s settings, c *cluster, log *progress) error {
	way := &tunnel{cluster: c}
	defer way.close()
	slipway, err := user(ctx, c, way)
	if err != nil {
		return err
	}
	submitted, err := submit(ctx, slipway, s.mark)
	if err != nil {
		return err
	}
	log.say("task %s submitted", submitted.ID)
	ended, err := follow(ctx, slipway, submitted.ID, log)
	if err != nil {
		return err
	}
	if err := evidence(ctx, s, c, log, ended); err != nil {
		return err
	}
	took := ended.EndedAt.Sub(ended.CreatedAt).Seconds()
	log.print("\ntask %s %s in %.1fs\n", ended.ID, ended.State, took)
	if ended.State != api.StateSucceeded {
		return fmt.Errorf("the task ended as %s: %s %s", ended.State, ended.Reason, ended.Message)
	}
	if err := timed(ctx, slipway, log); err != nil {
		return err
	}
	log.print("%s", goOn(c))
	return nil
}

// user is a client of Slipway's API that calls as the account demo-user.
func user(ctx context.Context, c *cluster, way *tunnel) (*client.ClientWithResponses, error) {
	seconds := int64(tokenSeconds)
	token, err := c.api.CoreV1().ServiceAccounts(tenant).CreateToken(ctx, "demo-user", &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{Audiences: []string{"slipway"}, ExpirationSeconds: &seconds},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("ask for a token of account demo-user: %w", err)
	}
	transport, err := way.verified(ctx)
	if err != nil {
		return nil, err
	}
	return client.NewClientWithResponses("https://"+serviceName+":8080/", client.WithHTTPClient(transport),
		client.WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
			r.Header.Set("Authorization", "Bearer "+token.Status.Token)
			return nil
		}))
}

// submit asks for a command that prints the mark. Under one idempotency key it may be sent again until it is answered.
func submit(ctx context.Context, slipway *client.ClientWithResponses, mark string) (*api.Task, error) {
	key, err := random(16)
	if err != nil {
		return nil, err
	}
	params, err := json.Marshal(map[string]any{"command": []string{"sh", "-c", `echo "hello from $SLIPWAY_TASK"; echo "$MARK"`}, "env": map[string]string{"MARK": mark}})
	if err != nil {
		return nil, fmt.Errorf("write the parameters: %w", err)
	}
	body := api.SubmitTask{Kind: "command.run", Namespace: tenant, Name: "demonstration", Params: params}
	ctx, cancel := context.WithTimeout(ctx, submitWithin)
	defer cancel()
	for {
		answer, err := slipway.SubmitTaskWithResponse(ctx, &api.SubmitTaskParams{IdempotencyKey: &key}, body)
		switch {
		case err == nil && answer.JSON201 != nil:
			return answer.JSON201, nil
		case err == nil && answer.JSON200 != nil:
			return answer.JSON200, nil
		case err == nil && answer.StatusCode() < 500:
			return nil, fmt.Errorf("submit a task: answer %s: %s", answer.Status(), bytes.TrimSpace(answer.Body))
		case err == nil:
			err = fmt.Errorf("answer %s: %s", answer.Status(), bytes.TrimSpace(answer.Body))
		}
		if !sleep(ctx, time.Second) {
			return nil, fmt.Errorf("submit a task: %w", err)
		}
	}
}

// follow reads the Task until it has ended and tells each phase.
func follow(ctx context.Context, slipway *client.ClientWithResponses, id string, log *progress) (*api.Task, error) {
	ctx, cancel := context.WithTimeout(ctx, taskWithin)
	defer cancel()
	var said string
	var last error
	for {
		answer, err := slipway.GetTaskWithResponse(ctx, id)
		switch {
		case err != nil:
			last = err
		case answer.JSON200 == nil:
			last = fmt.Errorf("answer %s: %s", answer.Status(), bytes.TrimSpace(answer.Body))
		default:
			t := answer.JSON200
			line := string(t.Phase)
			if t.Waiting != nil {
				line += " for " + strings.TrimSpace(t.Waiting.Reason+" "+t.Waiting.Note)
			}
			if line != said {
				said = line
				log.say("task %s: %s", id, line)
			}
			if t.State != api.StateQueued && t.State != api.StateRunning {
				return t, nil
			}
			last = errors.New("it is " + line)
		}
		if !sleep(ctx, lookEvery) {
			return nil, fmt.Errorf("wait for task %s: %w", id, last)
		}
	}
}

// evidence prints the Task, its log as kubectl reads it, and the uids as the cluster has them, and checks that the two
// sides agree.
func evidence(ctx context.Context, s settings, c *cluster, log *progress, t *api.Task) error {
	text, err := json.MarshalIndent(t, "", "  ")
	if err != nil {
		return fmt.Errorf("write the task: %w", err)
	}
	log.print("\n%s\n", text)
	if t.Attempt == nil || t.Attempt.Job == nil {
		return fmt.Errorf("task %s ended without a Job: %s %s", t.ID, t.Reason, t.Message)
	}
	name := t.Attempt.Job.Name
	job, err := c.api.BatchV1().Jobs(tenant).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("look at the Job: %w", err)
	}
	pods, err := c.api.CoreV1().Pods(tenant).List(ctx, metav1.ListOptions{LabelSelector: "batch.kubernetes.io/job-name=" + name})
	if err != nil {
		return fmt.Errorf("look at the Job's pods: %w", err)
	}
	logs, err := c.kubectlRun(ctx, nil, "-n", tenant, "logs", "job/"+name)
	if err != nil {
		return err
	}
	log.print("\n$ kubectl -n %s logs job/%s\n%s\n", tenant, name, logs)
	log.print("Job %s uid %s\n", name, job.UID)
	seen := false
	for _, pod := range pods.Items {
		log.print("pod %s uid %s\n", pod.Name, pod.UID)
		seen = seen || t.Attempt.Pod != nil && string(pod.UID) == t.Attempt.Pod.UID
	}
	switch {
	case string(job.UID) != t.Attempt.Job.UID:
		return fmt.Errorf("the task names Job uid %q, the cluster has %q", t.Attempt.Job.UID, job.UID)
	case !seen:
		return errors.New("the cluster does not have the pod that the task names")
	case !strings.Contains(logs, s.mark):
		return fmt.Errorf("the log of job/%s does not hold %s", name, s.mark)
	}
	return nil
}

// goOn says what one can do next.
func goOn(c *cluster) string {
	kubectl, down := "kubectl", "CLUSTER=current make down"
	if c.local != nil {
		kubectl, down = c.kubectl+" --kubeconfig "+c.kubeconfig, "make down"
	}
	return fmt.Sprintf(`
Go on:
  %[1]s -n %[2]s get jobs,pods
  %[1]s -n %[3]s logs -l app.kubernetes.io/name=slipway -f
  make demo    again, with another mark
  %[4]s    removes everything
`, kubectl, tenant, system, down)
}
