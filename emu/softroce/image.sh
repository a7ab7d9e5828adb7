#!/bin/sh
# Owns the guest's image: a Debian kernel with soft-RoCE, and an initial RAM disk with RDMA tools.
# It takes no root and leaves the machine's own packages alone.
#
# usage: image.sh CACHE KERNEL INIT
#
# Makes CACHE/NAME/{kernel,initrd,packages} and a link CACHE/by-name/KERNEL to it, unless the link
# is there. KERNEL is "default" (what Debian's linux-image-amd64 stands for), a series such as 6.12,
# or the name of a package. INIT is the program that the guest starts with.
set -eu
LC_ALL=C
export LC_ALL

# What is made in another way has another number, so that an image of an older weft is not used.
recipe=3
tools="busybox-static bash iproute2 ibverbs-utils ibverbs-providers rdmacm-utils perftest"
# rdma_rxe computes its checksum by crc32, which its dependencies do not name.
modules="crc32_generic crc32_pclmul virtio_pci virtio_net virtio_console qemu_fw_cfg 9pnet_virtio 9p
  overlay veth ib_uverbs ib_umad rdma_ucm rdma_rxe"

cache=$1 kernel=$2 init=$3
say() { printf 'weft softroce: %s\n' "$*" >&2; }
die() { say "$@"; exit 1; }

case $kernel in
  '' | *[!a-zA-Z0-9.+-]*) die "'$kernel' is no name of a kernel; give 6.1, 6.12 or a package" ;;
esac
case $cache in
  *[[:space:]\"\;]*) die "apt takes no folder like '$cache'; set XDG_CACHE_HOME to another" ;;
esac
for program in apt-get apt-cache dpkg-deb gzip flock; do
  command -v "$program" >/dev/null ||
    die "there is no $program here; the image is made of Debian's packages, by Debian's tools"
done

link=$cache/by-name/$kernel-r$recipe
mkdir -p "$cache/by-name"
# One at a time; the lock ends with this process.
exec 9>"$cache/lock"
flock 9
[ ! -s "$link/initrd" ] || exit 0

work=$(mktemp -d "$cache/making-XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
# Of runs that were killed. We have the lock, so no other run makes anything.
find "$cache" -maxdepth 1 -name 'making-*' ! -path "$work" -exec rm -rf {} +

# --- Packages. apt works on folders of our own, with a list of installed packages that is empty: so
# it names all that a package needs.
mkdir -p "$work/state/lists/partial" "$work/cache/archives/partial" "$work/root" "$work/kernel"
: >"$work/status"
apt() {  # PROGRAM ARGUMENT...
  program=$1
  shift
  "$program" -q -o Dir::State="$work/state" -o Dir::State::status="$work/status" \
    -o Dir::Cache="$work/cache" -o Dir::Log="$work" -o Dir::Log::Terminal= -o APT::Sandbox::User= \
    -o Acquire::Languages=none -o Acquire::Retries=3 -o APT::Install-Recommends=false "$@"
}
fetch() {  # what is said goes to the log, and from there to the user if it fails
  "$@" >>"$work/log" 2>&1 9>&- && return
  tail -n 15 "$work/log" >&2
  die "cannot fetch from Debian's mirrors"
}

say "making the image, once: fetching package lists"
fetch apt apt-get update

has() { apt apt-cache show --no-all-versions "$1" >/dev/null 2>&1; }
depends_on() {  # PACKAGE: the kernel that a metapackage stands for
  apt apt-cache depends "$1" 2>/dev/null |
    sed -n 's/^ *Depends: \(linux-image-[0-9].*-amd64\)$/\1/p' | head -n 1
}
case $kernel in
  default) package=$(depends_on linux-image-amd64) ;;
  linux-image-*) package=$kernel ;;
  *)
    package=$(depends_on "linux-image-$kernel-amd64")
    [ -n "$package" ] || package=$(depends_on linux-image-amd64)
    case $package in "linux-image-$kernel"[.-]*) ;; *) package= ;; esac ;;
esac
if [ -z "$package" ] || ! has "$package"; then
  die "apt knows no kernel '$kernel' (linux-image-...-amd64) from the sources of this machine"
fi
case $package in
  *cloud*) die "kernels of the cloud flavour have no rdma_rxe; give one of the plain flavour" ;;
esac

say "fetching $package and the RDMA tools"
# shellcheck disable=SC2086  # a list of words
fetch apt apt-get install --yes --download-only $tools
(cd "$work/kernel" && fetch apt apt-get download "$package")

# --- Unpacking
for file in "$work"/cache/archives/*.deb; do dpkg-deb --fsys-tarfile "$file"; done |
  tar -x -i -C "$work/root" --exclude=./usr/share --exclude=./var --exclude=./dev
dpkg-deb --fsys-tarfile "$work"/kernel/*.deb | tar -x -C "$work/kernel" --exclude=./usr

release=${package#linux-image-}
modules_from=$work/kernel/lib/modules/$release
[ -d "$modules_from" ] || die "$package has no modules of $release"

# --- The initial RAM disk
guest=$work/guest
libraries=lib/x86_64-linux-gnu
mkdir -p "$guest/bin" "$guest/usr/bin" "$guest/sbin" "$guest/$libraries/libibverbs" "$guest/lib64" \
  "$guest/modules" "$guest/etc/libibverbs.d" "$guest/proc" "$guest/sys" "$guest/dev" "$guest/tmp" \
  "$guest/run" "$guest/root"
ln -s ../lib "$guest/usr/lib"
cp "$work/root/bin/busybox" "$guest/bin/busybox"
for name in $("$guest/bin/busybox" --list); do
  [ "$name" = busybox ] || ln -s busybox "$guest/bin/$name"
done
put() { rm -f "$guest/$2"; cp -L "$1" "$guest/$2"; }
# Not busybox as the shell: it would take its own `ip` for iproute2's.
put "$work/root/bin/bash" bin/bash
ln -sf bash "$guest/bin/sh"
for name in ip rdma tc; do
  for from in bin sbin usr/bin usr/sbin; do
    if [ -x "$work/root/$from/$name" ]; then put "$work/root/$from/$name" "bin/$name"; fi
  done
done
for file in "$work"/root/usr/bin/*; do
  case ${file##*/} in
    ib*_* | ib_* | rping | ucmatose | udaddy | udpong | mckey | raw_ethernet_* | cmtime | rdma_*)
      [ ! -f "$file" ] || put "$file" "bin/${file##*/}" ;;
  esac
