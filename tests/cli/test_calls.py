# SPDX-License-Identifier: Apache-2.0
"""The report of a rank that is stuck or has died has the last collective of each rank."""
import json
import os
import re
import signal

import ctrun
import launch
from clock import Clock

STOPPER = ctrun.program("stopper")


def start(box, *options, env=None):
    run = box.start_ctrun("--standalone", "--nproc-per-node=3", "--log-dir=logs", "--rdzv-id=calls", *options,
                          STOPPER, box.path("up"), env=env)
    for rank in range(3):
        ctrun.wait_until(box.path(f"up.{rank}").exists, f"rank {rank} is up", 30)
    return run, {e["rank"]: e["worker_pid"] for e in box.wait_event("worker_started", 3)}


def calls(run):
    """rank -> ("in" or "left", number of the collective)"""
    found = {}
    for ranks, verb, number in re.findall(
            r"^ *(?:calls *)?: ranks? ([\d, ]+): (in|left) all_reduce (\d+) ", run.err, re.M):
        found.update({int(rank): (verb, int(number)) for rank in ranks.split(",")})
    return found


def files(box):
    [text] = box.path("logs").glob("*/attempt_0/calls.node0.txt")
    [trace] = box.path("logs").glob("*/attempt_0/calls.node0.json")
    return text.read_text(), json.loads(trace.read_text())


def test_the_rank_that_is_stopped_is_behind_the_others(box):
    clock = Clock(box)
    run, pids = start(box, "--hang-timeout=300", "--shutdown-timeout=2", "--rdzv-conf=keep_alive_interval=1000", env=clock.env)
    os.kill(pids[1], signal.SIGSTOP)
    ctrun.wait_until(lambda: launch.is_stopped_as_the_last(box, 1, pids[1]), lambda: f"rank 1 is stopped\n{run}")
    clock.advance(400)
    assert run.wait(60) == 1, run
    seen = calls(run)
    assert sorted(seen) == [0, 1, 2], run
    assert seen[0][0] == seen[2][0] == "in" and seen[1][1] <= seen[0][1] == seen[2][1], run
    text, trace = files(box)
    for rank in range(3):
        assert f"rank {rank}: the last " in text
        mine = [e for e in trace["traceEvents"] if e["pid"] == rank and e["ph"] == "X"]
        assert len(mine) > 50 and all(e["name"] == "all_reduce" for e in mine), mine
        numbers = [e["args"]["collective"] for e in mine]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert [e["args"]["is_over"] for e in trace["traceEvents"] if e["pid"] == 0 and e["ph"] == "X"][-1] is False
    why = box.run(ctrun.program("ctrunctl"), "why", "logs")
    assert why.code == 0 and "in all_reduce " in why.out and "calls.node0.txt" in why.out, why


def test_the_last_call_of_a_killed_rank_is_known(box):
    run, pids = start(box)
    os.kill(pids[2], signal.SIGKILL)
    assert run.wait(60) == 128 + signal.SIGKILL, run
    assert 2 in calls(run), run
    text, _ = files(box)
    assert "rank 2: the last " in text


def test_a_program_that_calls_nothing_leaves_no_file(box):
    run = box.ctrun("--standalone", "--log-dir=logs", "sh", "-c", "exit 3")
    assert run.code == 3 and "calls" not in run.err, run
    assert not list(box.path("logs").glob("*/attempt_0/calls*"))
