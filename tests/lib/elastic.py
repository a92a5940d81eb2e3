# SPDX-License-Identifier: Apache-2.0
"""examples/07_elastic as tests run it."""
import re

import ctrun

PROGRAM = ctrun.program("07_elastic")
SLOW = ctrun.program("elastic_slow")  # the same; from step 1000 on a step takes 20 ms, until speed_up()
END = re.compile(r"after (\d+) steps \((.*), (.*)\)")


def result(run):
    steps, slope, offset = END.search(run.out).groups()
    return int(steps), float(slope), float(offset)


def last_step(run):
    return max((int(n) for n in re.findall(r"^step (\d+),", run.out, re.M)), default=0)


def wait_step(run, step):
    ctrun.wait_until(lambda: last_step(run) >= step or run.process.poll() is not None,
                     lambda: f"step {step}\n{run}", 60)
    assert run.process.poll() is None, run


def speed_up(box, until=10**9):
    """SLOW makes the steps before `until` as fast as PROGRAM, and those from it on slowly."""
    box.write("fast_until", f"{until}\n")


class Pids(dict):
    """Waits for the event of a rank that is not there yet: its worker may be quicker."""

    def __init__(self, box):
        super().__init__({e["rank"]: e["worker_pid"] for e in box.events("worker_started")})
        self.box = box

    def __missing__(self, rank):
        return self.box.wait_event("worker_started", rank=rank)[-1]["worker_pid"]


def pids(box):
    """{rank: pid of its last worker}"""
    return Pids(box)


def undisturbed(steps):
    """The result of one rank without faults."""
    box = ctrun.Box()
    run = box.ctrun("--standalone", PROGRAM, str(steps))
    assert run.code == 0, run
    found = result(run)
    assert box.close() == []
    return found
