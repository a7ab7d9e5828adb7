#!/usr/bin/env python3
# Owns what a change of the transport did to the cells of the grid, condition by condition.
"""Compares two results of `weft sim --grid --report DIR`, of two builds and the same cells:

    old/weft sim --grid --half held-out --cells 400 --seed 9 --policy default --report before
    new/weft sim --grid --half held-out --cells 400 --seed 9 --policy default --report after
    tests/bench/grid_compare.py before after

Prints a row for each condition: how many metrics, the geometric mean of after over before, how
many are more than 5 % lower (better) or higher, and the worst one. A metric of a run that did not
end has no value: it counts where only one of both ended, and is in no mean."""
import argparse
import json
import math
import sys
from collections import defaultdict
from pathlib import Path

NOTICEABLE = 1.05


def metrics(folder, policy):
    """(cell, metric) -> (condition, value, or None if the run did not end)."""
    found = {}
    for line in (Path(folder) / "grid.jsonl").read_text().splitlines():
        run = json.loads(line)
        if run["policy"] == policy:
            for name, value in run["metrics"].items():
                found[run["cell"], name] = (run["condition"], value)
    if not found:
        raise ValueError(f"{folder}: no run of the policy '{policy}'")
    return found


def compare(before, after):
    """condition -> ratios by cell and metric, and what only one of both has ended."""
    if before.keys() != after.keys():
        odd = sorted(before.keys() ^ after.keys())
        raise ValueError(f"not the same cells: {len(odd)} are in one of both only, such as "
                         f"'{' '.join(odd[0])}'")
    conditions = defaultdict(lambda: {"ratios": {}, "ended": 0, "no longer ends": 0})
    for key, (condition, old) in before.items():
        new = after[key][1]
        row = conditions[condition]
        if old is not None and new is not None:
            row["ratios"][key] = new / old
        elif old is not None:
            row["no longer ends"] += 1
        elif new is not None:
            row["ended"] += 1
    return conditions


def table(conditions):
    names = ("condition", "metrics", "after / before", "better by 5 %", "worse by 5 %", "worst",
             "ends now", "no longer ends")
    yield f"| {' | '.join(names)} |"
    yield "|---" * len(names) + "|"
    for condition, row in sorted(conditions.items()):
        ratios = row["ratios"]
        mean = worst = "-"
        if ratios:
            mean = f"{math.exp(sum(map(math.log, ratios.values())) / len(ratios)):.2f}"
            key = max(ratios, key=ratios.get)
            worst = f"{ratios[key]:.2f} {' '.join(key)}"
        better = sum(ratio < 1 / NOTICEABLE for ratio in ratios.values())
        worse = sum(ratio > NOTICEABLE for ratio in ratios.values())
        cells = (condition, len(ratios), mean, better, worse, worst, row["ended"],
                 row["no longer ends"])
        yield f"| {' | '.join(map(str, cells))} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--policy", default="default")
    options = parser.parse_args()
    try:
        rows = compare(metrics(options.before, options.policy),
                       metrics(options.after, options.policy))
    except (OSError, ValueError, KeyError) as wrong:
        sys.exit(f"grid_compare.py: {wrong}")
    print("\n".join(table(rows)))


if __name__ == "__main__":
    main()
