# SPDX-License-Identifier: Apache-2.0
"""examples/07_elastic as tests run it."""
import re

import ctrun

PROGRAM = ctrun.program("07_elastic")
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


def pids(box):
    """{rank: pid of its last worker}"""
    return {e["rank"]: e["worker_pid"] for e in box.events("worker_started")}


def undisturbed(steps):
    """The result of one rank without faults."""
    box = ctrun.Box()
    run = box.ctrun("--standalone", PROGRAM, str(steps))
    assert run.code == 0, run
    found = result(run)
    assert box.close() == []
    return found
