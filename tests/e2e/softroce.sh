#!/bin/sh
# Owns the test of `weft softroce`: Linux's soft-RoCE speaks with ours, what a command in the guest
# says and returns arrives here, and nothing outlives a guest that is ended. Without QEMU it is
# skipped, and without an image of the guest as well, as making one needs a network:
# `weft softroce vm -- true` makes it.
#
# usage: softroce.sh WEFT
weft=$1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() {
  echo "$1"
  cat "$dir/said"
  exit 1
}
if ! command -v qemu-system-x86_64 > /dev/null; then
  echo "this machine has no qemu-system-x86_64; install qemu-system-x86 to run this test"
  exit 77
fi
if "$weft" softroce status | grep -q '^image  *none'; then
  echo "there is no image of the guest yet; weft softroce vm -- true makes it"
  exit 77
fi

"$weft" softroce vm --timeout 240 > "$dir/said" 2>&1 || fail "the self-test fails"
grep -q 'speaks with ours' "$dir/said" || fail "the self-test does not say that it has spoken"

"$weft" softroce vm --timeout 240 -- sh -c 'uname -s; echo to errors >&2; exit 7' \
  > "$dir/said" 2> "$dir/errors"
code=$?
[ $code -eq 7 ] || fail "exit code $code instead of 7"
[ "$(cat "$dir/said")" = Linux ] || fail "another output than Linux"
grep -qx 'to errors' "$dir/errors" || fail "its errors do not arrive"

# However it is ended, QEMU and weftd end with it; where it can, it also takes its files away, and
# those that a killed one has left.
ends_after() {  # SIGNAL
  mkdir -p -m 700 "$dir/tmp"
  # A shell lets its background jobs ignore SIGINT, which a command at a terminal does not.
  env --default-signal=INT XDG_RUNTIME_DIR="$dir/tmp" \
    "$weft" softroce vm --timeout 240 -- sleep 1000 > "$dir/said" 2>&1 &
  pid=$!
  until pgrep -P $pid -f qemu-system > /dev/null; do
    kill -0 $pid || fail "it ends by itself"
    sleep 0.1
  done
  children=$(pgrep -P $pid)
  kill "-$1" $pid
  wait $pid 2> /dev/null
  n=0
  for child in $children; do
    while kill -0 "$child" 2> /dev/null; do
      n=$((n + 1))
      [ $n -lt 300 ] || fail "SIG$1 to weft leaves $(ps -o args= -p "$child")"
      sleep 0.1
    done
  done
}
ends_after KILL
for signal in INT TERM; do
  ends_after $signal
  [ -z "$(ls -A "$dir/tmp")" ] || fail "SIG$signal leaves files: $(ls -A "$dir/tmp")"
done
