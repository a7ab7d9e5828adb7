# Owns the test of tests/bench/grid_compare.py: its means are of what it is given, what does not end
# counts, and results that are not of the same cells are refused.
import json
import subprocess
import sys
import tempfile
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[1] / "bench/grid_compare.py"


def results(folder, values):
    lines = [json.dumps({"cell": f"{cell}/{condition}", "condition": condition, "policy": policy,
                         "metrics": {"tail": value}})
             for (cell, condition, policy), value in values.items()]
    folder.mkdir()
    (folder / "grid.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def compare(*words):
    return subprocess.run([sys.executable, SCRIPT, *words], capture_output=True, text=True,
                          check=False)


def main():
    with tempfile.TemporaryDirectory() as top:
        before = results(Path(top) / "before", {
            ("a", "loss", "default"): 10, ("b", "loss", "default"): 10,
            ("c", "loss", "default"): 10, ("d", "dead", "default"): None,
            ("e", "dead", "default"): 5, ("f", "dead", "default"): None, ("a", "loss", "nscc"): 1})
        after = results(Path(top) / "after", {
            ("a", "loss", "default"): 5, ("b", "loss", "default"): 40,
            ("c", "loss", "default"): 10.1, ("d", "dead", "default"): 7,
            ("e", "dead", "default"): None, ("f", "dead", "default"): None,
            ("a", "loss", "nscc"): 3})
        shown = compare(before, after)
        assert shown.returncode == 0, shown.stderr
        rows = shown.stdout.splitlines()[2:]
        assert rows == ["| dead | 0 | - | 0 | 0 | - | 1 | 1 |",
                        "| loss | 3 | 1.26 | 1 | 1 | 4.00 b/loss tail | 0 | 0 |"], shown.stdout
        other = compare(before, after, "--policy", "nscc")
        assert "| loss | 1 | 3.00 |" in other.stdout, other.stdout
        fewer = results(Path(top) / "fewer", {("a", "loss", "default"): 5})
        for words, says in (((before, fewer), "not the same cells: 5 are in one of both only"),
                            ((before, after, "--policy", "x"), "no run of the policy 'x'"),
                            ((before, Path(top) / "none"), "No such file")):
            refused = compare(*words)
            assert refused.returncode == 1 and says in refused.stderr, refused.stderr


main()
