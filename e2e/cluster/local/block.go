package local

import (
	"errors"
	"hash/fnv"
	"net/netip"
)

// blocks is 198.18.0.0/15, kept by RFC 2544 for tests of network devices, so
// that no real network is hidden by it. Each cluster with a node takes a /21:
//
//	+0.0/24  the link: .1 is the host, .2 the cluster
//	+1.0/24  Services
//	+2.0/23  pods
//
// No packet for it leaves the machine: see claimBlock.
var blocks = netip.MustParsePrefix("198.18.0.0/15")

const blockBits = 21

// chooseBlock returns the first block from a place given by the id on that
// overlaps nothing taken.
func chooseBlock(id string, taken []netip.Prefix) (netip.Prefix, error) {
	count := 1 << (blockBits - blocks.Bits())
	first := int(hash(id)) & (count - 1)
	for i := range count {
		block := nthBlock((first + i) % count)
		free := true
		for _, t := range taken {
			// A default route overlaps everything and takes nothing.
			free = free && (t.Bits() <= 1 || !t.Overlaps(block))
		}
		if free {
			return block, nil
		}
	}
	return netip.Prefix{}, errors.New("choose addresses: all of 198.18.0.0/15 is in use; take down a cluster")
}

func nthBlock(n int) netip.Prefix {
	return netip.PrefixFrom(offset(blocks.Addr(), n<<(32-blockBits)), blockBits)
}

func offset(addr netip.Addr, by int) netip.Addr {
	b := addr.As4()
	n := uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
	n += uint32(by)
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
}

func (r record) hostAddress() netip.Addr { return offset(r.Block.Addr(), 1) }

func (r record) nodeAddress() netip.Addr { return offset(r.Block.Addr(), 2) }

func (r record) podPrefix() netip.Prefix {
	return netip.PrefixFrom(offset(r.Block.Addr(), 512), 23)
}

// servicePrefix is a /24. Nothing listens there but in profile Node.
func (r record) servicePrefix() netip.Prefix {
	if r.Profile != Node {
		return netip.MustParsePrefix("198.18.1.0/24")
	}
	return netip.PrefixFrom(offset(r.Block.Addr(), 256), 24)
}

// loopbackAddress gives each cluster without a real node a loopback address of its
// own. Ports there meet neither another cluster's nor the source ports of
// outgoing connections, which are on 127.0.0.1, so a part finds its port free
// again after a restart.
func loopbackAddress(id string) netip.Addr {
	h := hash(id)
	return netip.AddrFrom4([4]byte{127, 64 + byte(h>>16)%64, byte(h >> 8), 1 + byte(h)%254})
}

func hash(id string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(id))
	return h.Sum32()
}
