package local

import "slipway.dev/slipway/e2e/packages"

// Needs is all that profile Node takes from the distribution.
var Needs = []packages.Need{
	{File: "containerd", Package: "containerd"},
	{File: "containerd-shim-runc-v2", Package: "containerd"},
	{File: "ctr", Package: "containerd"},
	{File: "runc", Package: "runc"},
	{File: "/usr/lib/cni/ptp", Package: "containernetworking-plugins"},
	{File: "/usr/lib/cni/host-local", Package: "containernetworking-plugins"},
	{File: "nft", Package: "nftables"},
	{File: "ip", Package: "iproute2"},
	{File: "unshare", Package: "util-linux"},
	{File: "nsenter", Package: "util-linux"},
	{File: "mount", Package: "mount"},
	{File: "losetup", Package: "mount"},
	{File: "mkfs.ext4", Package: "e2fsprogs"},
}

// storageNeeds is what a cluster with storage takes besides.
var storageNeeds = []packages.Need{
	{File: "fsfreeze", Package: "util-linux"},
	{File: "resize2fs", Package: "e2fsprogs"},
	{File: "mkfs.xfs", Package: "xfsprogs"},
}
