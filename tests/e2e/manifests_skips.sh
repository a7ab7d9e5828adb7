#!/bin/sh
# Owns showing that the test of our manifests leaves out no more than what a machine lacks, and says
# what. usage: manifests_skips.sh REPOSITORY. All programs that it needs are stand-ins.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
repository=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failed=0

stand_in() {  # NAME < SCRIPT
  { echo '#!/bin/sh'; cat; } >"$folder/bin/$1"
  chmod +x "$folder/bin/$1"
}

# A machine that lacks nothing.
begin() {
  rm -rf "$folder/bin" "$folder/done"
  mkdir "$folder/bin"
  for program in cat dirname grep mktemp rm sed sh tail tr; do
    ln -s "$(command -v "$program")" "$folder/bin/$program"
  done
  stand_in npm <<'END'
exit 0
END
  stand_in yamllint <<END
echo "yamllint \$*" >>"$folder/done"
END
  # Sees the planted faults, and nothing else.
  stand_in node <<END
shift
echo "\$*" >>"$folder/done"
! grep -q -e contaners -e Pood -e batch/v9 -e FAULT "\$@"
END
  has_kubectl 32
}

has_kubectl() {  # MINOR
  stand_in kubectl <<END
if [ "\$1" = version ]; then
  echo '{"clientVersion": {"major": "1", "minor": "$1", "gitVersion": "v1.$1.2"}}'
else
  echo "made \$2" >>"$folder/done"
  echo "kind: Namespace"
fi
END
}

expect() {  # TITLE EXIT_CODE LAST_LINE
  code=0
  WEFT_PACKAGE_TESTS=1 PATH="$folder/bin" sh "$here/manifests.sh" "$repository" \
    >"$folder/said" 2>&1 || code=$?
  last=$(tail -n 1 "$folder/said")
  if [ "$code" != "$2" ] || [ "$last" != "$3" ]; then
    echo "$1: exit code $code, '$last' where $2, '$3' was expected"
    failed=1
  fi
}

expect_done() {  # TITLE PATTERN
  grep -q -e "$2" "$folder/done" || {
    echo "$1: nothing looked at $2"
    failed=1
  }
}

schemas="the schemas of base and samples, the planted faults"
begin
expect "everything" 0 ""
manifests=$repository/containers/kubernetes
for overlay in "$manifests"/overlays/*/; do
  expect_done "everything" "^made $overlay\$"
done
if [ "$(grep -c '/overlay.yaml$' "$folder/done")" != "$(ls "$manifests/overlays" | wc -l)" ]; then
  echo "everything: not each overlay was looked at"
  failed=1
fi
for file in "$manifests"/base/*.yaml "$manifests"/samples/*.yaml; do
  expect_done "everything" "$file"
done
expect_done "everything" "^yamllint --strict .*$manifests .*containers/compose\$"

begin
has_kubectl 21
expect "the first kubectl" 0 ""

begin
has_kubectl 20
no_overlays="shown: yamllint, $schemas; NOT SHOWN: the overlays"
expect "an old kubectl" 77 "$no_overlays (kubectl is 1.20, 1.21 is the first that reads them)"
for what in yamllint 'base/daemonset.yaml.*samples/pod.yaml' wrong.yaml no_such_kind.yaml \
  no_such_version.yaml; do
  expect_done "an old kubectl" "$what"
done

begin
rm "$folder/bin/kubectl"
expect "no kubectl" 77 \
  "$no_overlays (there is no kubectl, 1.21 is the first that reads them)"

begin
rm "$folder/bin/npm"
no_npm="all schemas (there is no npm (apt-get install npm))"
expect "no npm" 77 "shown: yamllint; NOT SHOWN: $no_npm"

begin
stand_in npm <<'END'
echo no network
exit 1
END
expect "no registry" 77 \
  "shown: yamllint; NOT SHOWN: all schemas (npm cannot install kubernetes-models and js-yaml here)"

begin
rm "$folder/bin/yamllint"
no_yamllint="yamllint (apt-get install yamllint)"
expect "no yamllint" 77 "shown: $schemas, the overlays; NOT SHOWN: $no_yamllint"
rm "$folder/bin/npm"
expect "nothing" 77 "shown: NOTHING; NOT SHOWN: $no_yamllint; $no_npm"

# What is wrong with an overlay, or with making it.
begin
stand_in kubectl <<'END'
if [ "$1" = version ]; then echo '{"gitVersion":"v1.32.2"}'; else echo FAULT; fi
END
expect "a wrong overlay" 1 ""
stand_in kubectl <<'END'
[ "$1" = version ] && exec echo '{"gitVersion":"v1.32.2"}'
echo no such folder
exit 3
END
expect "an overlay that cannot be made" 3 ""

# What is wrong stays wrong on a machine that lacks something.
begin
rm "$folder/bin/kubectl"
stand_in node <<'END'
exit 0
END
expect "blind schemas" 1 "wrong.yaml is said to be right"
stand_in node <<'END'
echo wrong
exit 1
END
expect "wrong manifests" 1 wrong
stand_in yamllint <<'END'
echo ugly
exit 1
END
expect "ugly manifests" 1 ugly
exit $failed
