#!/bin/sh
# Owns the promise that .ci/run's swarm stages fail when a program is missing, crashes, or differs.
# usage: tests/e2e/ci_run.sh PROJECT
dir=$(mktemp -d)
trap 'rm -r "$dir"' EXIT
mkdir "$dir/.ci" && cp "$1/.ci/run" "$dir/.ci/run"

# A stand-in for the program of a preset: `fake PRESET CODE DIGEST`.
fake() {
  mkdir -p "$dir/build/$1/emu/cli"
  cat > "$dir/build/$1/emu/cli/weft" <<END
#!/bin/sh
echo '{"swarm":true,"digest":"$3"}'
exit $2
END
  chmod +x "$dir/build/$1/emu/cli/weft"
}
# expect CODE STAGE WHAT
expect() {
  "$dir/.ci/run" "$2" > "$dir/said" 2>&1
  code=$?
  if [ $code -ne "$1" ] || grep -q ' 1 skipped$' "$dir/said"; then
    echo "$3: exit code $code instead of $1"
    cat "$dir/said"
    exit 1
  fi
}
fake release 0 0123456789abcdef
fake asan 0 0123456789abcdef
expect 0 swarm_asan "equal digests"
fake asan 0 0123456789abcdee
expect 1 swarm_asan "other digests"
fake asan 0 ""
expect 1 swarm_asan "no digest"
fake asan 1 0123456789abcdef
expect 1 swarm_asan "a program that crashes"
fake asan 0 0123456789abcdef
rm "$dir/build/release/emu/cli/weft"
expect 1 swarm_asan "a program that is missing"
expect 1 swarm "the only program is missing"
