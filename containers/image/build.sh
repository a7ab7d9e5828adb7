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
  rm -rf --one-file-system "$store"  # debootstrap may have been stopped with /proc in place
  rm -f "$archive.new"
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
  # What says where and when it was made: two bases of the same packages are to be the same. The day
  # of the passwords' last change is that of the commit.
  rm -f "$base"/var/cache/ldconfig/aux-cache "$base"/etc/resolv.conf "$base"/etc/hostname
  sed -i "s/^\([^:]*:[^:]*\):[0-9]*:/\1:$((SOURCE_DATE_EPOCH / 86400)):/" "$base"/etc/shadow*
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

# An OCI archive, with the list that docker looks for beside it: without containerd's store, docker
# takes no other (seen with 26).
layout=$store/layout
engine push --quiet weft "oci:$layout:weft" >/dev/null
blobs_of() {  # FILE; the blobs that it names, as paths
  grep -o '"digest":"sha256:[0-9a-f]*"' "$layout/$1" | sed 's,.*sha256:\(.*\)",blobs/sha256/\1,'
}
blobs_of "$(blobs_of index.json)" | awk '
  { printf NR == 1 ? "[{\"Config\":\"%s\",\"RepoTags\":[\"weft:latest\"],\"Layers\":[" \
                   : NR == 2 ? "\"%s\"" : ",\"%s\"", $0 }
  END { print "]}]"; exit NR < 3 }' >"$layout/manifest.json" ||
  { echo "weft: the image's manifest names no layers" >&2; exit 1; }
tar -C "$layout" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
  --mode=u=rwX,go=rX -cf "$archive.new" .
mv "$archive.new" "$archive"
echo "$archive"
