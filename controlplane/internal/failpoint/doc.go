// Package failpoint marks places where a test can make the process fail: killed, asleep or in a panic. It does
// something only in binaries built with the tag `failpoints`; in all others a mark costs nothing.
//
// Allowed imports: the standard library.
package failpoint
