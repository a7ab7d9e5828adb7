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
ip link set fabric up || fail "find the NIC"
ip addr add "$(told address)" dev fabric
# NICs of weft's need no ARP: their Ethernet addresses follow from their addresses.
told neighbours | while read -r address mac; do
  ip neigh replace "$address" lladdr "$mac" dev fabric nud permanent
done
ip -6 addr show dev fabric | grep -q tentative && sleep 1
rdma link add rxe0 type rxe netdev fabric || fail "make a soft-RoCE device"
echo "WEFT-BOOT $(cut -d ' ' -f 1 /proc/uptime) s, Linux $(uname -r)"

told job >/run/job
echo up >"$control"
cd /root
sh /run/job <"$in" >"$out" 2>"$errors"
echo $? >"$control"
poweroff -f
