#!/usr/bin/env python3
# Owns the proof that tests/bench/sim_beside_real.py lets `weft sim` send what the harness sends.
"""usage: sim_beside_real.py BUILD"""

import contextlib
import io
import json
import sys
import tempfile
import types
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "bench"))
import sim_beside_real as script  # noqa: E402


def trace_of(sizes):
    """Two iterations of two ranks with a channel each."""
    return [{"name": f"isend {size}", "pid": rank, "tid": 0, "ts": number,
             "args": {"bytes": size}}
            for rank in range(2) for number, size in enumerate(sizes)]


def refused(trace):
    try:
        script.messages_in(trace, 2)
    except RuntimeError as error:
        return str(error)
    raise AssertionError("this is no ring")


def check_reading():
    ring = [40, 30, 20, 10]
    assert script.messages_in(trace_of(ring * 2), 2) == [[ring], [ring]]
    assert "different messages" in refused(trace_of(ring + ring[::-1]))
    assert "no ring" in refused(trace_of(ring[:3] * 2))  # a slice is missing
    assert "no ring" in refused([])


def check_times():
    """An iteration takes from its beginning to a rank's last message, on average over the ranks."""
    schedule = script.Schedule([[[8, 8, 8, 8]]] * 2, 2, warm_up=1, iterations=2)
    rows = [{"state": "done", "start_us": 100.0, "fct_us": 10.0} for _ in schedule.matrix.flows]
    to, last = schedule.measured[-1][-1]
    rows[last] = {"state": "done", "start_us": 150.0, "fct_us": 30.0}
    assert to in (0, 1) and schedule.time_us(rows) == ((180 - 100) + (110 - 100)) / 2 / 2
    rows[0]["state"] = "running"
    try:
        schedule.time_us(rows)
    except RuntimeError:
        return
    raise AssertionError("a message has not arrived")


def check_order(bench, ranks, size):
    """No message leaves before what it passes on can have come; all of them are the harness's."""
    schedule = bench.schedule(ranks, size)
    us = bench.virtual_us(schedule, script.PLAIN)
    rows = [json.loads(line) for line in Path(bench.folder, "flows.json").read_text().splitlines()]
    sent = [0] * ranks
    ends = {}  # by trigger: [(rank, when it can have come there)]
    words = [flow.split() for flow in schedule.matrix.flows]
    options = [dict(zip(each[1::2], each[2::2])) for each in words]
    for row, option in zip(rows, options):
        sent[row["from"]] += row["bytes"]
        if "recv_done_trigger" in option:
            # Its bytes are on the link for so long; its time is until the sender knows.
            came = row["start_us"] + row["bytes"] / 12500
            ends.setdefault(option["recv_done_trigger"], []).append((row["to"], came))
    waited = 0
    for row, option in zip(rows, options):
        if "trigger" in option:
            waited += 1
            assert row["start_us"] > max(came for _, came in ends[option["trigger"]]), (row, option)
            assert row["from"] in [rank for rank, _ in ends[option["trigger"]]], (row, option)
    # All but the first round of each channel wait for something.
    assert waited == len(rows) - ranks * script.CHANNELS * script.SLICES, waited
    iterations = script.WARM_UP + script.ITERATIONS
    empty = [sum(sizes.count(0) for sizes in channels) for channels in schedule.messages]
    assert sent == [iterations * (2 * (ranks - 1) * size // ranks + each) for each in empty], sent
    least = script.floor_us(ranks, size)
    # Slices of large messages are on their way at the same time, so the links never wait for long.
    assert least < us < (1.1 if size >= 1 << 20 else 2) * least, (us, least)
    assert us == bench.virtual_us(schedule, script.PLAIN)
    assert us < bench.virtual_us(schedule, script.EACH_ACKNOWLEDGED)


def check_row(bench):
    """How near the times are is a matter of the machine; here only that there are some."""
    bench.options.seconds = 0.05
    line, _ = script.row_of(bench, 2, "64K")
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert len(cells) == 10 and cells[:2] == ["2", "64K"], line
    assert all(float(cell.split()[0]) > 0 for cell in cells[2:]), line
    bench.options.within = -1
    with contextlib.redirect_stderr(io.StringIO()):
        assert "apart" in script.row_of(bench, 2, "64K")[1]


with tempfile.TemporaryDirectory() as temporary:
    numbers = script.Bench(types.SimpleNamespace(build=sys.argv[1], rounds=1, within=0.1),
                           temporary)
    check_reading()
    check_times()
    check_order(numbers, 2, 1 << 20)
    check_order(numbers, 3, 96 * 1024)
    check_order(numbers, 4, 16 << 20)  # several rounds through the buffer
    check_row(numbers)
