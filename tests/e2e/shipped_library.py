#!/usr/bin/env python3
# Owns what libweft-preload.so may ask of the image that it is mounted into.
"""usage: shipped_library.py LIBRARY EXPORTS PROGRAM

LIBRARY is the file that is shipped, EXPORTS the list of its version script, and PROGRAM any program
of this tree: it breaks the rules, which shows that the test can see that.
Exit code 0, or 77 with the reason if this machine cannot."""

import os
import re
import shutil
import subprocess
import sys

NEWEST = (2, 28)
# What every image with glibc has.
LIBRARIES = re.compile(r"(lib(c|m|dl|pthread|rt)\.so\.\d+|ld-linux-[\w-]+\.so\.\d+)$")
KNOWN_VERSION = re.compile(r"GLIBC_(\d+)\.(\d+)(\.\d+)?$")


def objdump(*words):
    return subprocess.run(["objdump", *words], check=True, capture_output=True, text=True,
                          env={**os.environ, "LC_ALL": "C"}).stdout


def imports_and_exports(library):
    """Two lists: (symbol, version) that the library asks for, and the names that it offers."""
    imports, exports = [], []
    for line in objdump("-T", library).splitlines():
        words = line.split()
        if len(words) < 4 or not re.fullmatch(r"[0-9a-f]{8,}", words[0]):
            continue
        if "*UND*" in words:
            version = next((word.strip("()") for word in words[3:-1]
                            if re.fullmatch(r"\(?[A-Z]+_[\w.]+\)?", word)), "")
            imports.append((words[-1], version))
        else:
            exports.append(words[-1])
    return imports, exports


def complaints(library, wanted):
    found = []
    headers = objdump("-p", library)
    for name in re.findall(r"^\s+NEEDED\s+(\S+)", headers, re.M):
        if not LIBRARIES.match(name):
            found.append(f"needs {name}")
    # Whatever is asked of a library, also if no symbol stands for it (GLIBC_ABI_DT_RELR).
    for version in re.findall(r"^\s+0x[0-9a-f]+ 0x\d+ \d+ (\S+)", headers, re.M):
        match = KNOWN_VERSION.match(version)
        if not match or (int(match[1]), int(match[2])) > NEWEST:
            found.append(f"asks for {version}")
    imports, exports = imports_and_exports(library)
    for name, version in imports:
        match = KNOWN_VERSION.match(version)
        if match and (int(match[1]), int(match[2])) > NEWEST:
            found.append(f"{name} is of {version}")
    found += [f"offers {name}" for name in sorted(set(exports) - wanted)]
    found += [f"does not offer {name}" for name in sorted(wanted - set(exports))]
    return found


def main(library, exports, program):
    if shutil.which("objdump") is None:
        print("skipped: needs objdump (binutils)")
        sys.exit(77)
    with open(exports, encoding="utf-8") as file:
        names = re.search(r"global:(.*)local:", file.read(), re.S)[1]
    wanted = set(re.findall(r"\w+", names))
    assert len(wanted) > 50 and len(imports_and_exports(library)[0]) > 50
    assert complaints(program, wanted), "a program of this tree should break the rules"
    found = complaints(library, wanted)
    for line in found:
        print(f"{library}: {line}")
    # All that it asks for is there, and it leaves a program alone that has no use for it.
    subprocess.run(["true"], check=True, env={**os.environ, "LD_PRELOAD": library,
                                              "LD_BIND_NOW": "1"})
    sys.exit(1 if found else 0)


main(*sys.argv[1:])
