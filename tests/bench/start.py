#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""From exec of the launcher to the first instruction of the last of 4 workers, of 8 and of 64, and,
as these end at once, to the end of the launcher.

usage: start.py [SAMPLES]     default 15; torchrun gets a third of them, and no 64

ctrun and torchrun make a folder for each worker. TMPDIR=/dev/shm takes the disk's file system out
of the measurement: ext4 without a journal, as in many virtual machines, needs up to 0.3 ms for a
folder when hundreds were removed within the last minute, as this very benchmark does."""
import sys

from launchers import FIRST, PROBE, box, end_of, launchers, run_before_others, stamps, table


def sample(command, workers):
    """Milliseconds for one launch: to the last worker, to the end."""
    room = box()
    try:
        run = room.start(PROBE, "exec", *command, FIRST)
        over = end_of(run)
        [began] = stamps(run.err, "exec")
        first = stamps(run.out)
        # A launcher that lets workers write to one file at once may lose a line in another.
        assert len(first) > 0.9 * workers, run
        return (max(first) - began) / 1e6, (over - began) / 1e6
    finally:
        room.close()


def measure(workers, turns, torchruns):
    starts, wholes, peers = {}, {}, launchers(workers)
    for turn in range(turns):
        for name, command in list(peers.items()):
            if name.startswith("torchrun") and turn >= torchruns:
                continue
            try:
                start, whole = sample(command, workers)
                starts.setdefault(name, []).append(start)
                wholes.setdefault(name, []).append(whole)
            except AssertionError as error:
                if name == "ctrun":
                    raise
                print(f"{name} is left out: {str(error).splitlines()[0]}")
                for of in (peers, starts, wholes):
                    of.pop(name, None)
    table(f"exec to the first instruction of {workers} workers", "ms", starts)
    table(f"{workers} workers started and ended", "ms", wholes)


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    run_before_others()
    measure(4, count, max(1, count // 3))
    measure(8, count, 0)
    measure(64, count, 0)


if __name__ == "__main__":
    main()
