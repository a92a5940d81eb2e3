#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Memory of the launcher itself while eight workers run: all its processes together, workers left
out. PSS counts what processes share once; RSS counts it in each."""
import time

from launchers import launchers, table, waiting

WORKERS = 8


def megabytes(pid, key):
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith(key + ":")) / 1e3


def sample(command):
    """(RSS, PSS) of all processes of the launcher: the least of half a second, as some give memory
    back only when the workers have started."""
    with waiting(command, WORKERS) as own:
        least, end = [float("inf")] * 2, time.monotonic() + 0.5
        while time.monotonic() < end:
            least = [min(old, sum(megabytes(pid, key) for pid in own))
                     for old, key in zip(least, ("Rss", "Pss"))]
        return least


def main():
    rss, pss = {}, {}
    for _ in range(3):
        for name, command in launchers(WORKERS).items():
            values = sample(command)
            rss.setdefault(name, []).append(values[0])
            pss.setdefault(name, []).append(values[1])
    table(f"resident memory of the launcher with {WORKERS} workers, RSS", "MB", rss)
    table("the same, PSS", "MB", pss)


if __name__ == "__main__":
    main()
