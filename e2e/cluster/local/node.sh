# Runs as the first process of a node's network and mount namespaces, and then
# sleeps to keep them. $1 is the cluster's state folder, $2 the folder of its
# programs, $3 the file that says "done".
set -eu
exec 8<"$1" 9<"$2"

# Mounts go from the node's containers to the kubelet and back, but never to the host.
mount --make-rshared /

# The kubelet, containerd and CNI keep things in fixed places; these are private.
mount -t tmpfs -o mode=755 slipway /run
mkdir -p "$1/node/lib" "$1/node/log"
mount --bind "$1/node/lib" /var/lib
mount --bind "$1/node/log" /var/log
if ! [ "$1" -ef /proc/self/fd/8 ]; then mkdir -p "$1"; mount --no-canonicalize --bind /proc/self/fd/8 "$1"; fi
if ! [ "$2" -ef /proc/self/fd/9 ]; then mkdir -p "$2"; mount --no-canonicalize --bind /proc/self/fd/9 "$2"; fi

# The kubelet wants these kernel settings and would change the host's. It is
# shown files that hold what it wants.
mkdir /run/settings
for want in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
	kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
	key=${want%=*} copy=/run/settings/$(echo "$want" | tr /= __)
	[ -e "/proc/sys/$key" ] || continue
	echo "${want#*=}" >"$copy"
	mount --bind "$copy" "/proc/sys/$key"
done

ip link set lo up
echo 1 >/proc/sys/net/ipv4/ip_forward
: >"$3"
exec 8<&- 9<&-
exec sleep infinity
