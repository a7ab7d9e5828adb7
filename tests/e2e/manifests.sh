#!/bin/sh
# Owns showing that what we give people to hand to a cluster is what Kubernetes would take: by the
# published schemas, each overlay as kustomize makes it, and by yamllint.
# usage: manifests.sh REPOSITORY. Needs npm and its registry, yamllint and kubectl.
set -eu
[ "${WEFT_PACKAGE_TESTS-}" = 1 ] || {
  echo "it fetches npm packages: .ci/run packages runs it"
  exit 77
}
for program in npm yamllint kubectl; do
  command -v "$program" >/dev/null || {
    echo "there is no $program: apt-get install npm yamllint kubernetes-client"
    exit 77
  }
done
here=$(cd "$(dirname "$0")" && pwd)
manifests=$1/containers/kubernetes
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
npm install --silent --no-fund --no-audit --prefix "$folder" kubernetes-models@4 js-yaml@5 \
  >"$folder/log" 2>&1 || {
  echo "npm cannot install kubernetes-models and js-yaml here:"
  tail -n 3 "$folder/log"
  exit 77
}
export NODE_PATH="$folder/node_modules"

yamllint --strict -d '{extends: relaxed, rules: {line-length: {max: 140}}}' \
  "$manifests" "$1/containers/compose"
node "$here/manifests.mjs" "$manifests"/base/*.yaml "$manifests"/samples/*.yaml
for overlay in "$manifests"/overlays/*/; do
  kubectl kustomize "$overlay" >"$folder/overlay.yaml"
  node "$here/manifests.mjs" "$folder/overlay.yaml"
done

# A check that finds nothing would pass all of this, too.
sed 's/containers:/contaners:/' "$manifests/samples/pod.yaml" >"$folder/wrong.yaml"
if node "$here/manifests.mjs" "$folder/wrong.yaml"; then
  echo "a pod without containers is said to be right"
  exit 1
fi
