#!/usr/bin/env python3
# Owns the test that docs/experiments.md says what the simulator prints.
"""usage: sim_experiments.py WEFT DOCUMENT [--write]   --write: mend the document instead"""

import re
import subprocess
import sys
from pathlib import Path

# The rows of the document's tables, by the run that each is about. The first table has the time of
# the last flow, for an incast its ratio to the ideal one; the second the median and the 99th
# percentile, or the last flow where it says so.
RESULTS = {
    "E1 permutation 1024, 100G": "e1-permutation",
    "E1 one link at 25 %": "e1-permutation / slow-link",
    "E1 400G": "e1-permutation / 400g",
    "E1 128 hosts": "e1-permutation / 128-hosts",
    "E2 256 entropies": "e2-entropies",
    "E2 32 entropies": "e2-entropies / 32-entropies",
    "E3 half-speed uplink": "e3-slow-uplink",
    "E3b symmetric": "e3b-symmetric",
    "E4 two failures": "e4-link-failures",
    "E5 incast 32": "e5-incast-32",
    "E5 incast 48": "e5-incast-48",
    "E5 incast 127": "e5-incast-127",
    "E5 incast 1023": "e5-incast-1023",
    "E8 all-to-all 128": "e8-all-to-all",
    "E9 oversubscribed 4:1": "e9-oversubscribed-4",
    "E9 oversubscribed 8:1": "e9-oversubscribed-8",
}
BASELINES = {
    "E1 oblivious": "e1-permutation / oblivious",
    "E1 one path": "e1-permutation / one-path",
    "E1 bitmap": "e1-permutation / bitmap",
    "E2 oblivious, 65535 entropies": "e2-entropies / oblivious-65535",
    "E2 oblivious, 256 entropies": "e2-entropies / oblivious-256",
    "E2 oblivious, 32 entropies": "e2-entropies / oblivious-32",
    "E2 one path": "e2-entropies / one-path",
    "E3 oblivious, last flow": "e3-slow-uplink / oblivious",
    "E3b oblivious, last flow": "e3b-symmetric / oblivious",
    "E4 oblivious, last flow": "e4-link-failures / oblivious",
    "E8 NSCC with mixed paths, last flow": "e8-all-to-all / nscc-mixed",
}
COLUMNS = ("min", "p50", "p99", "all", "ideal", "ratio", "jain", "rtx", "cpu", "bounds")
NUMBERS = re.compile(r"^[0-9./ ]*[0-9]")
ROW = re.compile(r"^ *(\S+(?: / \S+)?) +((?:\S+ +){9}\S+)$")


def rows_of(lines):
    """The table of `weft sim --all`, by run."""
    rows = {}
    for line in lines:
        found = ROW.match(line)
        if found and found[2].split()[-1] in ("ok", "-", "FAILED"):
            rows[found[1]] = dict(zip(COLUMNS, found[2].split()))
    return rows


def what_ours_must_be(label, reference, rows):
    """The text at the beginning of the column of our figure, or None if there is no such row."""
    if label in RESULTS:
        row = rows[RESULTS[label]]
        if "ideal" not in reference and "sent again" not in reference:
            return row["all"]
        digits = 3 if "sent again" in reference else 4
        return f"{float(row['all']) / float(row['ideal']):.{digits}f}"
    if label in BASELINES:
        row = rows[BASELINES[label]]
        return row["all"] if "last flow" in label else f"{row['p50']} / {row['p99']}"
    return None


def mended(document, printed):
    """The document with today's figures, and what was wrong in it."""
    rows, wrong, lines, met = rows_of(printed), [], [], set()
    inside = False
    for line in document.splitlines():
        inside = line.startswith("    scenario ") or (inside and line.startswith("    "))
        found = ROW.match(line) if inside else None
        cells = [cell.strip() for cell in line.split("|")] if line.startswith("| E") else []
        if found and not line.startswith("    scenario "):
            said = dict(zip(COLUMNS, found[2].split()))
            true = rows.get(found[1])
            met.add(found[1])
            if true is None:
                wrong.append(f"{found[1]}: the program has no such run")
                continue
            if any(said[name] != true[name] for name in COLUMNS if name != "cpu"):
                wrong.append(f"{found[1]}: says {said}, is {true}")
                line = "    " + next(it for it in printed if ROW.match(it) and
                                     ROW.match(it)[1] == found[1]).strip()
        elif len(cells) > 3:
            column = 4 if cells[1] in RESULTS else 3
            must = what_ours_must_be(cells[1], cells[2], rows)
            met.add(cells[1])
            musts = {column: must} if must is not None else {}
            if cells[1] in RESULTS:
                musts[5] = f"{float(must) / float(NUMBERS.match(cells[2])[0]):.3f}"
            for place, text in musts.items():
                if NUMBERS.match(cells[place])[0] != text:
                    wrong.append(f"{cells[1]}: says {cells[place]}, is {text}")
                    cells[place] = NUMBERS.sub(text, cells[place], count=1)
            line = " | ".join(cells).strip()
        lines.append(line)
    wrong += [f"{name} is missing" for name in [*rows, *RESULTS, *BASELINES] if name not in met]
    return "\n".join(lines) + "\n", wrong


def main():
    weft, path = sys.argv[1], Path(sys.argv[2])
    outcome = subprocess.run([weft, "sim", "--all"], capture_output=True, text=True)
    if outcome.returncode != 0:
        sys.exit(f"weft sim --all ended with {outcome.returncode}:\n"
                 f"{outcome.stdout}{outcome.stderr}")
    text, wrong = mended(path.read_text(), outcome.stdout.splitlines())
    if sys.argv[3:] == ["--write"]:
        path.write_text(text)
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
