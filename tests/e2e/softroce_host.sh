#!/bin/sh
# Owns the test of `weft softroce host` on machines that are told to it: programs of these names
# write down what they are asked, and a folder stands for /sys and /proc. What it does to a real
# kernel is shown by tests/interop in a guest.
#
# usage: softroce_host.sh WEFT
weft=$1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
PATH=$dir/bin:$PATH
export PATH WEFT_SOFTROCE_ROOT="$dir/root" WEFT_SOFTROCE_STATE="$dir/state"
said=$dir/said log=$dir/log
fail() {
  echo "$1"
  cat "$said" "$log" 2>/dev/null
  exit 1
}

# A machine: whose kernel has the module loaded (or "", known, missing), with these capabilities.
machine() {  # MODULE CAPABILITIES
  rm -rf "${dir:?}/bin" "$dir/root" "$dir/state" "$dir/rdma" "$dir/net"
  mkdir -p "$dir/bin" "$dir/root/sys/module" "$dir/root/proc/self" "$dir/root/proc/1" "$dir/net" \
    "$dir/rdma"
  : >"$log"
  : >"$dir/root/proc/1/environ"
  [ "$1" != loaded ] || mkdir "$dir/root/sys/module/rdma_rxe"
  printf 'CapEff:\t%s\n' "$2" >"$dir/root/proc/self/status"
  cat >"$dir/bin/modprobe" <<END
#!/bin/sh
case "\$*" in
  '-n -q rdma_rxe') [ "$1" = known ] ;;
  '-r -q rdma_rxe' | rdma_rxe) echo "modprobe \$*" >>"$log" ;;
esac
END
  cat >"$dir/bin/ip" <<END
#!/bin/sh
case "\$*" in
  *'link show dev '*) for last; do :; done; cat "$dir/net/\$last" 2>/dev/null ;;
  'link add weft-rdma0 '*)
    echo "ip \$*" >>"$log"
    echo veth >"$dir/net/weft-rdma0"
    echo veth >"$dir/net/weft-rdma1" ;;
  'link delete dev weft-rdma0')
    echo "ip \$*" >>"$log"
    rm "$dir/net/weft-rdma0" "$dir/net/weft-rdma1" ;;
  *) echo "ip \$*" >>"$log" ;;
esac
END
  cat >"$dir/bin/rdma" <<END
#!/bin/sh
case "\$*" in
  'link show weft_0/1') [ -e "$dir/rdma/weft_0" ] ;;
  'link add weft_0 type rxe netdev weft-rdma0')
    echo "rdma \$*" >>"$log"
    [ ! -e "$dir/refuse" ] || { echo 'error: Invalid argument'; exit 1; }
    : >"$dir/rdma/weft_0" ;;
  'link delete weft_0') echo "rdma \$*" >>"$log"; rm "$dir/rdma/weft_0" ;;
  *) echo "rdma \$*" >>"$log"; exit 1 ;;
esac
END
  chmod +x "$dir"/bin/*
}
all=000001ffffffffff none=0000000000000000
host() { "$weft" softroce host "$@" >"$said" 2>&1; }

machine loaded $all
host up || fail "up fails"
grep -q '^weft_0 on weft-rdma0, 10.78.77.1' "$said" || fail "up does not say what there is"
host up && fail "it comes up twice"
grep -q 'is up already' "$said" || fail "it does not say that it is up already"
: >"$log"
host down || fail "down fails"
printf 'rdma link delete weft_0\nip link delete dev weft-rdma0\n' | cmp -s - "$log" ||
  fail "down does something else than undoing"
[ ! -e "$dir/state" ] || fail "its notes stay"
host down || fail "nothing to undo is a failure"

# A module that was not loaded goes with the rest.
machine known $all
host up || fail "up fails where the module has to be loaded"
host down || fail "down fails"
tail -n 1 "$log" | grep -qx 'modprobe -r -q rdma_rxe' || fail "the module stays"

# Half an up is undone.
machine loaded $all
: >"$dir/refuse"
host up && fail "a device that cannot be made is no failure"
grep -q 'Invalid argument' "$said" || fail "it does not say why"
[ ! -e "$dir/net/weft-rdma0" ] || fail "the cable of half an up stays"
[ ! -e "$dir/state" ] || fail "the notes of half an up stay"
rm "$dir/refuse"

# What is not ours is left alone.
machine loaded $all
echo e1000 >"$dir/net/weft-rdma0"
host up && fail "it takes another's interface"
grep -q 'which is not ours' "$said" || fail "it does not say whose the interface is"
[ ! -s "$log" ] || fail "it changes something beside another's interface"
echo 'cable weft-rdma0' >"$dir/state"
host down
[ -e "$dir/net/weft-rdma0" ] || fail "it deletes an interface that is no veth"

# What is missing is said, and nothing done.
machine missing $all
host up && fail "it comes up without a module"
grep -q 'has no module rdma_rxe' "$said" || fail "it does not say that there is no module"
echo 'container=podman' >"$dir/root/proc/1/environ"
host status && fail "status succeeds without a module"
grep -q 'this is a container' "$said" || fail "it does not say that this is a container"
machine loaded $none
host up && fail "it comes up without the right to configure networks"
grep -q CAP_NET_ADMIN "$said" || fail "it does not say which right is missing"
[ ! -s "$log" ] || fail "it changes something without the right to"
host sideways && fail "any action is taken"
[ "$("$weft" softroce host up --driver nothing >/dev/null 2>&1; echo $?)" = 2 ] ||
  fail "any driver is taken"
exit 0
