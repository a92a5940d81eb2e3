#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""From kill -9 of one of two workers to the first instruction of both restarted ones.

usage: restart.py [SAMPLES]     default 15; torchrun gets a third of them"""
import os
import signal
import sys
import time

from launchers import PROBE, ctrun, launchers, stamps, table

WORKERS = 2


def rank_of(pid):
    return ctrun.environment(pid).get("RANK")


def sample(command):
    """Milliseconds for one restart."""
    box = ctrun.Box()
    try:
        run = box.start(*command, PROBE, "restart")
        ctrun.wait_until(lambda: len(stamps(run.out)) == WORKERS, lambda: f"workers\n{run}", 60)
        # By its program: an old torchrun's workers lead no process group of their own.
        victim = next(pid for pid in box.pids() if rank_of(pid) == "1"
                      and os.path.samefile(f"/proc/{pid}/exe", PROBE))
        killed = time.monotonic_ns()
        os.kill(victim, signal.SIGKILL)
        assert run.wait(60) == 0, run
        return (max(stamps(run.out)) - killed) / 1e6
    finally:
        box.close()


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    samples = {}
    for turn in range(count):
        for name, command in launchers(WORKERS, "--max_restarts=1").items():
            if not name.startswith("torchrun") or turn % 3 == 0:
                samples.setdefault(name, []).append(sample(command))
    table("kill -9 of a worker to the first instruction of the restarted group", "ms", samples)


if __name__ == "__main__":
    main()
