#!/bin/sh
# Owns making the tool image without a registry: its base is made of Debian's packages.
# usage: containers/image/build.sh PACKAGES ARCHIVE   (`./weft build image` calls this)
# WEFT_BASE names the folder of a root file system to use instead of a new one.
set -eu
packages=$1 archive=$2 here=$(dirname "$(readlink -f "$0")")
suite=bookworm
[ "$(id -u)" = 0 ] || { echo "weft: building the image needs root (chroot)" >&2; exit 1; }
store=$(mktemp -d /var/tmp/weft-image.XXXXXX)
engine() { buildah --root "$store/root" --runroot "$store/run" --storage-driver vfs "$@"; }
end() {
  engine rm --all >/dev/null 2>&1 || true
  rm -rf "$store"
}
trap end EXIT
trap 'exit 1' INT TERM

base=${WEFT_BASE:-$store/base}
if [ "$base" = "$store/base" ]; then
  echo "weft: making the base of the image from Debian's packages" >&2
  mirror=$(sh "$here/debian_mirror.sh")
  debootstrap --variant=minbase "$suite" "$base" ${mirror:+"$mirror"} >"$store/log" 2>&1 ||
    { tail -n 5 "$store/log" >&2; exit 1; }
  rm -rf "$base"/var/cache/apt/* "$base"/var/lib/apt/lists/* "$base"/var/log/* \
    "$base"/usr/share/doc/* "$base"/usr/share/man/* "$base"/usr/share/locale/*
fi
printf 'FROM scratch\nCOPY . /\n' >"$store/Containerfile"
engine build --quiet --timestamp "$SOURCE_DATE_EPOCH" --file "$store/Containerfile" \
  --tag weft-base "$base" >/dev/null

mkdir "$store/context"
cp "$packages"/*.deb "$here/serve.sh" "$here/node.sh" "$store/context"
engine build --quiet --isolation chroot --pull-never --timestamp "$SOURCE_DATE_EPOCH" \
  --build-arg BASE=localhost/weft-base --file "$here/Containerfile" --tag weft \
  "$store/context" >/dev/null
size() { engine images --json "$1" | sed -n 's/.*"size": "\(.*\)".*/\1/p'; }
echo "image $(size weft), of which Debian's base $(size weft-base)"
engine push --quiet weft "oci-archive:$archive:weft"
echo "$archive"
