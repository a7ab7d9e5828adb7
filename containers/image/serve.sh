#!/bin/sh
# Owns a network for the containers beside this one, for as long as this container runs.
# usage: weft-serve [OPTION of `weft up`...]
weft up default "$@" && weft cdi default --output /run/cdi >/dev/null || exit
end() { weft down default; exit 0; }
trap end TERM INT
while weft status default >/dev/null 2>&1; do
  sleep 1 &
  wait $!
done
echo "weft-serve: weftd has ended" >&2
exit 1
