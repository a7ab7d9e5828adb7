#!/bin/sh
# Owns the promise that a run's digest does not depend on how many processes share the work.
# usage: tests/e2e/sim_workers.sh WEFT
digests() {
  said=$("$1" sim e5-incast-32 e4-link-failures --repeat 2 --json --jobs "$2") || return
  printf '%s\n' "$said" | grep -o 'digest.*'
}
one=$(digests "$1" 1) || exit
three=$(digests "$1" 3) || exit
printf '%s\n' "$one" "$three"
test "$(printf '%s\n' "$one" | sort -u | wc -l)" -eq 4 && test "$one" = "$three"
