# SPDX-License-Identifier: Apache-2.0
"""--hang-timeout finds a rank that is stopped in the middle of a call, of each kind and over each
transport, long before the deadline of the call, which is ten minutes.

With CTRUN_TEST_STOPS=1 each kind runs over both transports, without it over one of them in turn."""
import os
import re
import signal

import ctrun
import launch
import pytest
from clock import Clock

KINDS = re.findall(r"CALL_(\w+),", (ctrun.ROOT / "tests/lib/calls.h").read_text(encoding="utf-8"))
VICTIM, RANKS = 1, 3


@pytest.fixture
def boxes():
    """Makes one box after the other; the test fails when something is left behind in one."""
    there = []

    def make():
        there.append(ctrun.Box())
        return there[-1]

    yield make
    complaints = [complaint for box in there for complaint in box.close()]
    assert not complaints, complaints


def test_a_rank_that_is_stopped_in_any_call_is_found_before_the_deadline(boxes):
    runs = []
    for number, wire in [(number, wire) for number in range(len(KINDS)) for wire in range(2)]:
        if (number + wire) % 2 and not os.environ.get("CTRUN_TEST_STOPS"):
            continue
        box, wire = boxes(), ("shm", "tcp")[wire]
        clock = Clock(box)
        run = box.start_ctrun("--standalone", f"--nproc-per-node={RANKS}", "--hang-timeout=300", "--shutdown-timeout=1",
                              "--rdzv-conf=keep_alive_interval=1000", "--no-python", ctrun.program("caller"),
                              box.path("ready"), number, wire, env=clock.env)
        runs.append((f"{KINDS[number]} over {wire}", box, clock, run))
    assert len(KINDS) == 12 and len(runs) >= len(KINDS)
    for what, box, clock, run in runs:
        for rank in range(RANKS):
            ctrun.wait_until(box.path(f"ready.{rank}").exists, lambda what=what, run=run: f"{what}: {run}", 60)
        pids = {e["rank"]: e["worker_pid"] for e in box.wait_event("worker_started", RANKS)}
        os.kill(pids[VICTIM], signal.SIGSTOP)
        ctrun.wait_until(lambda box=box, pid=pids[VICTIM]: launch.is_stopped_as_the_last(box, VICTIM, pid),
                         lambda what=what, run=run: f"{what}: {run}")
        clock.advance(400)
    for what, box, clock, run in runs:
        assert run.wait(60) == 1, (what, run)
        head = next(line for line in run.err.splitlines() if line.startswith("ctrun: error["))
        assert head.startswith(f"ctrun: error[E_HANG]: rank {VICTIM} ("), (what, run)
        assert "it is in   : state T" in run.err, (what, run)
