#!/usr/bin/env python3
# Owns the table of the verbs that devices have.
"""usage: offered.py WEFT PROGRAM DOCUMENT [--write]

Asks an rxe and an efa device for each verb, and compares what they answer with the table in the
document, or writes it there. What adapters have is known from their manuals, not asked. Exit code 1
if the document says something else."""

import subprocess
import sys
from pathlib import Path

BEGIN, END = "<!-- offered.py writes from here -->", "<!-- to here -->"
# Another release has other verbs, and answers some for the device: its table would be another one.
RELEASE = 44
KINDS = ("rxe", "efa:newest")
# Of all others adapters for InfiniBand and RoCE (mlx5) have some form.
ADAPTER_LACKS = {"efadv_create_driver_qp, SRD"}


def asked(weft, program, kind):
    done = subprocess.run([weft, "run", "-q", "--no-prefix", "--device", kind, "--", program],
                          stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, timeout=60,
                          check=True)
    return dict(line.split("\t") for line in done.stdout.splitlines())


def table(answers):
    lines = ["| verb | `rxe` | `efa:newest` | an adapter |", "|---|---|---|---|"]
    verbs = list(dict.fromkeys(verb for one in answers.values() for verb in one))
    for verb in verbs:
        cells = [answers[kind].get(verb, "-") for kind in KINDS]
        cells = [cell if cell in ("yes", "-") else f"`{cell}`" for cell in cells]
        adapter = "no" if verb in ADAPTER_LACKS else "yes"
        # The name of a function, and what was asked of it: "efadv_create_driver_qp, SRD".
        lines.append(f"| `{verb.split(',')[0]}`{verb[len(verb.split(',')[0]):]} | "
                     f"{' | '.join(cells)} | {adapter} |")
    return "\n".join(lines)


def main(weft, program, document, *options):
    if not program:
        print("skipped: this tree was configured without libibverbs-dev with EFA")
        return 77
    if not list(Path("/usr/lib").glob(f"*/libibverbs.so.1.*.{RELEASE}.*")):
        print(f"skipped: the table is of rdma-core {RELEASE}, and this machine has another one")
        return 77
    text = table({kind: asked(weft, program, kind) for kind in KINDS})
    path = Path(document)
    before = path.read_text()
    head, rest = before.split(BEGIN)
    tail = rest.split(END, 1)[1]
    after = f"{head}{BEGIN}\n\n{text}\n\n{END}{tail}"
    if "--write" in options:
        path.write_text(after)
        return 0
    if after != before:
        print(f"{document} says something else; offered.py --write mends it:\n{text}")
        return 1
    return 0


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
