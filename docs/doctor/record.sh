#!/usr/bin/env bash
# Records what `weft doctor` says on one machine with one thing after the other taken away or given.
# usage, as root: docs/doctor/record.sh PROGRAM   (writes *.txt beside this script)
set -euo pipefail
program=$(realpath "$1")
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
# Another user may not enter the directory of the build.
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
mkdir -p "$copy/emu/cli" "$copy/emu/daemon" "$copy/integration/preload"
build=$(dirname "$(dirname "$(dirname "$program")")")
cp "$program" "$copy/emu/cli/weft"
cp "$build/emu/daemon/weftd" "$copy/emu/daemon/"
cp "$build/integration/preload/libweft-preload.so" "$copy/integration/preload/"
chmod -R go+rX "$copy"

record() {  # NAME COMMAND...
  { "${@:2}" "$copy/emu/cli/weft" doctor || true; } |
    sed -e "s|$copy|BUILD|g" -e "s/$(uname -r)/KERNEL/" >"$here/$1.txt"
}
inside() {  # COMMANDS: runs the rest after them, in a mount namespace
  unshare --mount --propagation private sh -c "$1; shift; exec \"\$@\"" sh "$@"
}

record root
record non-root setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all \
  --bounding-set=-all --no-new-privs
record no-namespaces unshare --user --map-root-user sh -c \
  'echo 0 >/proc/sys/user/max_user_namespaces
   exec setpriv --inh-caps=-all --bounding-set=-all --no-new-privs "$@"' sh
record no-tun inside 'mount -t tmpfs none /dev/net'
record no-dpdk inside 'for f in $(find / -xdev \( -name libdpdk.pc -o -name "librte_eal.so*" \)); do
  mount --bind /dev/null "$(realpath "$f")"; done'
record no-rdma-programs env PATH=/nonexistent
pages=/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages
before=$(cat "$pages")
echo $((before + 4)) >"$pages"
record hugepages inside 'mkdir -p /dev/hugepages; mount -t hugetlbfs none /dev/hugepages'
echo "$before" >"$pages"