done
# All libraries of the packages: which are needed is not asked, as some are opened by name only.
for from in lib usr/lib; do
  for file in "$work/root/$from"/x86_64-linux-gnu/*.so*; do
    [ ! -f "$file" ] || cp -L "$file" "$guest/$libraries/"
  done
done
cp -L "$work"/root/lib64/ld-linux-x86-64.so.2 "$guest/lib64/"
# The others' drivers would warn of devices that are not there.
cp -L "$work"/root/usr/$libraries/libibverbs/librxe* "$guest/$libraries/libibverbs/"
cp "$work/root/etc/libibverbs.d/rxe.driver" "$guest/etc/libibverbs.d/"
printf 'root:x:0:0:root:/root:/bin/sh\n' >"$guest/etc/passwd"
printf 'root:x:0:\n' >"$guest/etc/group"
printf '127.0.0.1 localhost\n' >"$guest/etc/hosts"
printf '/%s\n' "$libraries" >"$guest/etc/ld.so.conf"
cp "$init" "$guest/init"
chmod 755 "$guest/init"

# Modules in the order in which they are to be loaded: each behind what it depends on. What is built
# into the kernel is not in the list.
depmod_order() {  # MODULE
  path=$(sed -n "s|^\(kernel/[^:]*/$1\.ko[^:]*\):.*|\1|p" "$modules_dep" | head -n 1)
  [ -n "$path" ] || return 0
  # modules.dep has the nearest dependency first.
  for one in $(sed -n "s|^$path: *||p" "$modules_dep" | tr ' ' '\n' | sed '1!G;h;$!d') "$path"; do
    grep -qxF "$one" "$work/order" || printf '%s\n' "$one" >>"$work/order"
  done
}
modules_dep=$modules_from/modules.dep
if [ ! -s "$modules_dep" ]; then
  # Debian makes it when a kernel is installed.
  PATH=$PATH:/sbin:/usr/sbin
  if command -v depmod >/dev/null; then
    depmod -b "$work/kernel" "$release"
  else
    "$guest/bin/busybox" depmod -b "$work/kernel" "$release"
  fi
fi
: >"$work/order"
for name in $modules; do depmod_order "$name"; done
grep -q '/rdma_rxe\.ko' "$work/order" || die "$package has no rdma_rxe"
while read -r path; do
  file=$guest/modules/$(basename "$path" | sed 's/\.ko.*/.ko/; s/-/_/g')
  case $path in
    *.xz) "$guest/bin/busybox" unxz -c "$modules_from/$path" >"$file" ;;
    *) cp "$modules_from/$path" "$file" ;;
  esac
  if command -v strip >/dev/null; then strip --strip-debug "$file"; fi
  printf '%s\n' "${file##*/}" >>"$guest/modules/order"
done <"$work/order"

image=$work/image
mkdir "$image"
chmod 755 "$work/guest"
(cd "$guest" && find . | ./bin/busybox cpio -o -H newc -R 0:0 2>/dev/null) |
  gzip -1 >"$image/initrd"

# --- The kernel. A bare ELF file starts faster than one that unpacks itself, if we can unpack it.
compressed=$work/kernel/boot/vmlinuz-$release
cp "$compressed" "$image/kernel"
if command -v xz >/dev/null; then
  offset=$(grep -abo -m 1 "$(printf '\3757zXZ')" "$compressed" |
    head -n 1 | cut -d : -f 1)
  if [ -n "$offset" ]; then
    tail -c "+$((offset + 1))" "$compressed" | xz -dc 2>/dev/null >"$work/vmlinux" || true
    if [ "$(head -c 4 "$work/vmlinux" | tail -c 3)" = ELF ]; then
      if command -v strip >/dev/null; then strip "$work/vmlinux" 2>/dev/null || true; fi
      mv "$work/vmlinux" "$image/kernel"
    fi
  fi
fi
for file in "$work"/cache/archives/*.deb "$work"/kernel/*.deb; do
  basename "$file"
done >"$image/packages"

# --- Whole: from here on it is there, by its versions.
version=$(basename "$work"/kernel/*.deb .deb | sed 's/%[0-9a-fA-F][0-9a-fA-F]/_/g')
name=$version-r$recipe
if [ ! -s "$cache/$name/initrd" ]; then
  rm -rf "${cache:?}/$name"
  mv "$image" "$cache/$name"
fi
ln -sfn "../$name" "$cache/by-name/.$kernel-r$recipe"
mv -T "$cache/by-name/.$kernel-r$recipe" "$link"
say "the image is in $cache/$name ($(du -sh "$cache/$name" | cut -f 1))"
