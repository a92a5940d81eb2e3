#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""From exec of the launcher to the first instruction of the last of 4 workers, and of 64.

usage: start.py [SAMPLES]     default 15; torchrun gets a third of them, and no 64

ctrun and torchrun make a folder for each worker. TMPDIR=/dev/shm takes the disk's file system out
of the measurement: ext4 without a journal, as in many virtual machines, needs up to 0.3 ms for a
folder when hundreds were removed within the last minute, as this very benchmark does."""
import sys

from launchers import FIRST, PROBE, ctrun, launchers, stamps, table


def sample(command, workers):
    """Milliseconds for one launch."""
    box = ctrun.Box()
    try:
        run = box.run(PROBE, "exec", *command, FIRST, seconds=60)
        assert run.code == 0, run
        [began] = stamps(run.err, "exec")
        first = stamps(run.out)
        # A launcher that lets workers write to one file at once may lose a line in another.
        assert len(first) > 0.9 * workers, run
        return (max(first) - began) / 1e6
    finally:
        box.close()


def measure(workers, turns, torchruns):
    samples, peers = {}, launchers(workers)
    for turn in range(turns):
        for name, command in list(peers.items()):
            if name.startswith("torchrun") and turn >= torchruns:
                continue
            try:
                samples.setdefault(name, []).append(sample(command, workers))
            except AssertionError as error:
                if name == "ctrun":
                    raise
                print(f"{name} is left out: {str(error).splitlines()[0]}")
                del peers[name], samples[name]
    table(f"exec to the first instruction of {workers} workers", "ms", samples)


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    measure(4, count, max(1, count // 3))
    measure(64, count, 0)


main()
