#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""From exec of the launcher to the first instruction of the last of four workers.

usage: start.py [SAMPLES]     default 15; torchrun gets a third of them"""
import sys

from launchers import PROBE, ctrun, launchers, stamps, table

WORKERS = 4


def sample(command):
    """Milliseconds for one launch."""
    box = ctrun.Box()
    try:
        run = box.run(PROBE, "exec", *command, PROBE)
        assert run.code == 0, run
        [began] = stamps(run.err, "exec")
        first = stamps(run.out)
        assert len(first) == WORKERS, run
        return (max(first) - began) / 1e6
    finally:
        box.close()


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    samples = {}
    for turn in range(count):
        for name, command in launchers(WORKERS).items():
            if not name.startswith("torchrun") or turn % 3 == 0:
                samples.setdefault(name, []).append(sample(command))
    table(f"exec to the first instruction of {WORKERS} workers", "ms", samples)


main()
