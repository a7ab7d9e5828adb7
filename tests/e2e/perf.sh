#!/bin/sh
# Owns the promise that `weft perf` ends well, with a line for every case that it was asked for, and
# that every one of them does.
# usage: tests/e2e/perf.sh LINES WEFT ARGUMENT...   exit code 77: this machine cannot, and why
expected=$1
shift
said=$("$@" 2>&1)
code=$?
printf '%s\n' "$said"
if [ $code -ne 0 ]; then
  # A build without DPDK's headers says so; one that has lost its own library has failed.
  cannot="network namespace of one's own|EAL: lcore 0 unavailable"
  printf '%s' "$said" | grep -qE "$cannot" && exit 77
  exit $code
fi
lines=$(printf '%s\n' "$said" | grep -c '"perf":true')
good=$(printf '%s\n' "$said" | grep '"perf":true' | grep '"paths_used":[1-9]' |
  grep -c '"status":"ok"')
test "$lines" -eq "$expected" && test "$good" -eq "$expected"
