# SPDX-License-Identifier: Apache-2.0
"""examples/07_elastic as tests run it."""
import re

import ctrun

PROGRAM = ctrun.program("07_elastic")
SLOW = ctrun.program("elastic_slow")  # the same; from step 1000 on a step takes 20 ms, until speed_up()
END = re.compile(r"after (\d+) steps \((.*), (.*)\)")
# A worker without a library: it connects to its agent, and says which rank it is.
AGENT = r"""
import os, signal, socket, struct, sys, time
rank = int(os.environ["RANK"])
name = os.environ["CTRUN_AGENT_SOCKET"]
agent = socket.socket(socket.AF_UNIX)
agent.connect("\0" + name[1:] if name[0] == "@" else name)
def say(kind, body):
    agent.sendall(b"\xc7\x52\x08" + struct.pack("<BI", kind, len(body)) + body)
def hear(kind):
    while True:
        head = agent.recv(8, socket.MSG_WAITALL)
        body = agent.recv(struct.unpack("<I", head[4:])[0], socket.MSG_WAITALL)
        if head[3] == kind:
            return body
def ranks_of(world):
    return [i for i in range(4096) if world[8 + i // 8] >> i % 8 & 1]
say(32, struct.pack("<iQ", rank, int(os.environ["CTRUN_GENERATION"])))
"""


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
