// Package kube is all that the control plane does in a cluster: it builds and creates Jobs, watches them and their pods,
// shows what is there as a task.Seen, stops, closes and cleans up, and asks Kubernetes who somebody is and what they may
// do. It decides nothing about outcomes.
//
// Every call has a time-out; writes are creates, deletes with a uid precondition, and patches. What is read from the cache
// is stripped and never written back.
//
// A connection that went silent is found within 15 s: HTTP/2 pings after 10 s of silence and waits 5 s for the answer.
// The server is told to end each watch after half a minute, give or take a quarter; one that has not ended 11 s later is
// given up, so a server that answers pings and sends nothing is found within 50 s. SyncAge tells how long the quietest
// watch has been silent, Gap for how long one is known to be broken. An event that is older than one before it on the
// same watch changes nothing.
//
// Token and authority are read from their files again: every minute and every five minutes, and at once when the API
// server refuses the token, or its certificate is not trusted.
//
// The rights it needs, and all that manifests may give. In each namespace where Jobs run:
//
//	apiGroup               resource               verbs
//	batch                  jobs                   create get list watch patch delete
//	""                     pods                   create (dry run only) get list watch patch delete
//	""                     pods/log               get
//	""                     resourcequotas         list
//	""                     persistentvolumeclaims get list (for the uid in an Event, before a Task about one is taken, to find what a selector matches, and to hold limits of storage)
//	events.k8s.io          events                 create
//
// In the cluster:
//
//	authentication.k8s.io  tokenreviews           create
//	authorization.k8s.io   subjectaccessreviews   create
//	""                     nodes                  get
//	storage.k8s.io         storageclasses         get
//	storage.k8s.io         volumeattributesclasses get
//	snapshot.storage.k8s.io volumesnapshotclasses get
//
// A Node is read only where a pod has not ended and nothing more is heard of it: whether the Node is deleted or tainted
// as out of service. Without that right nothing is known of nodes, and nothing else changes.
//
// Classes of storage are read when a Task about a volume is submitted. Without these rights it is taken, and its handler
// finds out.
//
// Allowed imports: pkg/task, controlplane/internal/loop, client-go and what comes with it.
package kube
