#!/bin/sh
# Owns a Kubernetes node's network, joined with those of the other nodes, for as long as this
# container runs.
# usage: weft-node SERVICE [OPTION of `weft up`...]
# NODE_IP is this node's address. SERVICE is a name that leads to the addresses of all nodes.
#
# The node with the first address has a udp port to each other one, the others have one to it: a
# tree. A node's host is h<last number of its address>, so that it stays the same whoever comes and
# goes: the nodes' addresses have to be in one /24. When they change, weftd is started again; pods
# find it by the name of its socket, and get back the places that they had. The key that nodes show
# each other is the file WEFT_JOIN_KEY, or /etc/weft-join/key; without it nodes are alone.
set -u
service=$1 key=${WEFT_JOIN_KEY:-/etc/weft-join/key}
shift

peers() {
  getent ahostsv4 "$service" | awk '{ print $1 }' | sort -u -t . -k 1,1n -k 2,2n -k 3,3n -k 4,4n
}

# The UDP port of the first node's link to that one: a link takes nine in a row at both ends.
port_of() { echo $((20000 + 9 * ${1##*.})); }

# The options by which this node is joined with these.
ports() {  # ADDRESS...
  hub=${1:-}
  # Networks with ports have addresses in a block of their own, and a weftd that is started again
  # keeps its block: so one that is alone has a port, too, to nobody.
  [ $# -gt 1 ] || echo "--port udp:$NODE_IP:$(port_of "$NODE_IP"),127.0.0.1:9"
  for peer; do
    if [ "$NODE_IP" = "$hub" ] && [ "$peer" != "$hub" ]; then
      echo "--port udp:$NODE_IP:$(port_of "$peer"),$peer:$(port_of "$peer")"
    elif [ "$NODE_IP" = "$peer" ] && [ "$peer" != "$hub" ]; then
      echo "--port udp:$NODE_IP:$(port_of "$peer"),$hub:$(port_of "$peer")"
    fi
  done
}

running() { weft status default 2>/dev/null | sed -n 's/^weftd \([0-9]*\) .*/\1/p'; }

end() { weft down default; exit 0; }
trap end TERM INT
if [ -f "$key" ]; then
  (umask 077 && mkdir -p "$XDG_RUNTIME_DIR/join" && cat "$key" >"$XDG_RUNTIME_DIR/join/key")
fi
joined=never failed=0
while :; do
  now=
  # shellcheck disable=SC2046  # a list of addresses
  [ ! -f "$key" ] || now=$(ports $(peers) | xargs)
  pid=$(running)
  if [ "$now" != "$joined" ] || [ -z "$pid" ]; then
    [ -z "$pid" ] || kill -KILL "$pid"
    while weft status default >/dev/null 2>&1; do sleep 0.1; done
    # The ports of a weftd that was killed are free a moment after its end.
    # shellcheck disable=SC2086  # a list of options
    if weft up default --hosts 1 --first-host "${NODE_IP##*.}" \
      ${now:+$now --join-key "$XDG_RUNTIME_DIR/join/key"} "$@"; then
      joined=$now failed=0
    else
      failed=$((failed + 1))
      [ "$failed" -lt 10 ] || exit 1
    fi
  fi
  sleep "${WEFT_JOIN_TURN:-5}" &
  wait $!
done
