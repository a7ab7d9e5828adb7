#!/bin/sh
# Owns finding where this machine has Debian from, for debootstrap. Prints nothing where it has not:
# then debootstrap's own choice is right.
. /etc/os-release
[ "$ID" = debian ] || exit 0
find /etc/apt/sources.list /etc/apt/sources.list.d -name '*.list' -o -name '*.sources' 2>/dev/null |
  sort | xargs -r cat | awk -v suite="$VERSION_CODENAME" '
    $1 == "deb" { sub(/\[[^]]*\] */, ""); if ($3 == suite && !found) { print $2; found = 1 } }
    NF == 0 || $1 == "Types:" { uri = ""; suits = 0 }
    $1 == "URIs:" { uri = $2 }
    $1 == "Suites:" { for (i = 2; i <= NF; ++i) suits = suits || $i == suite }
    uri != "" && suits && !found { print uri; found = 1 }'
