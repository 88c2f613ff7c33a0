// Package archive builds Slipway's images without a container engine: static programs compiled here and files of this
// machine's Debian packages, put together as docker archives. The same inputs give the same bytes: times are fixed, and
// the tag is a hash of the content, so an image that has not changed is neither built, loaded nor rolled out again.
//
// Allowed imports: the standard library, go-containerregistry, e2e/packages and e2e/postgres.
package archive
