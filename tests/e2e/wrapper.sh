#!/bin/sh
# Owns the promises that ./weft works through a link from another folder, with and without CDPATH,
# and that it sees to what a guest needs.
# usage: tests/e2e/wrapper.sh PROJECT
dir=$(readlink -f "$(mktemp -d)")
trap 'rm -r "$dir"' EXIT
mkdir -p "$dir/tree" "$dir/bin" "$dir/links" "$dir/tree/build/release/emu/cli"
cp "$1/weft" "$1/CMakePresets.json" "$dir/tree"
ln -s ../tree/weft "$dir/links/first"
ln -s links/first "$dir/weft"

# Stand-ins: everything is installed, and there is nothing to build.
fake() {  # PATH BODY
  printf '#!/bin/sh\n%s\n' "$2" >"$1"
  chmod +x "$1"
}
# shellcheck disable=SC2016  # the dollars are the stand-ins'
{
  fake "$dir/bin/dpkg-query" 'shift 3; for name; do echo "installed $name"; done | tee -a "$0.said"'
  fake "$dir/bin/cmake" "echo \"\$*\" >>'$dir/asked'"
  fake "$dir/bin/ninja" "echo \"\$*\" >>'$dir/asked'; echo 'ninja: no work to do.'"
  fake "$dir/tree/build/release/emu/cli/weft" 'echo "program: $*"'
}
cd / || exit 1
said=$(CDPATH=/:/tmp PATH="$dir/bin:$PATH" "$dir/weft" status lab 2>&1)
if [ "$said" != "program: status lab" ]; then
  echo "through a link it says: $said"
  exit 1
fi
expected="-S $dir/tree --preset release
-C $dir/tree/build/release -n all"
if [ "$(cat "$dir/asked")" != "$expected" ]; then
  echo "it asked for this, instead of that:"
  cat "$dir/asked"
  echo "$expected"
  exit 1
fi
PATH="$dir/bin:$PATH" "$dir/weft" softroce vm >/dev/null 2>&1
for package in cmake qemu-system-x86 rdmacm-utils ibverbs-providers; do
  if ! grep -qx "installed $package" "$dir/bin/dpkg-query.said"; then
    echo "for a guest it does not ask for $package"
    exit 1
  fi
done
