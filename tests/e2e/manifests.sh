#!/bin/sh
# Owns showing that what we give people to hand to a cluster is what Kubernetes would take: by the
# published schemas, each overlay as kustomize makes it, and by yamllint.
# usage: manifests.sh REPOSITORY. Needs npm and its registry, yamllint, and kubectl 1.21 or newer.
set -eu
[ "${WEFT_PACKAGE_TESTS-}" = 1 ] || {
  echo "it fetches npm packages: .ci/run packages runs it"
  exit 77
}
nothing_shown() {  # WHY; the last line is the reason that a report of skips has
  echo "NOTHING WAS SHOWN: $*"
  exit 77
}
for program in npm yamllint kubectl; do
  command -v "$program" >/dev/null ||
    nothing_shown "there is no $program (apt-get install npm yamllint; kubectl 1.21 or newer)"
done
# Of one that does not say its version we shall see what it can.
version=$(kubectl version --client -o json 2>/dev/null | tr -d ' \t\n' |
  sed -n 's/.*"gitVersion":"v\([0-9]*\)\.\([0-9]*\)[^"]*".*/\1 \2/p')
if [ -n "$version" ] && [ "${version% *}" = 1 ] && [ "${version#* }" -lt 21 ]; then
  nothing_shown "kubectl 1.${version#* } cannot read the overlays, 1.21 is the first that can"
fi
here=$(cd "$(dirname "$0")" && pwd)
manifests=$1/containers/kubernetes
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
npm install --silent --no-fund --no-audit --prefix "$folder" kubernetes-models@4 js-yaml@5 \
  >"$folder/log" 2>&1 || {
  tail -n 3 "$folder/log"
  nothing_shown "npm cannot install kubernetes-models and js-yaml here"
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
sed 's/^kind: Pod/kind: Pood/' "$manifests/samples/pod.yaml" >"$folder/no_such_kind.yaml"
sed 's|^apiVersion: batch/v1|apiVersion: batch/v9|' "$manifests/samples/job.yaml" \
  >"$folder/no_such_version.yaml"
for name in wrong no_such_kind no_such_version; do
  if node "$here/manifests.mjs" "$folder/$name.yaml"; then
    echo "$name.yaml is said to be right"
    exit 1
  fi
done
