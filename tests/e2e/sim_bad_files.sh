#!/bin/sh
# Owns what `weft sim` says about files that make no sense: file, line and remedy, and exit code 2.
# usage: tests/e2e/sim_bad_files.sh WEFT
weft=$1
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failed=0

# expect NAME PATTERN, with the file's text on standard input
expect() {
  cat > "$1"
  said=$("$weft" sim s.yaml 2>&1)
  code=$?
  if [ $code -ne 2 ] || ! printf '%s' "$said" | grep -q "$2"; then
    printf '%s: exit code %s, expected 2 and "%s", found:\n%s\n' "$1" "$code" "$2" "$said"
    failed=1
  fi
}

expect s.yaml "s.yaml:3: unknown key 'transprot'; did you mean 'transport'" << 'END'
topology: {generator: fat-tree, hosts: 16}
traffic: {kind: permutation, bytes: 1000}
transprot: {paths: 16}
END
expect s.yaml "s.yaml:4: topology.rate: expected a positive rate such as 100Gbps" << 'END'
topology:
  generator: fat-tree
  hosts: 16
  rate: -100Gbps
traffic: {kind: permutation, bytes: 1000}
END
expect s.yaml "s.yaml:1: .*17 hosts do not fill leaves of 4; the nearest sizes are 16" << 'END'
topology: {generator: leaf-spine, hosts: 17, hosts_per_leaf: 4, oversubscription: 2}
traffic: {kind: permutation, bytes: 1000}
END
expect s.yaml "s.yaml:2: .*host 'c' cannot be reached from 'a'; add a link" << 'END'
topology:
  nodes:
    a: {kind: host}
    b: {kind: host}
    c: {kind: host}
    d: {kind: host}
    s: {kind: switch}
    t: {kind: switch}
  links:
    - endpoints: ["a:e1", "s:e1"]
    - endpoints: ["b:e1", "s:e2"]
    - endpoints: ["c:e1", "t:e1"]
    - endpoints: ["d:e1", "t:e2"]
traffic: {kind: flows, flows: [{from: 0, to: 2, bytes: 1000}]}
END
expect s.yaml "s.yaml:4: faults.*no link is called 'tor0->nowhere'; write" << 'END'
topology: {generator: fat-tree, hosts: 16}
traffic: {kind: permutation, bytes: 1000}
faults:
  - {link: tor0->nowhere, loss: 0.5}
END
expect s.yaml "s.yaml:2: not valid YAML" << 'END'
topology: [1,
 b: }
END
cat > s.yaml << 'END'
topology: {generator: fat-tree, hosts: 16}
traffic: {kind: matrix, file: m.cm}
END
expect m.cm "m.cm:3: '0->99' must name two nodes from 0 to 15" << 'END'
Nodes 16
Connections 1
0->99 start 0 size 10
END
expect m.cm "m.cm:3: the header says 2 connections, the file has 1" << 'END'
Nodes 16
Connections 2
0->1 start 0 size 10
END
expect m.cm "m.cm:3: 'size' needs a whole number, found '-5'" << 'END'
Nodes 16
Connections 1
0->1 start 0 size -5
END
expect m.cm "m.cm:1: the line 'Nodes N' is missing" < /dev/null
# A file without an end.
said=$("$weft" sim /dev/zero 2>&1)
code=$?
if [ $code -ne 2 ] || ! printf '%s' "$said" | grep -q "/dev/zero: larger than 256 MiB"; then
  echo "exit code $code: $said"
  failed=1
fi
exit $failed
