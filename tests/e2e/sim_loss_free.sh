#!/bin/sh
# Owns the promise that where nothing is lost no timer takes anything for lost, at full size.
# usage: tests/e2e/sim_loss_free.sh WEFT SCENARIO
said=$("$1" sim "$2" --json) || exit
printf '%s\n' "$said"
lines=$(printf '%s\n' "$said" | wc -l)
clean=$(printf '%s\n' "$said" |
  grep -c '"retransmitted":0,"timeouts":0,"paths_abandoned":0,.*"dropped":{}')
test "$lines" -ge 1 && test "$clean" -eq "$lines"
