#!/bin/sh
# Owns a container engine that makes no containers: it answers as podman does, and remembers in
# $FAKE_ENGINE what it was asked for.
#
# A file docker there has it answer as docker where these two differ: in the words of a pod's
# networks, and in subnets. A file fail-NAME has the container NAME refused, a file slow has each
# start take a second.
set -eu
state=$FAKE_ENGINE
mkdir -p "$state/containers" "$state/networks"
echo "$*" >>"$state/log"

# Prints the names in a folder whose file has this label, and this state if one is given.
labelled() {  # FOLDER LABEL [STATE]
  for file in "$1"/*; do
    [ -e "$file" ] || continue
    if grep -qxF "label $2" "$file" && { [ -z "${3:-}" ] || grep -qx "state $3 .*" "$file"; }; then
      basename "$file"
    fi
  done
}

# Notes what the words of `run` and `network create` say, as lines of a key and a value.
note() {  # FILE WORD...
  file=$1
  shift
  while [ $# -gt 0 ]; do
    case $1 in
      --label | --env | --ip | --add-host | --volume | --network | --subnet)
        echo "${1#--} $2" >>"$file"
        shift ;;
    esac
    shift
  done
}

filter() {  # NAME WORD...: the value of --filter NAME=value
  name=$1
  shift
  while [ $# -gt 0 ]; do
    case "$1 ${2:-}" in "--filter $name="*) echo "${2#"$name="}"; return ;; esac
    shift
  done
}

# What docker says of a container that is to have an address, or an interface of a name.
check_as_docker() {  # FILE
  if grep -q '^network .*:' "$1"; then
    echo "invalid argument for \"--network\" flag: invalid field key" >&2
    return 1
  fi
  network=$(sed -n 's/^network //p' "$1")
  if grep -q '^ip ' "$1" && ! grep -q '^subnet ' "$state/networks/$network"; then
    echo "docker: user specified IP address is supported only when connecting to networks with" \
      "user configured subnets." >&2
    return 1
  fi
}

# Docker gives no two networks the same addresses, and takes what is free if none are asked for.
take_pool() {  # FILE
  pool=$(sed -n 's/^subnet //p' "$1")
  if [ -z "$pool" ]; then
    i=18
    while grep -qsx "pool 172.$i.0.0/16" "$state"/networks/*; do i=$((i + 1)); done
    pool=172.$i.0.0/16
  elif grep -qsx "pool $pool" "$state"/networks/*; then
    echo "Error response from daemon: invalid pool request: Pool overlaps with other one on this" \
      "address space" >&2
    return 1
  fi
  echo "pool $pool" >>"$1"
}

case "$1 ${2:-}" in
  --version*)
    [ -e "$state/docker" ] && echo "Docker version 26.1.5, build a72d7cd" ||
      echo "podman version 4.3.1" ;;
  "run "*)
    name=
    previous=
    for word; do
      [ "$previous" != --name ] || name=$word
      previous=$word
    done
    [ ! -e "$state/slow" ] || sleep 1
    [ ! -e "$state/fail-$name" ] || { echo "Error: no such image" >&2; exit 125; }
    [ ! -e "$state/containers/$name" ] || { echo "Error: the name is in use" >&2; exit 125; }
    note "$state/draft-$name" "$@"
    if [ -e "$state/docker" ] && ! check_as_docker "$state/draft-$name"; then
      rm "$state/draft-$name"
      exit 125
    fi
    echo "state running 0" >>"$state/draft-$name"
    mv "$state/draft-$name" "$state/containers/$name"
    echo "$name" ;;
  "ps "*) labelled "$state/containers" "$(filter label "$@")" "$(filter status "$@")" ;;
  "container inspect")
    shift 4
    for name; do
      node=$(sed -n 's/^label weft.node=//p' "$state/containers/$name")
      echo "$name $node $(sed -n 's/^state //p' "$state/containers/$name")"
    done ;;
  "rm "*)
    shift 3
    [ "$1" != --time ] || shift 2
    for name; do
      if grep -qx "state paused .*" "$state/containers/$name"; then
        echo "Error: it is paused" >&2
        exit 125
      fi
      rm -f "$state/containers/$name"
    done ;;
  "start "*)
    sed -i 's/^state .*/state running 0/' "$state/containers/$2"
    echo "$2" ;;
  "unpause "*)
    shift
    for name; do sed -i 's/^state paused.*/state running 0/' "$state/containers/$name"; done ;;
  "network create")
    for name; do :; done
    exec 9>"$state/lock"
    flock 9
    [ ! -e "$state/networks/$name" ] || { echo "Error: $name is in use" >&2; exit 125; }
    : >"$state/draft-of-network"
    note "$state/draft-of-network" "$@"
    [ ! -e "$state/docker" ] || take_pool "$state/draft-of-network" || exit 1
    mv "$state/draft-of-network" "$state/networks/$name"
    echo "$name" ;;
  "network ls") labelled "$state/networks" "$(filter label "$@")" ;;
  "network inspect")
    for name; do :; done
    subnet=$(sed -n 's/^subnet //p; s/^pool //p' "$state/networks/$name" | tail -n 1)
    echo "${subnet:-10.89.0.0/24} " ;;
  "network rm")
    shift 2
    for name; do rm "$state/networks/$name"; done ;;
  "exec --interactive")
    shift 3
    exec "$@" ;;
  "logs "*)
    for name; do :; done
    [ -e "$state/containers/$name" ] || { echo "Error: no such container" >&2; exit 125; }
    echo "said by $name" ;;
  *)
    echo "fake engine: it does not know '$*'" >&2
    exit 125 ;;
esac
