#!/bin/sh
# Owns what weft says about options that make no sense: what is wrong in words, exit code 2 or what
# the option parser has for it, and soon.
# usage: tests/e2e/bad_options.sh WEFT
weft=$1
failed=0

# expect PATTERN ARGUMENT...
expect() {
  pattern=$1
  shift
  said=$(timeout 10 "$weft" "$@" 2>&1)
  code=$?
  if [ $code -eq 0 ] || [ $code -ge 124 ] || ! printf '%s' "$said" | grep -q -e "$pattern"; then
    printf '%s: exit code %s, expected a mistake and "%s", found:\n%s\n' \
      "$*" "$code" "$pattern" "$said"
    failed=1
  fi
}

expect "--seeds: '0' is not a number above 0" swarm --seeds 0
expect "--rounds: '-1' is not a number above 0" perf --rounds -1
expect "--packets: 'nan' is not a number above 0" bench engine --packets nan
expect "sweep seed is given twice" sim e1-permutation --sweep seed=1,2 --sweep seed=3
expect "unknown key 'a'; known here: bounds" sim e1-permutation --set a=3
expect "unknown key 'mtuu'; did you mean 'mtu'" sim e1-permutation --set mtuu=3
expect "--window 128 at most" perf --op write --size 8388608 --window 8192
exit $failed
