#!/bin/sh
# Owns the promise that `weft perf` ends well and that every one of its lines does.
# usage: tests/e2e/perf.sh WEFT ARGUMENTS...   exit code 77: this machine cannot, as the output says
said=$("$@" 2>&1)
code=$?
printf '%s\n' "$said"
if [ $code -ne 0 ]; then
  cannot="network namespace of one's own|'libweft-dpdk.so' is missing|EAL: lcore 0 unavailable"
  printf '%s' "$said" | grep -qE "$cannot" && exit 77
  exit $code
fi
lines=$(printf '%s\n' "$said" | grep -c '"perf":true')
good=$(printf '%s\n' "$said" | grep '"perf":true' | grep '"paths_used":[1-9]' |
  grep -c '"status":"ok"')
test "$lines" -gt 0 && test "$lines" -eq "$good"
