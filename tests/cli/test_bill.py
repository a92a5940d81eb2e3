# SPDX-License-Identifier: Apache-2.0
"""How long the first start and each restart took, in parts that add up."""
import json
import os
import re
import signal
import sys

import ctrun
import fake_ssh
import launch
import pytest
import schema
from clock import Clock
from test_nodes import meeting, start_in_order  # noqa: F401 (a fixture)

VICTIM = ["--no-python", ctrun.program("victim")]
PHASES = ["detect", "decide", "stop", "meet", "start", "import", "init", "first step"]
ROUND_MS = 2  # both ends of a bill are whole milliseconds
# What torch's TCPStore sends when it is made: ADD "init/" 1.
COUNT_IN = """import os, socket
store = socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
store.sendall(bytes.fromhex("030500000000000000696e69742f0100000000000000"))
store.recv(8)
"""


def bills(box, of="restart"):
    found = box.events("bill", of=of)
    for bill in found:
        schema.check(bill, "events")
        assert sum(part["ms"] for part in bill["parts"]) == bill["total_ms"]
    return found


def phases(bill):
    return [phase for part in bill["parts"] for phase in part["phases"]]


def part(bill, phase):
    return next(part for part in bill["parts"] if phase in part["phases"])


def lines(run, word=": restart took "):
    return [line for line in run.err.splitlines() if word in line]


def end_after(box, run, of="restart", count=1, code=0):
    """Ends the workers when there are that many bills: a worker that ends before may have no
    bill."""
    box.wait_event("bill", count, of=of)
    box.write("end", "")
    assert run.wait() == code, run
    return bills(box, of)


def summary(box):
    [path] = box.path("logs").glob("*/summary.json")
    found = json.loads(path.read_text())
    schema.check(found, "summary")
    return found


def test_a_restart_is_billed_up_to_its_first_step(box):
    run = box.start_ctrun("--nproc-per-node=2", "--max-restarts=1", "--log-dir=logs", *VICTIM,
                          "@0r0", "step", "4", "step", "10", "touch", "told", "hang", "@1r0", "step", "9", "await", "told",
                          "exit", "3", "@r1", "touch", "again", "await", "go", "@0r1", "step", "8", "@1r1", "step", "7", "@r1",
                          "await", "end")
    ctrun.wait_until(box.path("again").exists, "the second round runs")
    box.write("go", "")
    [bill] = end_after(box, run)
    assert sorted(phases(bill), key=PHASES.index) == PHASES[1:], bill
    assert (bill["unknown"], bill["is_whole"], bill["restart_count"], bill["generation"]) == (["detect"], 1, 1, 2)
    assert part(bill, "first step")["rank"] in (0, 1)
    assert bill["lost_steps"] == 4  # 7 to 10
    [line] = lines(run)
    assert re.fullmatch(r"ctrun: restart took \d+\.\d{3} s: .*first step \d+\.\d{3}; 4 steps lost; not known: detect", line)
    # It starts between the touch of `told` and the event of the worker's end, and ends between `go`
    # and the event of the bill.
    failed = next(e for e in box.events("worker_ended", rank=1) if e["cause"] == "exit")
    told_ns, go_ns = (box.path(name).stat().st_mtime_ns for name in ("told", "go"))
    least_ms, most_ms = (go_ns - failed["time_ns"]) / 1e6, (bill["time_ns"] - told_ns) / 1e6
    assert least_ms - ROUND_MS <= bill["total_ms"] <= most_ms + ROUND_MS, (bill, least_ms, most_ms)
    told = summary(box)
    assert [r["parts"] for r in told["restarts"]] == [bill["parts"]] and told["restarts"][0]["lost_steps"] == 4
    assert told["start"]["generation"] == 1 and told["more_restarts"] == 0


def test_each_rank_has_a_start_of_its_own(box):
    """Rank 1 makes its first step after rank 0 has done so: that is longer than all else that it does."""
    run = box.start_ctrun("--nproc-per-node=3", "--log-dir=logs", *VICTIM, "@0", "step", "1", "touch", "first", "@1", "await",
                          "more", "step", "1", "touch", "second", "@all", "await", "end")
    ctrun.wait_until(box.path("first").exists, "rank 0 has made a step")

    def starts():
        (status,) = json.loads(box.run(ctrun.program("ctrunctl"), "status", "--json").out)["runs"]
        return [worker["start"] for worker in status["workers"]]
    ctrun.wait_until(lambda: starts()[0]["unknown"] == [], starts)
    assert all("first step" in start["unknown"] for start in starts()[1:])
    box.write("more", "")
    ctrun.wait_until(box.path("second").exists, "rank 1 has made a step")
    ctrun.wait_until(lambda: starts()[1]["unknown"] == [], starts)
    box.write("end", "")
    assert run.wait() == 0, run
    for rank, start in enumerate(summary(box)["start_ranks"]):
        assert start["rank"] == rank and sum(part["ms"] for part in start["parts"]) == start["total_ms"], start
        longest = max(start["parts"], key=lambda part: part["ms"])["ms"]
        assert longest in [part["ms"] for part in start["parts"] if part["phases"] == start["slowest"]], start
        assert ("first step" in start["unknown"]) == (rank == 2), start


