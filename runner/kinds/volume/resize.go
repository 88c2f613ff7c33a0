package volume

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.dev/slipway/pkg/handler"
)

// Sizes is the result of volume.resize: what was asked for, what the device has, and what can be used.
type Sizes struct {
	State     string `json:"state"` // `already met`, `grown`, `grown, completes at next mount`
	Requested string `json:"requested"`
	Allocated string `json:"allocated,omitempty"` // of the device, where Kubernetes tells
	Actual    string `json:"actual"`
	Note      string `json:"note,omitempty"`
}

// resize grows a volume.
func (w *world) resize(ctx context.Context) (any, error) {
	var p struct {
		PVC  string `json:"pvc"`
		Size string `json:"size"`
	}
	if err := w.task.Decode(&p); err != nil {
		return nil, err
	}
	want, err := resource.ParseQuantity(p.Size)
	if err != nil || want.Sign() <= 0 {
		return nil, permanent(handler.ReasonParams, "size %q is no quantity above zero", p.Size)
	}
	g := &growth{world: w, name: p.PVC, want: want}
	result, err := g.grow(ctx)
	if err == nil {
		return result, nil
	}
	return g.takeBack(ctx, err)
}

// growth is one wish for a larger volume.
type growth struct {
	*world
	name string
	want resource.Quantity

	asked bool // the wish stands, or may stand, in the claim
	last  *claim
	pods  string // that have it mounted, as last looked at
}

func (g *growth) grow(ctx context.Context) (any, error) {
	c, err := g.readClaim(ctx, g.name)
	if err != nil {
		return nil, err
	}
	g.last = c
	// One that asks for more than this wish, and has it, was larger before. One that asks for less was rounded up.
	if actual, requested := c.actual(), c.requested(); g.want.Cmp(actual) < 0 && g.want.Cmp(requested) < 0 {
		return nil, permanent(reasonRefused, "PVC %s has %s: a volume cannot shrink to %s", g.name, &actual, &g.want)
	}
	if c.settled() && atLeast(c.actual(), g.want) {
		return g.sizes("already met", ""), nil
	}
	if err := g.ask(ctx); err != nil {
		return nil, err
	}
	step("resize.asked")
	var result any
	err = g.follow(ctx, g.in(claims), g.name, func(found *unstructured.Unstructured) (bool, error) {
		result, err = g.see(ctx, found)
		return result != nil, err
	})
	return result, err
}

// ask writes the wish into the claim, against whoever changes it meanwhile.
func (g *growth) ask(ctx context.Context) error {
	for try := 0; ; try++ {
		c := g.last
		// A wish that is not met and larger than this one is lowered: Kubernetes takes anything above what there is.
		if requested := c.requested(); requested.Cmp(g.want) == 0 || atLeast(c.actual(), g.want) {
			g.asked = requested.Cmp(g.want) == 0
			return nil
		}
		g.asked = true // also if the answer gets lost
		err := g.patch(ctx, g.in(claims), g.name, c.Metadata.ResourceVersion, request(g.want))
		switch {
		case err == nil:
			g.log("asked for %s, the volume has %s", &g.want, quantity(c.actual()))
			return nil
		case apierrors.IsConflict(err) && try < 5:
		case apierrors.IsForbidden(err), apierrors.IsInvalid(err):
			g.asked = false
			return handler.Permanent(fmt.Errorf("ask for %s: %w", &g.want, err), reasonRefused)
		default:
			return fmt.Errorf("ask for %s: %w", &g.want, err)
		}
		if g.last, err = g.readClaim(ctx, g.name); err != nil {
			return err
		}
	}
}

func request(q resource.Quantity) map[string]any {
	return map[string]any{"spec": map[string]any{"resources": map[string]any{"requests": map[string]any{storage: q.String()}}}}
}

// see looks at the claim as it is now: a result or an error says that there is nothing more to wait for.
func (g *growth) see(ctx context.Context, found *unstructured.Unstructured) (any, error) {
	if found == nil {
		return nil, permanent(reasonMissing, "PVC %s was deleted while it grew", g.name)
	}
	c := &claim{}
	if err := read(found, c); err != nil {
		return nil, err
	}
	g.last = c
	if err := c.usable(); err != nil {
		return nil, err
	}
	if c.settled() && atLeast(c.actual(), g.want) {
		return g.sizes("grown", ""), nil
	}
	if requested := c.requested(); requested.Cmp(g.want) < 0 && !atLeast(c.actual(), g.want) {
		return nil, permanent(reasonRefused, "somebody else asks for %s now, less than %s", &requested, &g.want)
	}
	switch c.allocating() {
	case "ControllerResizeInfeasible", "NodeResizeInfeasible":
		if allocated := c.allocated(); !atLeast(allocated, g.want) || allocated.Cmp(g.want) > 0 && c.allocating() == "ControllerResizeInfeasible" {
			break // that was another wish, and the resizer has not looked at this one yet
		}
		return nil, permanent(reasonDriver, "the driver cannot: %s", cmp.Or(g.trouble(ctx), c.allocating()))
	case "NodeResizePending", "":
		if _, pending := c.standing("FileSystemResizePending"); !pending && c.allocating() == "" {
			break
		}
		mounted, err := g.mountedBy(ctx, g.name)
		if err != nil {
			return nil, err
		}
		if g.pods = strings.Join(mounted, ", "); len(mounted) == 0 {
			return g.atNextMount(), nil
		}
	}
	g.tell(ctx)
	return nil, nil
}

