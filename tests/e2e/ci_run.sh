#!/bin/sh
# Owns the promise that .ci/run's swarm stages fail when a program is missing, crashes, or differs,
# that they and the hostile stage test what is built now, that a skip is none that passed, and that
# a fuzz target which ran no input or a stage which was stopped is none either.

# only the clang-format that laid out the tree judges its layout.
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
# A stand-in for ./weft: notes what it is asked for, and ends with CODE after the line SAID.
fake_build() {  # CODE SAID
  cat > "$dir/weft" <<END
#!/bin/sh
echo "\$*" >> "$dir/asked"
echo '$2'
exit $1
END
  chmod +x "$dir/weft"
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
# expect_format VERDICT CODE SAID: what the stage makes of a clang-format of ours
expect_format() {
  "$dir/.ci/run" format > "$dir/said" 2>&1
  code=$?
  if [ $code -ne "$2" ] || [ "$(tail -n 1 "$dir/said")" != "$1" ] ||
    ! grep -q "$3" "$dir/said"; then
    echo "format: exit code $code instead of $2, or not '$1' and '$3'"
    cat "$dir/said"
    exit 1
  fi
}
# expect_asked WORDS...: in this order, since the last time
expect_asked() {
  for words; do printf '%s\n' "$words"; done > "$dir/expected"
  if ! cmp -s "$dir/asked" "$dir/expected"; then
    echo "./weft was asked for these, and was to be asked for those:"
    cat "$dir/asked" "$dir/expected"
    exit 1
  fi
  rm "$dir/asked"
}
fake_build 0 built
fake release 0 0123456789abcdef
fake asan 0 0123456789abcdef
expect 0 swarm "a swarm that passes"
expect_asked "build release weft"
expect 0 swarm_asan "equal digests"
expect_asked "build asan weft" "build release weft"
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
fake release 0 0123456789abcdef
fake_build 1 "cannot build"
expect 1 swarm "a build that fails"
expect 1 swarm_asan "a build that fails"

hostile() {  # CODE COUNTS VERDICT
  rm -f "$dir/asked"
  fake_build "$1" "$2"
  "$dir/.ci/run" hostile > "$dir/said" 2>&1
  code=$?
  if [ $code -ne "$1" ] || [ "$(tail -n 1 "$dir/said")" != "$2" ] ||
    ! grep -q "^hostile .* $3" "$dir/said"; then
    echo "hostile, $2: exit code $code"
    cat "$dir/said"
    exit 1
  fi
  expect_asked "test release -R ^hostile\$ --timeout 600"
}
hostile 0 "1 passed, 0 failed, 0 skipped" passed
hostile 0 "0 passed, 0 failed, 1 skipped" SKIPPED
hostile 1 "0 passed, 1 failed, 0 skipped" FAILED

fake_build 0 built
mkdir -p "$dir/build/fuzz/tests/fuzz"
fuzz() {  # CODE OF_THE_TARGET SAID
  printf '#!/bin/sh\necho "%s"\nexit %s\n' "$3" "$2" > "$dir/build/fuzz/tests/fuzz/weft_fuzz_one"
  chmod +x "$dir/build/fuzz/tests/fuzz/weft_fuzz_one"
  expect "$1" fuzz "a fuzz target that says '$3' and ends with $2"
}
fuzz 0 0 "stat::number_of_executed_units: 17"
fuzz 1 0 "stat::number_of_executed_units: 0"
fuzz 1 0 "nothing"
fuzz 1 1 "stat::number_of_executed_units: 17"

# A stage of a whole run that does not end is stopped with what it started, and is none that passed.
printf '#!/bin/sh\ncase "$*" in *asan*) sleep 61 & wait;; esac\n' > "$dir/weft"
WEFT_CI_LATEST_END=3 timeout 50 "$dir/.ci/run" > "$dir/said" 2>&1
if ! grep -q '^test .* passed$' "$dir/said" ||
  ! grep -q '^asan .* SKIPPED: asan: not done 0 minutes' "$dir/said"; then
  echo "a stage that does not end:"
  cat "$dir/said"
  exit 1
fi

# A clang-format of ours: the one that laid out the tree judges, others are no reason to fail.
clang_format() {  # VERSION CODE SAID
  # shellcheck disable=SC2016  # the dollar is for the stand-in
  { echo '#!/bin/sh'
    printf 'if [ "$1" = --version ]; then echo "a clang-format version %s (x)"; exit; fi\n' "$1"
  } > "$dir/clang-format"
  printf 'echo "%s" >&2\nexit %s\n' "$3" "$2" >> "$dir/clang-format"
  chmod +x "$dir/clang-format"
}
PATH=$dir:$PATH
mkdir "$dir/srd" "$dir/emu" "$dir/integration" "$dir/tests" && : > "$dir/srd/file.cpp"
fake_build 0 "all is installed"
clang_format 14.0.6 0 ""
expect_format "1 passed, 0 failed, 0 skipped" 0 "^format .* passed"
clang_format 14.0.6 1 "srd/file.cpp:4:1: error: code should be clang-formatted"
expect_format "0 passed, 1 failed, 0 skipped" 1 "clang-format -i srd/file.cpp"
clang_format 19.1.7 1 "srd/file.cpp:4:1: error: code should be clang-formatted"
expect_format "0 passed, 0 failed, 1 skipped" 0 "^format .* SKIPPED: .*clang-format 14.* 19.1.7"
rm "$dir/clang-format"
printf '#!/bin/sh\nexit 1\n' > "$dir/clang-format" && chmod +x "$dir/clang-format"
expect_format "0 passed, 1 failed, 0 skipped" 1 "^format .* FAILED"
