package auth

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"slipway.dev/slipway/pkg/task"
)

// Group is the API group of Slipway's permissions.
const Group = "slipway.dev"

// The audiences.
const (
	UserAudience   = "slipway"
	RunnerAudience = "slipway-runner"
)

// Identity is who a token belongs to.
type Identity struct {
	User, UID string
	Groups    []string
	Extra     map[string][]string
	// The pod that the token is bound to, where it is.
	Namespace, PodName, PodUID, Node string

	// renew waits for who it is now, where nobody could be asked at once: it is what was answered before then, and good
	// for reading.
	renew func(context.Context) (Identity, error)
}

// Access is one thing that somebody wants to do.
type Access struct {
	Verb, Group, Resource, Subresource, Name, Namespace string
}

// String names the access as RBAC would: `create tasks/cancel.slipway.dev in namespace shop`.
func (a Access) String() string {
	what := a.Resource
	if a.Subresource != "" {
		what += "/" + a.Subresource
	}
	if a.Group != "" {
		what += "." + a.Group
	}
	if a.Name != "" {
		what += " " + a.Name
	}
	if a.Namespace == "" {
		return a.Verb + " " + what + " in all namespaces"
	}
	return a.Verb + " " + what + " in namespace " + a.Namespace
}

// ErrNoIdentity says that there is no token, or none that is good here. Where nobody could be asked, errors wrap
// task.ErrUnavailable.
var ErrNoIdentity = errors.New("no valid token")

// ForbiddenError says what the caller may not do, and Or what would have done as well, where something would.
type ForbiddenError struct{ Access, Or Access }

// Error names verb, resource and namespace.
func (e *ForbiddenError) Error() string {
	text := "not allowed to " + e.Access.String()
	if e.Or != (Access{}) {
		text += ", nor to " + e.Or.String()
	}
	return text
}

// Reviewer asks Kubernetes who a token belongs to; ok is false for a token that is not good for the audience.
type Reviewer interface {
	ReviewToken(ctx context.Context, token, audience string) (id Identity, ok bool, err error)
}

// Accessor asks Kubernetes whether somebody may do something.
type Accessor interface {
	Allowed(ctx context.Context, id Identity, a Access) (bool, error)
}

// Config is what a Gate needs.
type Config struct {
	Reviewer Reviewer
	Accessor Accessor
	// Audiences are tried in turn for users; empty means UserAudience.
	Audiences []string
	// Keep is how long an answer is good, at most and by default ten seconds.
	Keep time.Duration
	// Outage is how old an answer may be, and still good for reading, while nobody can be asked; 0: no older than Keep.
	Outage time.Duration
}

// Bounds of a Gate.
const (
	maxKeep     = 10 * time.Second
	askTimeout  = 10 * time.Second
	maxAnswers  = 10_000
	maxTokenLen = 16 << 10
)

// Gate answers who is calling and whether they may.
type Gate struct {
	reviewer  Reviewer
	accessor  Accessor
	audiences []string
	users     *answers[[sha256.Size]byte, Identity]
	rights    *answers[string, bool]
}

// New makes a Gate.
func New(c Config) *Gate {
	if len(c.Audiences) == 0 {
		c.Audiences = []string{UserAudience}
	}
	if c.Keep <= 0 || c.Keep > maxKeep {
		c.Keep = maxKeep
	}
	return &Gate{
		reviewer: c.Reviewer, accessor: c.Accessor, audiences: c.Audiences,
		users:  newAnswers[[sha256.Size]byte, Identity](c.Keep, c.Outage),
		rights: newAnswers[string, bool](c.Keep, c.Outage),
	}
}

