package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/pkg/task"
)

// Identity is who a token belongs to, as TokenReview says.
type Identity struct {
	User, UID string
	Groups    []string
	Extra     map[string][]string
	// The pod that the token is bound to, where it is.
	Namespace, PodName, PodUID, Node string
}

// Keys of Identity.Extra that name the pod of a bound service-account token.
const (
	extraPodName = "authentication.kubernetes.io/pod-name"
	extraPodUID  = "authentication.kubernetes.io/pod-uid"
	extraNode    = "authentication.kubernetes.io/node-name"
)

// ReviewToken asks whose token it is; ok is false for one that is not valid for the audience.
func (c *Client) ReviewToken(ctx context.Context, token, audience string) (id Identity, ok bool, err error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	review, err := c.api.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{audience}},
	}, metav1.CreateOptions{})
	if err != nil {
		return Identity{}, false, unreached(fmt.Errorf("review a token: %w", err))
	}
	if !review.Status.Authenticated || !slices.Contains(review.Status.Audiences, audience) {
		return Identity{}, false, nil
	}
	user := review.Status.User
	id = Identity{User: user.Username, UID: user.UID, Groups: user.Groups, Extra: map[string][]string{}}
	for key, values := range user.Extra {
		id.Extra[key] = values
	}
	id.PodName, id.PodUID, id.Node = first(id.Extra[extraPodName]), first(id.Extra[extraPodUID]), first(id.Extra[extraNode])
	if account, found := strings.CutPrefix(user.Username, "system:serviceaccount:"); found && id.PodUID != "" {
		id.Namespace, _, _ = strings.Cut(account, ":")
	}
	return id, true, nil
}

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// Access is one thing that somebody wants to do.
type Access struct {
	Verb, Group, Resource, Subresource, Name, Namespace string
}

// Allowed asks whether somebody may do something, and why, where the server says so.
func (c *Client) Allowed(ctx context.Context, id Identity, a Access) (allowed bool, reason string, err error) {
	extra := map[string]authorizationv1.ExtraValue{}
	for key, values := range id.Extra {
		extra[key] = values
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	review, err := c.api.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: id.User, UID: id.UID, Groups: id.Groups, Extra: extra,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: a.Verb, Group: a.Group, Resource: a.Resource, Subresource: a.Subresource, Name: a.Name, Namespace: a.Namespace,
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, "", unreached(fmt.Errorf("review access: %w", err))
	}
	return review.Status.Allowed && !review.Status.Denied, review.Status.Reason, nil
}

// PodLabels is which Attempt a pod belongs to.
type PodLabels struct {
	TaskID         string
	Attempt, Fence int64
}

// PodOf reads which Attempt a pod of this Slipway belongs to: from the cache, else from the server. A pod of another uid,
// or of nobody here, is task.ErrNotFound.
func (c *Client) PodOf(ctx context.Context, namespace, name, uid string) (PodLabels, error) {
	pod := c.cache.pod(namespace, name)
	if pod == nil || string(pod.UID) != uid {
		var err error
		if pod, err = c.readPod(ctx, namespace, name); err != nil {
			return PodLabels{}, err
		}
	}
	attempt, fence, ours := c.attemptOf(pod)
	if !ours || string(pod.UID) != uid {
		return PodLabels{}, fmt.Errorf("read pod %s/%s: %w", namespace, name, task.ErrNotFound)
	}
	return PodLabels{TaskID: pod.Labels[LabelTask], Attempt: attempt, Fence: fence}, nil
}

func (c *Client) readPod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	pod, err := c.api.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("read pod %s/%s: %w", namespace, name, task.ErrNotFound)
	case err != nil:
		return nil, unreached(fmt.Errorf("read pod %s/%s: %w", namespace, name, err))
	}
	return pod, nil
}

func (all *cached) pod(namespace, name string) *corev1.Pod {
	in := or(all.pods[namespace], all.pods[""])
	if in == nil {
		return nil
	}
	obj, _, err := in.GetStore().GetByKey(namespace + "/" + name)
	if err != nil {
		return nil
	}
	pod, _ := obj.(*corev1.Pod) // nil for what is not there
	return pod
}