def test_a_program_that_tells_nothing_is_billed_up_to_its_start(box):
    run = box.ctrun("--nproc-per-node=2", "--max-restarts=1", "sh", "-c", "exit $((3 - 3 * TORCHELASTIC_RESTART_COUNT))")
    assert run.code == 0, run
    [bill] = bills(box)
    assert sorted(phases(bill), key=PHASES.index) == PHASES[1:5]
    assert bill["unknown"] == ["detect", "import", "init", "first step"] and "lost_steps" not in bill
    assert lines(run)[0].endswith("; not known: detect, import, init, first step"), run


def test_ranks_in_the_worker_store_end_the_import_of_a_script_without_steps(box):
    script = box.write("s.py", COUNT_IN + """import time
attempt, rank = os.environ["TORCHELASTIC_RESTART_COUNT"], os.environ["RANK"]
open(f"here.{attempt}.{rank}", "w").close()
while attempt == "0" and not os.path.exists("here.0.1"):
    pass
while not os.path.exists("end") and not (attempt == "0" and rank == "0"):
    time.sleep(0.01)
os._exit(3 if attempt == "0" else 0)
""")
    run = box.start_ctrun("--nproc-per-node=2", "--max-restarts=1", "--log-dir=logs", script,
                          env={"PYTHON_EXEC": sys.executable})
    [bill] = box.wait_event("bill", of="restart") and bills(box)  # while they run
    box.write("end", "")
    assert run.wait() == 0, run
    assert sorted(phases(bill), key=PHASES.index) == PHASES[1:6]
    assert bill["unknown"] == ["detect", "init", "first step"] and part(bill, "import")["phases"] == ["import"]
    start = summary(box)["start"]
    assert [part["phases"] for part in start["parts"]] == [["meet"], ["start"], ["import"]]


def test_what_the_store_is_asked_before_the_first_step_is_init(box):
    script = box.write("s.py", """import os
while os.environ["RANK"] == "1" and not os.path.exists("first"):
    pass
""" + COUNT_IN + f"""
open("first", "w").close()
os.set_inheritable(store.fileno(), True)
os.execv({ctrun.program("victim")!r}, ["victim", "step", "1", "await", "end"])
""")
    run = box.start_ctrun("--nproc-per-node=2", "--log-dir=logs", "--verbose", script, env={"PYTHON_EXEC": sys.executable})
    [bill] = end_after(box, run, "start")
    assert phases(bill) == PHASES[3:] and bill["unknown"] == [], bill
    assert part(bill, "import")["rank"] == 1, bill  # it came last
    assert summary(box)["start"]["parts"] == bill["parts"]
    [line] = lines(run, "start took")
    assert re.search(r"start took \d+\.\d{3} s: meet .*; longest: [a-z ]+", line), line


def test_a_hang_is_detected_from_its_last_step_on(box):
    clock = Clock(box)
    run = box.start_ctrun("--nproc-per-node=2", "--hang-timeout=1000", "--max-restarts=1", "--shutdown-timeout=2",
                          "--rdzv-conf=keep_alive_interval=2000", *VICTIM, "@0r0", "step", "1", "hang",
                          "@1r0", "step", "2", "hang", "@all", "step", "3", "await", "end", env=clock.env)
    ctrun.wait_until(lambda: launch.steps(box) == {0: 1, 1: 2}, lambda: f"both have told a step\n{run}")
    clock.advance(1000)
    [bill] = end_after(box, run)
    assert bill["parts"][0]["phases"] == ["detect"] and bill["parts"][0]["ms"] >= 1000000, bill
    assert bill["unknown"] == [] and bill["lost_steps"] == 0


