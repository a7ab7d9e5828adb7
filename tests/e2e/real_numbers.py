#!/usr/bin/env python3
# Owns what every option of `weft` that is a real number says to what is none.
"""usage: real_numbers.py WEFT

"nan" is a real number to the C library: neither too small nor too large for any comparison."""

import re
import subprocess
import sys


def said(*words):
    got = subprocess.run([weft, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                         timeout=60, check=False)
    return got.returncode, got.stdout + got.stderr


weft = sys.argv[1]
commands = re.findall(r"^  ([a-z][a-z0-9-]*) ", said("--help")[1], re.MULTILINE)
assert len(commands) > 20, commands
tried = 0
for command in commands:
    for option in re.findall(r"^  .*?(--[a-z-]+)[^\n]* FLOAT:", said(command, "--help")[1],
                             re.MULTILINE):
        code, text = said(command, option, "nan")
        assert code == 2 and f"{option}: Value nan is no number" in text, (command, option, text)
        tried += 1
print(f"{tried} options")
assert tried > 10, tried
