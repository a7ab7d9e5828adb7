#!/bin/sh
# Owns showing that what we give people to hand to a cluster is what Kubernetes would take: by the
# published schemas, each overlay as kustomize makes it, and by yamllint.
# usage: manifests.sh REPOSITORY. Needs yamllint, npm and its registry, and for the overlays kubectl
# 1.21 or newer. What the machine has is used: exit code 77 if something could not be shown.
set -eu
[ "${WEFT_PACKAGE_TESTS-}" = 1 ] || {
  echo "it fetches npm packages: .ci/run packages runs it"
  exit 77
}

shown=
lacking=
show() { shown="$shown${shown:+, }$1"; }
lack() { lacking="$lacking${lacking:+; }$1"; }
here=$(cd "$(dirname "$0")" && pwd)
manifests=$1/containers/kubernetes
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export NODE_PATH="$folder/node_modules"

check_style() {
  yamllint --strict -d '{extends: relaxed, rules: {line-length: {max: 140}}}' \
    "$manifests" "$1/containers/compose"
}

check_schemas() {
  node "$here/manifests.mjs" "$manifests"/base/*.yaml "$manifests"/samples/*.yaml
}

# A check that finds nothing would pass all of this, too.
check_planted_faults() {
  sed 's/containers:/contaners:/' "$manifests/samples/pod.yaml" >"$folder/wrong.yaml"
  sed 's/^kind: Pod/kind: Pood/' "$manifests/samples/pod.yaml" >"$folder/no_such_kind.yaml"
  sed 's|^apiVersion: batch/v1|apiVersion: batch/v9|' "$manifests/samples/job.yaml" \
    >"$folder/no_such_version.yaml"
  for name in wrong no_such_kind no_such_version; do
    if node "$here/manifests.mjs" "$folder/$name.yaml"; then
      echo "$name.yaml is said to be right"
      exit 1
    fi
  done
}

check_overlays() {
  for overlay in "$manifests"/overlays/*/; do
    kubectl kustomize "$overlay" >"$folder/overlay.yaml"
    node "$here/manifests.mjs" "$folder/overlay.yaml"
  done
}

# Why kubectl makes nothing of the overlays; empty if it does. Of one that does not say its version
# we shall see what it can.
trouble_of_kubectl() {
  if ! command -v kubectl >/dev/null; then
    echo "there is no kubectl, 1.21 is the first that reads them"
    return
  fi
  version=$(kubectl version --client -o json 2>/dev/null | tr -d ' \t\n' |
    sed -n 's/.*"gitVersion":"v\([0-9]*\)\.\([0-9]*\)[^"]*".*/\1 \2/p')
  if [ -n "$version" ] && [ "${version% *}" = 1 ] && [ "${version#* }" -lt 21 ]; then
    echo "kubectl is 1.${version#* }, 1.21 is the first that reads them"
  fi
}

trouble_of_npm() {
  if ! command -v npm >/dev/null; then
    echo "there is no npm (apt-get install npm)"
  elif ! npm install --silent --no-fund --no-audit --prefix "$folder" kubernetes-models@4 \
    js-yaml@5 >"$folder/log" 2>&1; then
    tail -n 3 "$folder/log" >&2
    echo "npm cannot install kubernetes-models and js-yaml here"
  fi
}

if command -v yamllint >/dev/null; then
  check_style "$1"
  show yamllint
else
  lack "yamllint (apt-get install yamllint)"
fi
trouble=$(trouble_of_npm)
if [ -z "$trouble" ]; then
  check_schemas
  check_planted_faults
  show "the schemas of base and samples, the planted faults"
  trouble=$(trouble_of_kubectl)
  if [ -z "$trouble" ]; then
    check_overlays
    show "the overlays"
  else
    lack "the overlays ($trouble)"
  fi
else
  lack "all schemas ($trouble)"
fi
# The last line is the reason that a report of skips has.
if [ -n "$lacking" ]; then
  echo "shown: ${shown:-NOTHING}; NOT SHOWN: $lacking"
  exit 77
fi
