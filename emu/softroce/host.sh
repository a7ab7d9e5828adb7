#!/bin/sh
# Owns soft-RoCE of this machine's own kernel: a device at one end of a virtual cable that nothing
# else hangs on, and taking exactly that away again.
#
# usage: host.sh up|down|status [rxe|siw]
#
# The cable is a pair of veth interfaces, weft-rdma0 and weft-rdma1, and the device is weft_0, on
# the first. Both sides of a job use it: the kernel turns what it sends to itself round. A real NIC
# is never touched. What `up` changes it writes down in $WEFT_SOFTROCE_STATE (/run/weft-softroce),
# and `down` undoes what stands there.
set -u
LC_ALL=C
export LC_ALL
PATH=$PATH:/usr/sbin:/sbin

state=${WEFT_SOFTROCE_STATE:-/run/weft-softroce}
root=${WEFT_SOFTROCE_ROOT:-}  # "" but in tests: where /sys and /proc are
action=${1:-} driver=${2:-rxe}
end=weft-rdma0 other_end=weft-rdma1 device=weft_0 address=10.78.77.1
say() { printf 'weft softroce host: %s\n' "$*" >&2; }
die() { say "$@"; exit 1; }

wrong_usage() { say "$@"; exit 2; }
case $driver in
  rxe) module=rdma_rxe ;;
  siw) module=siw ;;
  *) wrong_usage "'$driver': rxe or siw" ;;
esac
case $action in up | down | status) ;; *) wrong_usage "'$action': up, down or status" ;; esac

# --- What there is

signed='a module must be signed by a key that this machine knows'

has() { command -v "$1" >/dev/null 2>&1; }
is_loaded() { [ -d "$root/sys/module/$module" ]; }
is_known() { is_loaded || modprobe -n -q "$module" 2>/dev/null; }
is_secure_boot() {
  for one in "$root"/sys/firmware/efi/efivars/SecureBoot-*; do
    # Four bytes of attributes, then the value.
    [ -e "$one" ] && [ "$(od -An -tu1 -j4 -N1 "$one" | tr -d ' ')" = 1 ] && return 0
  done
  return 1
}
is_container() {
  [ -e "$root/run/.containerenv" ] || [ -e "$root/.dockerenv" ] ||
    tr '\0' '\n' <"$root/proc/1/environ" 2>/dev/null | grep -q '^container='
}
# Capability number N of this process.
may() { [ $((0x$(sed -n 's/^CapEff:[[:space:]]*//p' "$root/proc/self/status") >> $1 & 1)) = 1 ]; }
may_configure() { may 12; }  # CAP_NET_ADMIN
may_load() { may 16; }       # CAP_SYS_MODULE
# A veth is the only kind of interface whose driver says "veth".
is_veth() { ip -details link show dev "$1" 2>/dev/null | grep -qw veth; }
exists() { [ -e "$root/sys/class/net/$1" ] || ip link show dev "$1" >/dev/null 2>&1; }
has_device() { rdma link show "$device/1" >/dev/null 2>&1; }

# One line for each thing that stands in the way; silent if nothing does.
obstacles() {
  for program in ip rdma; do
    has "$program" || echo "there is no program $program: sudo apt-get install iproute2"
  done
  is_loaded || has modprobe || echo "there is no program modprobe: sudo apt-get install kmod"
  if ! may_configure; then
    echo "no right to configure the network (CAP_NET_ADMIN): run it as root, or use" \
      "\`weft softroce vm\`, which needs no right"
  fi
  if ! is_known; then
    if is_container; then
      echo "this is a container, and its host's kernel ($(uname -r)) has not loaded $module:" \
        "\`modprobe $module\` on the host, or \`weft softroce vm\` here"
    else
      echo "kernel $(uname -r) has no module $module: Debian's linux-image-amd64 has rdma_rxe," \
        "its cloud kernels have not, and none has siw; or use \`weft softroce vm\`"
    fi
  elif ! is_loaded && ! may_load; then
    echo "$module is not loaded, and this process may not load it (CAP_SYS_MODULE)"
  fi
}

show_status() {
  printf '%-12s%s\n' kernel "$(uname -r)"
  if is_loaded; then
    printf '%-12s%s\n' "$module" loaded
  elif is_known; then
    printf '%-12s%s\n' "$module" 'there, not loaded'
  else
    printf '%-12s%s\n' "$module" missing
  fi
  ! is_secure_boot || printf '%-12s%s\n' 'Secure Boot' "on: $signed"
  if has rdma && has_device; then
    printf '%-12s%s on %s, %s\n' device "$device" "$end" \
      "$(ip -o -4 addr show dev "$end" | awk '{print $4}')"
  fi
  obstacles >"$work/obstacles"
  while read -r line; do printf '%-12s%s\n' missing "$line"; done <"$work/obstacles"
  [ ! -s "$work/obstacles" ]
}

# --- Up and down. A step is written down before it is taken: `down` also undoes half an `up`.

note() { echo "$*" >>"$state" || die "cannot write to $state"; }
undo() {
  [ -e "$state" ] || return 0
  wrong=
  # The last step first.
  sed '1!G;h;$!d' "$state" >"$work/steps"
  while read -r step what; do
    case $step in
      device) ! has_device || rdma link delete "$what" || wrong=1 ;;
      cable)
        if exists "$what"; then
          if is_veth "$what"; then ip link delete dev "$what" || wrong=1
          else say "$what is no veth any more, and is left alone"; fi
        fi ;;
      module) modprobe -r -q "$what" 2>/dev/null || say "module $what stays: something uses it" ;;
    esac
  done <"$work/steps"
  [ -z "$wrong" ] || die "not everything could be undone; $state says what is left"
  rm -f "$state"
}

step() {
  "$@" >"$work/said" 2>&1 && return
  say "$* failed: $(tail -n 1 "$work/said")"
  undo
  exit 1
}

bring_up() {
  [ ! -e "$state" ] || die "it is up already ($state); \`weft softroce host down\` first"
  obstacles >"$work/obstacles"
  if [ -s "$work/obstacles" ]; then
    while read -r line; do say "$line"; done <"$work/obstacles"
    exit 1
  fi
  for one in "$end" "$other_end"; do
    ! exists "$one" || die "there is an interface $one already, which is not ours"
  done
  ! has_device || die "there is a device $device already, which is not ours"
  : >"$state" || die "cannot write to $state"
  if ! is_loaded; then
    # rdma_rxe needs crc32 in the kernel's crypto, which its dependencies do not say.
    modprobe -q crc32_generic 2>/dev/null
    note module "$module"
    if ! modprobe "$module" >"$work/said" 2>&1; then
      say "cannot load $module: $(tail -n 1 "$work/said")"
      ! is_secure_boot || say "Secure Boot is on: $signed"
      undo
      exit 1
    fi
  fi
  note cable "$end"
  step ip link add "$end" mtu 4200 type veth peer name "$other_end" mtu 4200
  step ip addr add "$address/24" dev "$end"
  step ip link set dev "$other_end" up
  step ip link set dev "$end" up
  note device "$device"
  step rdma link add "$device" type "$driver" netdev "$end"
  echo "$device on $end, $address: both sides of a job use this device"
}

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
case $action in
  up) bring_up ;;
  down)
    [ -e "$state" ] || { say "there is nothing to undo"; exit 0; }
    undo ;;
  status) show_status ;;
esac