// atNextMount is the end of a growth that only a mount can complete.
func (g *growth) atNextMount() Sizes {
	allocated := g.last.allocated()
	if allocated.IsZero() || atLeast(allocated, g.want) {
		return g.sizes("grown, completes at next mount", "")
	}
	// The driver is not asked for more before that.
	return g.sizes("grown, completes at next mount", fmt.Sprintf("%s completes at next mount, %s follows", &allocated, &g.want))
}

func (g *growth) sizes(state, note string) Sizes {
	s := Sizes{State: state, Requested: g.want.String(), Actual: quantity(g.last.actual()), Note: note}
	if allocated := g.last.allocated(); !allocated.IsZero() {
		s.Allocated = allocated.String()
	}
	g.say(1, 1, "%s: asked %s, device %s, file system %s", cmp.Or(note, state), s.Requested, cmp.Or(s.Allocated, "?"), s.Actual)
	return s
}

// tell says what is waited for.
func (g *growth) tell(ctx context.Context) {
	c := g.last
	allocated := c.allocated()
	waits := "waiting for the resizer"
	device := quantity(c.actual())
	switch c.allocating() {
	case "ControllerResizeInProgress":
		waits = "waiting for the driver to grow the device to " + quantity(allocated)
	case "NodeResizePending":
		device, waits = quantity(allocated), "waiting for node resize"
	case "NodeResizeInProgress":
		device, waits = quantity(allocated), "waiting for node resize, which is under way"
	case "":
		if _, pending := c.standing("FileSystemResizePending"); pending {
			waits = "waiting for node resize"
		}
	}
	if g.pods != "" && strings.Contains(waits, "node") {
		waits += " under pod " + g.pods
	}
	if trouble := g.trouble(ctx); trouble != "" {
		waits += ": " + trouble
	}
	actual := c.actual()
	g.say(actual.Value(), g.want.Value(), "device %s, file system %s, %s", device, quantity(actual), waits)
}

// trouble is what the driver says, from the conditions or else from Events.
func (g *growth) trouble(ctx context.Context) string {
	for _, kind := range []string{"ControllerResizeError", "NodeResizeError"} {
		if message, ok := g.last.standing(kind); ok {
			return cmp.Or(message, kind)
		}
	}
	return g.warning(ctx, g.last.Metadata)
}

// takeBack ends a growth that failed: what stands in the claim goes back to the least that Kubernetes takes, and where
// something may go on all the same, the error says so.
func (g *growth) takeBack(ctx context.Context, failed error) (any, error) {
	settle, cancel, ok := settling(ctx)
	defer cancel()
	if !ok || !g.asked {
		return nil, failed
	}
	g.say(0, 0, "taking the wish for %s back", &g.want)
	var stop error
	for range 5 {
		found, err := g.get(settle, g.in(claims), g.name)
		if err != nil || found == nil {
			return nil, g.left(failed, "may still grow", err)
		}
		c := &claim{}
		if err := read(found, c); err != nil {
			return nil, g.left(failed, "may still grow", err)
		}
		g.last = c
		if c.settled() && atLeast(c.actual(), g.want) {
			return g.sizes("grown", ""), nil // it came to its end meanwhile
		}
		if requested := c.requested(); requested.Cmp(g.want) != 0 {
			return nil, failed // somebody else wants something else
		}
		least, why := lowered(c, g.want)
		if least.IsZero() {
			return nil, g.left(failed, why, nil)
		}
		stop = g.patch(settle, g.in(claims), g.name, c.Metadata.ResourceVersion, request(least))
		switch {
		case stop == nil && why != "":
			return nil, g.left(failed, why, nil)
		case stop == nil:
			actual := c.actual()
			g.log("the claim asks for %s again, the least above %s; a driver that rounds may grow it by one step", &least, &actual)
			return nil, failed
		case !apierrors.IsConflict(stop):
			return nil, g.left(failed, "may still grow to "+g.want.String(), stop)
		}
	}
	return nil, g.left(failed, "may still grow to "+g.want.String(), stop)
}

// lowered is the least that the claim can ask for, and what may go on all the same. Zero: nothing can be taken back.
func lowered(c *claim, want resource.Quantity) (least resource.Quantity, goesOn string) {
	allocated := c.allocated()
	switch c.allocating() {
	case "NodeResizePending", "NodeResizeInProgress", "NodeResizeInfeasible": // the resizer keeps to what it has allocated
		goesOn = fmt.Sprintf("may still grow: the device has %s already", &allocated)
		if atLeast(allocated, want) {
			return resource.Quantity{}, goesOn
		}
		return allocated, goesOn
	case "ControllerResizeInProgress":
		if _, final := c.standing("ControllerResizeError"); !final {
			goesOn = fmt.Sprintf("may still grow to %s: the driver has not answered", &allocated)
		}
	case "":
		if _, pending := c.standing("FileSystemResizePending"); pending {
			return resource.Quantity{}, "may still grow: the device has grown already"
		}
	}
	least = c.actual()
	least.Add(*resource.NewQuantity(1, resource.BinarySI))
	if atLeast(least, want) { // to ask for more would make it grow
		return resource.Quantity{}, cmp.Or(goesOn, fmt.Sprintf("may still grow to %s: nothing less can be asked for", &want))
	}
	return least, goesOn
}

// left is failed with what may go on.
func (g *growth) left(failed error, goesOn string, why error) error {
	text := "failed, " + goesOn + ": " + failed.Error()
	if why != nil {
		text += " (take it back: " + why.Error() + ")"
	}
	g.log("%s", text)
	return failure(reasonMayGrow, "%s", text)
}

func atLeast(is, want resource.Quantity) bool { return is.Cmp(want) >= 0 }

func quantity(q resource.Quantity) string { return q.String() }
