#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How soon an end is noticed: from kill -9 of one of four workers to SIGTERM in the last of the
others, and from the last instruction of four workers that end well to the end of the launcher.

usage: exit.py [SAMPLES]     default 15; torchrun gets a third of them"""
import os
import signal
import sys
import time

from launchers import PROBE, box, ctrun, end_of, launchers, run_before_others, stamps, table

WORKERS = 4


def notice(command):
    """Milliseconds until the others have SIGTERM; None when the launcher sends none."""
    room = box()
    try:
        run = room.start(*command, PROBE, "notice")
        ctrun.wait_until(lambda: len(stamps(run.out)) == WORKERS, lambda: f"workers\n{run}", 60)
        probe = os.stat(PROBE)
        victim = next(pid for pid in room.pids()
                      if os.path.samestat(os.stat(f"/proc/{pid}/exe"), probe))
        killed = time.monotonic_ns()
        os.kill(victim, signal.SIGKILL)
        run.wait(120)
        terms = stamps(run.out, "term")
        return (max(terms) - killed) / 1e6 if len(terms) == WORKERS - 1 else None
    finally:
        room.close()


def end(command):
    """Milliseconds from the last worker's end to the launcher's."""
    room = box()
    try:
        run = room.start(*command, PROBE, "last")
        return (end_of(run) - max(stamps(run.out, "last"))) / 1e6
    finally:
        room.close()


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    run_before_others()
    noticed, ended = {}, {}
    for turn in range(count):
        for name, command in launchers(WORKERS).items():
            if name.startswith("torchrun") and turn % 3:
                continue
            value = notice(command)
            if value is not None:
                noticed.setdefault(name, []).append(value)
            ended.setdefault(name, []).append(end(command))
    table("kill -9 of a worker to SIGTERM in the last of the others", "ms", noticed)
    table("end of the last worker to the end of the launcher", "ms", ended)


main()