def test_a_restart_that_fails_before_its_first_step_is_said_not_to_be_whole(box):
    run = box.start_ctrun("--nproc-per-node=1", "--max-restarts=2", "--min-uptime=0", *VICTIM,
                          "@r0", "step", "5", "exit", "3", "@r1", "exit", "4", "@r2", "step", "6", "await", "end")
    first, second = end_after(box, run, count=2)
    assert (first["is_whole"], "first step" in phases(first), "lost_steps" in first) == (0, False, False)
    assert (second["is_whole"], "first step" in phases(second)) == (1, True)
    assert lines(run)[0].endswith("; the round ended before the restart was complete") and len(lines(run)) == 2, run


def test_each_node_bills_what_it_saw_and_one_tells_it(box, meeting):  # noqa: F811
    runs = start_in_order(box, meeting, (2, 3), "2", "--max-restarts=1", *VICTIM,
                          "@r0", "on", "USR1", "3", "step", "1", "hang", "@all", "step", "2", "await", "end")
    box.wait_workers(2)
    ctrun.wait_until(lambda: len(box.events("bill", of="start")) == 2, "both nodes have told their steps")
    os.kill(box.workers(restart=0)[1], signal.SIGUSR1)
    box.wait_event("bill", 2, of="restart")
    box.write("end", "")
    assert [run.wait() for run in runs] == [0, 0], runs
    found = bills(box)
    assert [bill["generation"] for bill in found] == [2, 2] and len({bill["pid"] for bill in found}) == 2
    told = [line for run in runs for line in lines(run)]
    assert len(told) == 1 and " s on this node: " in told[0], runs


def test_with_hosts_one_line_is_told_and_the_budget_is_a_limit(box):
    ssh = box.write("limit_b", '#!/bin/sh\n[ "$1" = b ] && export FAKE_SSH_ENV=CTRUN_BUDGET=0.001\n'
                               f'exec {fake_ssh.local(box)} "$@"\n', 0o755)
    script = f"exec {VICTIM[1]} @r0 step 1 exit 3 @r1 touch again.$RANK await go step 2 await end"
    run = box.start_ctrun("--hosts=a,b", "--max-restarts=1", "--no-python", "sh", "-c", script,
                          env={"CTRUN_HOSTS_ENV": "TMPDIR", "CTRUN_SSH": ssh})
    ctrun.wait_until(lambda: all(box.path(f"again.{rank}").exists() for rank in (0, 1)), "the second round runs on both")
    box.write("go", "")
    end_after(box, run, count=2, code=78)  # one node of two is over its limit
    assert len(lines(run)) == 1 and " s on this node: " in lines(run)[0], run
    assert "error[E_BUDGET]: 1 of 1 restart took longer" in run.err, run


@pytest.mark.parametrize("style", ["own", "torchrun"])
def test_a_run_with_a_restart_over_its_budget_fails(box, style):
    run = box.start_ctrun("--max-restarts=1", "--budget=0.001", "--log-dir=logs", f"--exit-code={style}", *VICTIM,
                          "@r0", "step", "1", "exit", "3", "@r1", "touch", "again", "await", "go", "step", "2", "await", "end")
    ctrun.wait_until(box.path("again").exists, "the second round runs")
    box.write("go", "")
    end_after(box, run, code=78 if style == "own" else 1)
    assert re.search(r"ctrun: warning\[E_BUDGET\]: restart took .*; longer than --budget=0.001\n", run.err), run
    assert re.search(r"ctrun: error\[E_BUDGET\]: 1 of 1 restart took longer than --budget=0.001 on \S+, the longest "
                     r"\d+\.\d{3} s; the run has succeeded\n", run.err), run
    told = summary(box)
    assert (told["outcome"], told["error"], told["exit_code"]) == ("succeeded", "E_BUDGET", run.code)
    assert told["restarts"][0]["is_over_budget"] is True


def test_a_run_within_its_budget_succeeds(box):
    run = box.ctrun("--max-restarts=1", *VICTIM, "@r0", "step", "1", "exit", "3", "@r1", "step", "2",
                    env={"CTRUN_BUDGET": "1000"})
    assert run.code == 0 and "E_BUDGET" not in run.err and len(lines(run)) == 1, run


def test_a_failure_is_worse_than_a_budget(box):
    run = box.ctrun("--max-restarts=1", "--min-uptime=0", "--budget=0.001", "sh", "-c", "exit 3")
    assert run.code == 3 and "error[E_BUDGET]" not in run.err, run


@pytest.mark.parametrize("value", ["-1", "nan", "inf", "0.0001", "1e9", "x", ""])
def test_a_budget_that_is_none_is_refused(box, value):
    run = box.ctrun(f"--budget={value}", "true")
    assert run.code == 2 and "--budget" in run.err, run
