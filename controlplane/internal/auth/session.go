package auth

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
)

// Session is what a session key is good for.
type Session struct {
	Attempt, Fence int64
	PodUID         string
}

// Key makes the session key of s.
func (s Session) Key(secret []byte) string {
	mac := hmac.New(sha256.New, secret)
	_, _ = fmt.Fprintf(mac, "%d/%d/%s", s.Attempt, s.Fence, s.PodUID) // a hash never refuses a write
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// Check returns ErrNoIdentity where key is not the key of s.
func (s Session) Check(secret []byte, key string) error {
	if len(secret) == 0 || !hmac.Equal([]byte(key), []byte(s.Key(secret))) {
		return ErrNoIdentity
	}
	return nil
}
