#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Processor time that the launcher itself uses while its four workers sleep, in per mille of one
processor. Workers are left out.

usage: idle.py [SECONDS [SAMPLES]]     default 5, 3"""
import os
import sys
import time

from launchers import launchers, table, waiting

WORKERS = 4


def busy_ns(pids):
    """Time on a processor so far, of all threads."""
    total = 0
    for pid in pids:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/schedstat", encoding="ascii") as file:
                total += int(file.read().split()[0])
    return total


def sample(command, seconds):
    with waiting(command, WORKERS) as own:
        time.sleep(1)  # the start may still have work to do
        began, before = time.monotonic_ns(), busy_ns(own)
        time.sleep(seconds)
        return (busy_ns(own) - before) / (time.monotonic_ns() - began) * 1000


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 5
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    samples = {}
    for _ in range(count):
        for name, command in launchers(WORKERS).items():
            samples.setdefault(name, []).append(sample(command, seconds))
    table(f"processor of the launcher with {WORKERS} idle workers", "per mille", samples)


main()
