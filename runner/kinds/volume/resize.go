package volume

import (
	"cmp"
	"context"
	"fmt"
	"strings"

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
	g := &growth{wish: &wish{world: w, name: p.PVC, key: markResize, reason: reasonMayGrow, verb: "grow"}, want: want}
	result, err := g.grow(ctx)
	if err != nil {
		return g.end(ctx, err, g.back)
	}
	g.fulfilled(ctx)
	return result, nil
}

// growth is one wish for a larger volume.
type growth struct {
	*wish
	want resource.Quantity
	pods string // that have it mounted, as last looked at
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
	if g.met() {
		if g.mine() { // an earlier Attempt asked
			return g.sizes("grown", ""), nil
		}
		return g.sizes("already met", ""), nil
	}
	if err := g.ask(ctx, request(g.want), "", quantity(g.want), g.stands); err != nil {
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

// met says that the volume has the size and nothing is pending on it.
func (g *growth) met() bool { return g.last.settled() && atLeast(g.last.actual(), g.want) }

// stands says that there is nothing to ask for: the claim does, or the volume has it. A wish that is not met and larger
// than this one is lowered: Kubernetes takes anything above what there is.
func (g *growth) stands() bool {
	requested := g.last.requested()
	return requested.Cmp(g.want) == 0 || atLeast(g.last.actual(), g.want)
}

func request(q resource.Quantity) map[string]any {
	return map[string]any{"resources": map[string]any{"requests": map[string]any{storage: q.String()}}}
}

// see looks at the claim as it is now: a result or an error says that there is nothing more to wait for.
func (g *growth) see(ctx context.Context, found *unstructured.Unstructured) (any, error) {
	if g.gone = found == nil; g.gone {
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
	if g.met() {
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
			return nil, again(err)
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

// back lowers the wish to the least that Kubernetes takes, and looks on until that is what the resizer works at: one that
// began again has forgotten the driver's last error, whatever the conditions say, and goes on to its old target.
func (g *growth) back(ctx context.Context) (enough bool, err error) {
	c, requested := g.last, g.last.requested()
	_, loweredTo := c.mark(g.key)
	switch {
	case g.met():
		g.result = g.sizes("grown", "") // it came to its end meanwhile
	case requested.Cmp(g.want) == 0:
		return g.lower(ctx)
	case loweredTo == quantity(requested):
		g.goesOn = goesOn(c)
		if g.goesOn != "" && c.allocating() == "ControllerResizeInProgress" {
			g.say(0, 0, "the claim asks for %s again; waiting for the resizer to give up its target of %s", loweredTo, quantity(c.allocated()))
			return false, nil
		}
	}
	return true, nil // else somebody else wants something else
}

func (g *growth) lower(ctx context.Context) (enough bool, err error) {
	least := lowered(g.last, g.want)
	if least.IsZero() {
		g.goesOn = cmp.Or(goesOn(g.last), "may still grow to "+quantity(g.want)+": nothing less can be asked for")
		return true, nil
	}
	g.goesOn = "may still grow to " + quantity(g.want)
	g.say(0, 0, "taking the wish for %s back", &g.want)
	if err := g.amend(ctx, request(least), g.markOf(quantity(least))); err != nil {
		return false, again(err)
	}
	g.log("the claim asks for %s again, and the volume has %s; a driver that rounds may grow it by one step", &least, quantity(g.last.actual()))
	return false, nil // the watch shows what comes of it
}

// leastAbove is the least that Kubernetes takes while a wish is not met: not what there is, but anything above.
func leastAbove(c *claim) resource.Quantity {
	least := c.actual()
	least.Add(*resource.NewQuantity(1, resource.BinarySI))
	return least
}

// lowered is the least that the claim can ask for in place of a wish. Zero: nothing less.
func lowered(c *claim, want resource.Quantity) resource.Quantity {
	least := leastAbove(c)
	switch c.allocating() {
	case "NodeResizePending", "NodeResizeInProgress", "NodeResizeInfeasible": // the resizer keeps to what it has allocated
		least = c.allocated()
	case "":
		if _, pending := c.standing("FileSystemResizePending"); pending {
			return resource.Quantity{}
		}
	}
	if atLeast(least, want) { // to ask for more would make it grow
		return resource.Quantity{}
	}
	return least
}

// goesOn tells what may go on in a volume whose claim asks for the least that it can. A step above what there is does not
// count. An infeasible target is given up as soon as less is asked for, and so is one that the resizer has not marked:
// its mark needs the claim as it was before.
func goesOn(c *claim) string {
	allocated := c.allocated()
	if !allocated.IsZero() && atLeast(leastAbove(c), allocated) {
		return ""
	}
	switch c.allocating() {
	case "NodeResizePending", "NodeResizeInProgress", "NodeResizeInfeasible":
		return "may still grow: the device has " + quantity(allocated) + " already"
	case "ControllerResizeInProgress":
		return "may still grow to " + quantity(allocated) + ": the driver has not answered, or the resizer not looked again"
	case "":
		if _, pending := c.standing("FileSystemResizePending"); pending {
			return "may still grow: the device has grown already"
		}
	}
	return ""
}

func atLeast(is, want resource.Quantity) bool { return is.Cmp(want) >= 0 }

func quantity(q resource.Quantity) string { return q.String() }
