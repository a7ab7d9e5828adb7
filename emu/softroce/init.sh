#!/bin/sh
# Owns the guest from its first process on: modules, network, soft-RoCE device, the job, the end.
# What it is to do comes from the host in fw_cfg; the job's streams and exit code leave it by virtio
# ports, apart from the console, which is for the kernel.
export PATH=/bin HOME=/root TERM=dumb
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t tmpfs tmpfs /tmp
mount -t tmpfs tmpfs /run
mkdir -p /dev/shm /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t devpts -o ptmxmode=666 devpts /dev/pts
ln -s /proc/self/fd /dev/fd

while read -r file; do
  insmod "/modules/$file" || echo "cannot load $file"
done </modules/order

given=/sys/firmware/qemu_fw_cfg/by_name/opt/weft
told() { cat "$given/$1/raw" 2>/dev/null; }
port() {  # NAME: its device
  local name
  for name in /sys/class/virtio-ports/*/name; do
    if [ "$(cat "$name")" = "weft.$1" ]; then
      name=${name%/name}
      echo "/dev/${name##*/}"
    fi
  done
}
control=$(port control) out=$(port out) errors=$(port errors) in=$(port in)
fail() { echo "cannot $1"; echo "cannot $1" >"$errors"; echo 125 >"$control"; poweroff -f; }

ip link set lo up
mac=$(told mac)
for one in /sys/class/net/*; do
  name=${one##*/}
  [ "$name" != lo ] || continue
  if [ "$(cat "$one/address")" = "$mac" ]; then
    ip link set "$name" name fabric
  else
    ip link set "$name" name outside
  fi
done
if [ -e /sys/class/net/outside ]; then
  ip link set outside up
  ip addr add 10.0.2.15/24 dev outside
  ip route add default via 10.0.2.2
fi
# Nobody else has this NIC's addresses, so they serve at once; and there is no router.
for name in accept_dad accept_ra; do echo 0 >"/proc/sys/net/ipv6/conf/fabric/$name"; done
ip link set fabric up || fail "find the NIC"
told addresses | while read -r address; do ip addr add "$address" dev fabric; done
rdma link add rxe_0 type rxe netdev fabric || fail "make a soft-RoCE device"
echo "WEFT-BOOT $(cut -d ' ' -f 1 /proc/uptime) s, Linux $(uname -r)"

# A folder of the host's as the root: nothing of it can be changed, and what the job writes stays in
# this guest's memory.
enter_root() {
  mkdir -p /lower /over /new
  mount -t 9p -o trans=virtio,version=9p2000.L,ro,msize=262144,cache=loose root /lower ||
    fail "see the files of the host"
  mount -t tmpfs tmpfs /over
  mkdir /over/upper /over/work
  mount -t overlay -o lowerdir=/lower,upperdir=/over/upper,workdir=/over/work root /new ||
    fail "put a layer over the files of the host"
  for one in proc sys dev run; do mount --rbind "/$one" "/new/$one" || fail "use /$one"; done
}
# As `ss -l` would say it, also of rdma_cm's ports.
somebody_listens() {
  grep -q '^ *[0-9]*: [0-9A-F:]* [0-9A-F:]* 0A ' /proc/net/tcp /proc/net/tcp6 2>/dev/null ||
    rdma resource show cm_id 2>/dev/null | grep -q 'state LISTEN'
}

told job >/run/job
within=
if [ "$(told root)" ]; then
  enter_root
  within='chroot /new /bin/sh'
fi
echo up >"$control"
(until somebody_listens; do sleep 0.2; done; echo serving >"$control") &
cd /root
${within:-sh} /run/job <"$in" >"$out" 2>"$errors"
echo $? >"$control"
poweroff -f
