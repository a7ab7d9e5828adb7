#!/bin/sh
# Owns the promise that the checks of what `weft sim` and `weft perf` print fail where the program
# prints all that they look for, and then ends badly.
# usage: tests/e2e/can_fail.sh FOLDER   the folder with these scripts
dir=$(mktemp -d) || exit 1
trap 'rm -r "$dir"' EXIT
failed=0

# fake CODE, with what it prints on standard input
fake() {
  { printf '#!/bin/sh\ncat <<"END"\n' && cat && printf 'END\nexit %s\n' "$1"; } > "$dir/weft"
  chmod +x "$dir/weft"
}
# expect CODE SCRIPT ARGUMENT...
expect() {
  expected=$1
  script=$2
  shift 2
  sh "$script" "$@" > "$dir/said" 2>&1
  code=$?
  if [ $code -ne "$expected" ]; then
    echo "$script: exit code $code instead of $expected"
    cat "$dir/said"
    failed=1
  fi
}
for code in 0 1; do
  printf 'digest %s\n' 1 2 3 4 | fake $code
  expect $code "$1/sim_workers.sh" "$dir/weft"
  echo '"retransmitted":0,"timeouts":0,"paths_abandoned":0,"dropped":{}' | fake $code
  expect $code "$1/sim_loss_free.sh" "$dir/weft" any
  echo '"perf":true,"paths_used":1,"status":"ok"' | fake $code
  expect $code "$1/perf.sh" 1 "$dir/weft"
done
exit $failed
