package volume

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

// look is shown an object as it is now, nil where there is none, and says whether it has seen enough.
type look func(*unstructured.Unstructured) (enough bool, err error)

// follow shows an object and each change of it, and reads it anew every rereadEvery, until look has seen enough. Trouble
// of the API server, that look met too, is waited out and said; the error is look's, the server's refusal, or the cause
// that ended ctx.
func (w *world) follow(ctx context.Context, from dynamic.ResourceInterface, name string, see look) error {
	for pause := firstPause; ; {
		began := time.Now()
		enough, err := w.lookOn(ctx, from, name, see)
		var passes *troubleError
		switch {
		case errors.As(err, &passes):
			if ctx.Err() == nil {
				w.say(0, 0, "%v", passes)
			}
		case enough || err != nil:
			return err
		}
		if time.Since(began) >= longestPause { // else the watch broke off at once, and may again
			pause = firstPause
		}
		if !wait(ctx, pause) {
			return &stoppedError{cause: context.Cause(ctx), waiting: w.said}
		}
		pause = min(2*pause, longestPause)
	}
}

// lookOn shows an object as it is, and its changes while the watch lasts.
func (w *world) lookOn(ctx context.Context, from dynamic.ResourceInterface, name string, see look) (enough bool, err error) {
	found, err := w.get(ctx, from, name)
	if err != nil {
		return false, again(err)
	}
	if enough, err = see(found); enough || err != nil {
		return enough, err
	}
	return w.watch(ctx, from, name, found, see)
}

// troubleError is trouble that passes.
type troubleError struct{ cause error }

// Error tells it from a refusal.
func (e *troubleError) Error() string {
	if apierrors.IsConflict(e.cause) || missing(e.cause) {
		return "somebody changes it at the same time: " + e.cause.Error()
	}
	return "the API server does not answer: " + e.cause.Error()
}

// Unwrap gives the cause.
func (e *troubleError) Unwrap() error { return e.cause }

// again marks an error of a call after which the object has to be looked at anew: follow waits it out. A refusal stays
// what it is.
func again(err error) error {
	if err == nil || !passing(err) && !apierrors.IsConflict(err) && !missing(err) {
		return err
	}
	return &troubleError{cause: err}
}

// stoppedError is the end of a wait: why it was ended, and what was waited for.
type stoppedError struct {
	cause   error
	waiting string
}

// Error tells what was waited for; the cause is told by who stopped it.
func (e *stoppedError) Error() string { return cmp.Or(e.waiting, e.cause.Error()) }

// Unwrap gives the cause.
func (e *stoppedError) Unwrap() error { return e.cause }

const (
	firstPause   = 200 * time.Millisecond
	longestPause = 5 * time.Second
)

func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// watch shows changes until look has seen enough, or the object is due to be read anew.
func (w *world) watch(ctx context.Context, from dynamic.ResourceInterface, name string, last *unstructured.Unstructured, see look) (enough bool, err error) {
	seconds := int64(rereadEvery.Seconds())
	o := metav1.ListOptions{FieldSelector: "metadata.name=" + name, TimeoutSeconds: &seconds}
	if last != nil {
		o.ResourceVersion = last.GetResourceVersion()
	}
	ctx, cancel := context.WithTimeout(ctx, rereadEvery+callTimeout) // a server that never ends it
	defer cancel()
	stream, err := from.Watch(ctx, o)
	if err != nil {
		return false, again(err)
	}
	defer stream.Stop()
	due := time.NewTimer(rereadEvery)
	defer due.Stop()
	for {
		select {
		case <-ctx.Done():
			return false, nil // the caller tells why
		case <-due.C:
			return false, nil
		case e, open := <-stream.ResultChan():
			if !open || e.Type == watch.Error {
				return false, nil
			}
			seen, is := e.Object.(*unstructured.Unstructured)
			if !is || e.Type == watch.Bookmark || seen.GetName() != name {
				continue
			}
			if e.Type == watch.Deleted {
				seen = nil
			}
			if enough, err := see(seen); enough || err != nil {
				return enough, err
			}
		}
	}
}

func missing(err error) bool { return apierrors.IsNotFound(err) }

// passing tells trouble of the connection or the server from an answer.
func passing(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true // whatever it is, it is not the server's answer
	}
	switch code := status.Status().Code; code {
	case http.StatusTooManyRequests, http.StatusRequestTimeout, http.StatusUnauthorized, http.StatusGone:
		return true
	default:
		return code >= http.StatusInternalServerError
	}
}
