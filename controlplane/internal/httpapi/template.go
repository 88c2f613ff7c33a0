package httpapi

import (
	"context"
	"encoding/json"
	"fmt"

	"slipway.dev/slipway/controlplane/internal/auth"
	"slipway.dev/slipway/controlplane/internal/kinds"
	"slipway.dev/slipway/pkg/api"
)

// BuildTemplate makes the Task that a fire of a schedule is, by the kinds of now; found is what Selected found. It is pure.
// The error is a *kinds.InvalidError with pointers into the template.
func BuildTemplate(all *kinds.Registry, namespace string, template json.RawMessage, found []string) (Item, error) {
	item, _, err := buildTemplate(all, namespace, template, found)
	return item, err
}

func buildTemplate(all *kinds.Registry, namespace string, template json.RawMessage, found []string) (Item, []want, error) {
	var t api.SubmitTask
	if err := json.Unmarshal(template, &t); err != nil {
		return Item{}, nil, refuseField("", "cannot be read")
	}
	t.Namespace = namespace
	in := intake{tasks: []api.SubmitTask{t}, at: func(int) string { return "" }, found: map[int][]string{0: found}}
	b, err := (&server{kinds: all}).build(in)
	if err != nil {
		return Item{}, nil, err
	}
	return b.Items[0], append(in.wants(), b.planned...), nil
}

// anyClaim stands for what a selector matches where only rights and rules are looked at: a schedule may be made before its
// volumes are.
var anyClaim = []string{"any"}

// MayFire asks whether somebody may have such a Task made: the rights of a submit.
func MayFire(ctx context.Context, gate Gate, who auth.Identity, all *kinds.Registry, namespace string, template json.RawMessage) error {
	item, wants, err := buildTemplate(all, namespace, template, anyClaim)
	if err != nil {
		return err
	}
	r := rights{gate}
	if err := r.mayCreate(ctx, who, wants); err != nil {
		return err
	}
	return r.mayChooseFreely(ctx, who, []Item{item})
}

// storedIdentity is who a schedule fires as. The token is not kept.
type storedIdentity struct {
	User   string              `json:"user"`
	UID    string              `json:"uid,omitempty"`
	Groups []string            `json:"groups,omitempty"`
	Extra  map[string][]string `json:"extra,omitempty"`
}

func keepIdentity(id auth.Identity) (json.RawMessage, error) {
	raw, err := json.Marshal(storedIdentity{User: id.User, UID: id.UID, Groups: id.Groups, Extra: id.Extra})
	if err != nil {
		return nil, fmt.Errorf("write an identity: %w", err)
	}
	return raw, nil
}

// ownRights are those of a schedule that Slipway has made for its own upkeep. Only who is no user can have them: what a
// request stores are a user's.
const ownRights = `{"own": true}`

// OwnRights are the rights of Slipway's own schedules; a change by somebody gives them that user's.
func OwnRights() json.RawMessage { return json.RawMessage(ownRights) }

// IsOwn tells them.
func IsOwn(raw json.RawMessage) bool {
	var kept struct {
		User string `json:"user"`
		Own  bool   `json:"own"`
	}
	return json.Unmarshal(raw, &kept) == nil && kept.Own && kept.User == ""
}

// KeptIdentity reads who a schedule fires as; ok is false where that is nobody.
func KeptIdentity(raw json.RawMessage) (who auth.Identity, ok bool) {
	var id storedIdentity
	if err := json.Unmarshal(raw, &id); err != nil || id.User == "" {
		return auth.Identity{}, false
	}
	return auth.Identity{User: id.User, UID: id.UID, Groups: id.Groups, Extra: id.Extra}, true
}