// User says which user a token belongs to.
func (g *Gate) User(ctx context.Context, token string) (Identity, error) {
	if token == "" || len(token) > maxTokenLen || slices.Contains(audiencesOf(token), RunnerAudience) {
		return Identity{}, ErrNoIdentity
	}
	key := sha256.Sum256([]byte(token))
	review := func(ctx context.Context) (Identity, error) {
		for _, audience := range g.audiences {
			id, ok, err := g.reviewer.ReviewToken(ctx, token, audience)
			if err != nil {
				return Identity{}, fmt.Errorf("review a token: %w: %w", task.ErrUnavailable, err)
			}
			if ok && id.User != "" {
				return id, nil
			}
		}
		return Identity{}, nil // nobody; kept like any answer
	}
	id, old, err := g.users.get(ctx, key, review)
	if err == nil && (id.User == "" || old && expired(token, time.Now())) {
		return Identity{}, ErrNoIdentity
	}
	if old {
		id.renew = func(ctx context.Context) (Identity, error) { return g.users.fresh(ctx, key, review) }
	}
	return id, err
}

// Runner says which pod a runner's token is bound to. It is asked once an Attempt and never kept.
func (g *Gate) Runner(ctx context.Context, token string) (Identity, error) {
	if token == "" || len(token) > maxTokenLen || g.forUsers(token) {
		return Identity{}, ErrNoIdentity
	}
	id, ok, err := g.reviewer.ReviewToken(ctx, token, RunnerAudience)
	if err != nil {
		return Identity{}, fmt.Errorf("review a runner's token: %w: %w", task.ErrUnavailable, err)
	}
	if !ok || id.PodUID == "" || id.PodName == "" || id.Namespace == "" {
		return Identity{}, ErrNoIdentity
	}
	return id, nil
}

// May returns nil where id may do a, and a ForbiddenError where not. What was answered long ago is good for reading only;
// who wants to write waits for an answer of now, however slow the API server is.
func (g *Gate) May(ctx context.Context, id Identity, a Access) error {
	reading := a.Verb == "get" || a.Verb == "list"
	if !reading && id.renew != nil {
		now, err := id.renew(ctx)
		if err != nil {
			return err
		}
		if id = now; id.User == "" {
			return ErrNoIdentity
		}
	}
	key := fmt.Sprintf("%q %q %q %q %q", id.User, id.UID, a.String(), id.Groups, id.Extra) // maps are printed in order
	review := func(ctx context.Context) (bool, error) {
		ok, err := g.accessor.Allowed(ctx, id, a)
		if err != nil {
			return false, fmt.Errorf("review access: %w: %w", task.ErrUnavailable, err)
		}
		return ok, nil
	}
	var allowed bool
	var err error
	if reading {
		allowed, _, err = g.rights.get(ctx, key, review)
	} else {
		allowed, err = g.rights.fresh(ctx, key, review)
	}
	switch {
	case err != nil:
		return err
	case !allowed:
		return &ForbiddenError{Access: a}
	}
	return nil
}

func (g *Gate) forUsers(token string) bool {
	for _, audience := range audiencesOf(token) {
		if slices.Contains(g.audiences, audience) {
			return true
		}
	}
	return false
}

// claims are what a JWT says of itself.
type claims struct {
	Aud json.RawMessage `json:"aud"`
	Exp float64         `json:"exp"`
}

// claimsOf reads a JWT without checking it; what is none claims nothing. Kubernetes decides what is true.
func claimsOf(token string) (c claims) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return claims{}
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(payload, &c) != nil {
		return claims{}
	}
	return c
}

// expired reports whether a token says that its time is over.
func expired(token string, now time.Time) bool {
	exp := claimsOf(token).Exp
	return exp > 0 && now.After(time.Unix(int64(exp), 0))
}

// audiencesOf reads the audiences that a JWT claims: a token made for both sorts of callers is refused before anybody is
// asked.
func audiencesOf(token string) []string {
	c := claimsOf(token)
	var many []string
	if json.Unmarshal(c.Aud, &many) == nil {
		return many
	}
	var one string
	if json.Unmarshal(c.Aud, &one) == nil {
		return []string{one}
	}
	return nil
}
