#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long the others take to get the error when a rank is killed, or ends the group, and to form a group without it.

usage: death.py [TURNS]     default 100 losses of each kind

Four ranks over shared memory and over TCP. First without an agent: from SIGKILL, and from ctrun_group_abort(), to the
error of each other rank's call. Then as workers of ctrun --survive=sdk: from SIGKILL to the agent's event rank_lost,
from there to the error (0: it came earlier), and to the end of ctrun_group_shrink(). The goals are those of a machine
with a core for each rank. survivors.py has programs that wait without the SDK."""
import os
import re
import signal
import statistics
import subprocess
import sys
import time

from launchers import ctrun

PROGRAM = ctrun.program("death")
LOST = re.compile(r"^lost (\d+) (\d+)$", re.M)


def tell(name, found, goal):
    found = sorted(found)
    print(f"  {name:32} {len(found):4} times: median {statistics.median(found):7.2f}, worst {found[-1]:7.2f}, "
          f"within {goal} ms: {sum(ms <= goal for ms in found)}", flush=True)


def forked(wire, what, turns):
    done = subprocess.run([PROGRAM, wire, what, str(turns)], stdout=subprocess.PIPE, text=True, check=True)
    return [float(line) for line in done.stdout.split()]


def lose(box, wire, found):
    """Two of four ranks are lost, one after the other."""
    run = box.start_ctrun("--standalone", "--nproc-per-node=4", "--survive=sdk", "--no-python", PROGRAM, wire, "lose")
    ctrun.wait_until(lambda: run.out.count("opened\n") == 4, lambda: f"4 ranks\n{run}", 60)
    pids = {event["rank"]: event["worker_pid"] for event in box.events("worker_started")[-4:]}
    seen, known = 0, len(box.events("rank_lost"))
    for victim, left in ((2, 3), (3, 2)):
        begin = time.time_ns()
        os.kill(pids[victim], signal.SIGKILL)
        known += 1
        agent = box.wait_event("rank_lost", known)[-1]["time_ns"]
        seen += left
        ctrun.wait_until(lambda want=seen: len(LOST.findall(run.out)) >= want, lambda: f"{left} ranks\n{run}", 60)
        found["SIGKILL to rank_lost"].append((agent - begin) / 1e6)
        for error, shrunk in LOST.findall(run.out)[-left:]:
            found["rank_lost to the error"].append(max(0, int(error) - agent) / 1e6)
            found["rank_lost to the new group"].append((int(shrunk) - agent) / 1e6)
    run.signal(signal.SIGTERM)
    run.wait(60)


def main():
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    print(f"a rank of 4 is lost [ms], {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    for wire in ("shm", "tcp"):
        tell(f"{wire}: SIGKILL to the error", forked(wire, "kill", turns), 200)
        tell(f"{wire}: abort to the error", forked(wire, "abort", turns), 100)
        found = {"SIGKILL to rank_lost": [], "rank_lost to the error": [], "rank_lost to the new group": []}
        box = ctrun.Box()
        try:
            for _ in range((turns + 1) // 2):
                lose(box, wire, found)
        finally:
            box.close()
        for name, times in found.items():
            tell(f"{wire}: {name}", times, 50)


main()
