// Package volumes tries the handlers of the kinds volume.* on a real API server, each under the service account that the
// manifests give it. There is no driver: the test plays the resizer, the kubelet and the snapshot controller by writing
// what they would write. What a real driver does is in e2e/cases.
package volumes
