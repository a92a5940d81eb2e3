#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How soon an end is noticed: from kill -9 of one of four workers to SIGTERM in the last of the
others, and from the last instruction of four workers that end well to the end of the launcher.

usage: exit.py [SAMPLES]     default 15; torchrun gets a third of them"""
import os
import signal
import sys
import time

from launchers import PROBE, ctrun, launchers, stamps, table

WORKERS = 4


def notice(command):
    """Milliseconds until the others have SIGTERM; None when the launcher sends none."""
    box = ctrun.Box()
    try:
        run = box.start(*command, PROBE, "notice")
        ctrun.wait_until(lambda: len(stamps(run.out)) == WORKERS, lambda: f"workers\n{run}", 60)
        probe = os.stat(PROBE)
        victim = next(pid for pid in box.pids()
                      if os.path.samestat(os.stat(f"/proc/{pid}/exe"), probe))
        killed = time.monotonic_ns()
        os.kill(victim, signal.SIGKILL)
        run.wait(120)
        terms = stamps(run.out, "term")
        return (max(terms) - killed) / 1e6 if len(terms) == WORKERS - 1 else None
    finally:
        box.close()


def end(command):
    """Milliseconds from the last worker's end to the launcher's."""
    box = ctrun.Box()
    try:
        run = box.start(*command, PROBE, "last")
        assert run.process.wait(120) == 0, run
        over = time.monotonic_ns()
        return (over - max(stamps(run.out, "last"))) / 1e6
    finally:
        box.close()


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 15
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
