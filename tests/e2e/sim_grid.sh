#!/bin/sh
# Owns `weft sim --grid` and `--flows` from outside: what they write, what is not run twice, and
# what is refused.
# usage: tests/e2e/sim_grid.sh WEFT
weft=$1
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failed=0

wrong() {
  echo "$*"
  failed=1
}
# says FILE PATTERN
says() {
  grep -q "$2" "$1" || wrong "no '$2' in $1: $(cat "$1")"
}
# refused PATTERN ARGUMENTS...
refused() {
  pattern=$1
  shift
  "$weft" sim "$@" > refused.txt 2>&1
  [ $? -eq 2 ] || wrong "weft sim $* should end with 2"
  says refused.txt "$pattern"
}

some() {
  "$weft" sim --grid --only '*/1-packet/2-tier/healthy' --policy nscc-mixed "$@"
}
some --report out > first.txt 2>&1
[ $? -le 1 ] || wrong "the grid did not run: $(cat first.txt)"
says first.txt "6 of [0-9]* cells ([0-9]* more cannot exist) with 2 policies: 12 runs, 0 of"
says out/grid.html "</html>"
says out/grid.svg "</svg>"
says out/grid.md "| within 5 % of the best |"
[ "$(wc -l < out/grid.jsonl)" -eq 12 ] || wrong "12 lines expected: $(cat out/grid.jsonl)"

# The last line as a kill would leave it.
head -c -40 out/grid.jsonl > cut && mv cut out/grid.jsonl
some --report out > second.txt 2>&1
says second.txt "12 runs, 11 of them known"

# The same on any number of cores, and what was run again is the same.
some --json --jobs 1 > one.jsonl
some --json --jobs 3 > three.jsonl
cmp one.jsonl three.jsonl || wrong "results depend on the number of processes"
some --report out > third.txt 2>&1
says third.txt "12 runs, 12 of them known"

"$weft" sim --grid --list > list.txt || wrong "no list"
says list.txt "^held-out  permutation/"
says list.txt "^tune  *permutation/"
says list.txt "^none .*unequal-paths/one-spine-dead (the topology unequal-paths has no one_spine)"

refused "no cell of the grid is called 'nothing'" --grid --only nothing
refused "the grid has no policy 'luck'" --grid --policy luck
refused "cells takes a number or all, not 'few'" --grid --cells few
refused "there.yaml: cannot be read" --grid there.yaml
refused "grid takes at most one file" --grid --sweep seed=1,2
refused "only with --grid" e3b-symmetric --cells 4

cat > s.yaml << 'END'
topology: {generator: leaf-spine, hosts: 4, hosts_per_leaf: 2}
traffic:
  kind: flows
  flows: [{from: 0, to: 3, bytes: 5000}, {from: 1, to: 2, bytes: 90000000, start: 3us}]
time_limit: 200us
END
"$weft" sim s.yaml --flows f.csv > cut.txt && wrong "a run that was cut is a failure"
says cut.txt "UNFINISHED  *1 of 2 flows had not ended after 200.0 us"
says f.csv '^flow,group,from,to,bytes,start_us,fct_us,ideal_us,slowdown,state$'
says f.csv '^1,"flows",1,2,90000000,3.0,,7[0-9.]*,,"running"$'
"$weft" sim s.yaml --flows f.jsonl --json > run.json
says run.json '"ratio":null'
says f.jsonl '^{"flow":0,"group":"flows","from":0,"to":3,"bytes":5000,"start_us":0.0,'
exit $failed
