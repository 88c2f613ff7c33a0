// Package app makes one control plane of the parts: it reads the configuration, joins the packages through the small
// interfaces that each of them declares, starts everything in order and ends it in the reverse order.
//
// It is the only package that knows store, kube, dispatch, reconcile and httpapi at the same time. What stands between
// two of them is in the files named …port.go: conversions, no decisions.
//
// Allowed imports: everything below controlplane/internal and pkg.
package app
