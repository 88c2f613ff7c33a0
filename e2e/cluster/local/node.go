package local

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"slipway.dev/slipway/e2e/packages"
)

// keeperPart is the process that holds the namespaces of a node.
const keeperPart = "namespaces"

//go:embed node.sh
var keeperScript string

// routeProtocol marks our routes on the host.
const routeProtocol = "120"

// makeNode makes the namespaces, their link to the host and the cgroup. If the
// keeper of the namespaces died, all parts are in namespaces that cannot be
// entered any more, and end.
func (c *Cluster) makeNode(ctx context.Context, p *progress) error {
	if _, ok := c.running(keeperPart); !ok {
		if err := c.killAll(ctx); err != nil {
			return err
		}
		if err := c.removeLink(ctx); err != nil {
			return err
		}
		if err := c.startKeeper(ctx); err != nil {
			return err
		}
	}
	if err := c.makeLink(ctx); err != nil {
		return err
	}
	if err := makeCgroup(c.cgroup()); err != nil {
		return err
	}
	p.say("namespaces ready, addresses %s", c.record.Block)
	return nil
}

func (c *Cluster) startKeeper(ctx context.Context) error {
	done := c.path("node", "made")
	if err := errors.Join(os.MkdirAll(c.path("node"), 0o700), os.RemoveAll(done)); err != nil {
		return fmt.Errorf("make namespaces: %w", err)
	}
	err := c.launch(keeperPart, []string{
		"unshare", "--mount", "--net", "--propagation", "private", "--",
		"/bin/sh", "-c", keeperScript, "slipway-node", c.Dir, c.record.Bin, done,
	})
	if err != nil {
		return err
	}
	err = poll(ctx, 20*time.Second, func(context.Context) error {
		if _, ok := c.running(keeperPart); !ok {
			return errEnded
		}
		_, err := os.Stat(done)
		return err
	})
	if err != nil {
		// A half-made set must not be taken for a whole one.
		if p, ok := c.running(keeperPart); ok {
			err = errors.Join(err, end(ctx, 0, p))
		}
		return fmt.Errorf("make namespaces: %w; this machine may not allow them; last lines:\n%s",
			err, lastLines(c.logPath(keeperPart), 5))
	}
	return nil
}

// enter is the beginning of every command line that runs on the node.
func (c *Cluster) enter() ([]string, error) {
	if c.Profile != Node {
		return nil, fmt.Errorf("enter node of cluster %s: profile %s has none", c.Name, c.Profile)
	}
	keeper, ok := c.running(keeperPart)
	if !ok {
		return nil, fmt.Errorf("enter node of cluster %s: its namespaces are gone; run up again", c.Name)
	}
	proc := fmt.Sprintf("/proc/%d/ns/", keeper.PID)
	return []string{"nsenter", "--mount=" + proc + "mnt", "--net=" + proc + "net", "--"}, nil
}

func (c *Cluster) link() string { return fmt.Sprintf("slipway%08x", hash(c.record.ID)) }

// claimBlock routes the cluster's addresses to nowhere, at a lower rank than
// the link: nothing sent there leaves the machine while the link is missing.
// The kernel refuses a second claim.
func (c *Cluster) claimBlock(ctx context.Context) error {
	block := c.record.Block.String()
	if _, err := ip(ctx, "route", "add", "unreachable", block, "metric", "4000", "proto", routeProtocol); err != nil {
		return fmt.Errorf("claim addresses %s: %w", block, err)
	}
	return nil
}

func (c *Cluster) claimed(ctx context.Context) bool {
	out, err := ip(ctx, "route", "show", "type", "unreachable", "proto", routeProtocol, c.record.Block.String())
	return err == nil && strings.TrimSpace(out) != ""
}

func (c *Cluster) releaseBlock(ctx context.Context) error {
	if !c.claimed(ctx) {
		return nil
	}
	if _, err := ip(ctx, "route", "del", "unreachable", c.record.Block.String(), "metric", "4000", "proto", routeProtocol); err != nil {
		return fmt.Errorf("release addresses: %w", err)
	}
	return nil
}

// makeLink joins the node's network namespace to the host, and routes pods and
// Services to it. The last route says that the link is whole.
func (c *Cluster) makeLink(ctx context.Context) error {
	r, link := c.record, c.link()
	if !c.claimed(ctx) {
		if err := c.claimBlock(ctx); err != nil {
			return fmt.Errorf("%w; run down and up again", err)
		}
	}
	last := r.servicePrefix().String()
	if out, err := ip(ctx, "route", "show", "dev", link, last); err == nil && strings.Contains(out, last) {
		return nil
	}
	if err := c.removeLink(ctx); err != nil {
		return err
	}
	keeper, _ := c.running(keeperPart)
	inside, err := c.enter()
	if err != nil {
		return err
	}
	steps := [][]string{
		{"ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", strconv.Itoa(keeper.PID)},
		append(inside, "ip", "addr", "add", r.nodeAddress().String()+"/24", "dev", "eth0"),
		append(inside, "ip", "link", "set", "eth0", "up"),
		{"ip", "addr", "add", r.hostAddress().String() + "/24", "dev", link},
		{"ip", "link", "set", link, "up"},
		{"ip", "route", "add", r.podPrefix().String(), "via", r.nodeAddress().String(), "dev", link, "proto", routeProtocol},
		{"ip", "route", "add", last, "via", r.nodeAddress().String(), "dev", link, "proto", routeProtocol},
	}
	for _, argv := range steps {
		if _, err := command(ctx, argv...); err != nil {
			return fmt.Errorf("link the node to the host: %w", err)
		}
	}
	return nil
}

// removeLink takes the routes by the link with it. The kernel may be removing
// it already, with a namespace that ended.
func (c *Cluster) removeLink(ctx context.Context) error {
	present := func() bool { return isFolder("/sys/class/net/" + c.link()) }
	if !present() {
		return nil
	}
	if _, err := ip(ctx, "link", "del", c.link()); err != nil && present() {
		return fmt.Errorf("remove link: %w", err)
	}
	return nil
}

// takenAddresses lists the host's networks and routes, other clusters' too.
func takenAddresses(ctx context.Context) ([]netip.Prefix, error) {
	out, err := ip(ctx, "-json", "-4", "route", "show", "table", "all")
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	return parseRoutes([]byte(out))
}

func parseRoutes(raw []byte) ([]netip.Prefix, error) {
	var routes []struct{ Dst string }
	if err := json.Unmarshal(raw, &routes); err != nil {
		return nil, fmt.Errorf("read routes: %w", err)
	}
	var taken []netip.Prefix
	for _, route := range routes {
		if prefix, err := netip.ParsePrefix(route.Dst); err == nil {
			taken = append(taken, prefix)
		} else if addr, err := netip.ParseAddr(route.Dst); err == nil {
			taken = append(taken, netip.PrefixFrom(addr, addr.BitLen()))
		}
	}
	return taken, nil
}

func ip(ctx context.Context, args ...string) (string, error) {
	return command(ctx, append([]string{"ip"}, args...)...)
}

func command(ctx context.Context, argv ...string) (string, error) {
	cmd := exec.CommandContext(ctx, packages.Find(argv[0]), argv[1:]...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}
