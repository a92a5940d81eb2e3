#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long a checkpoint that the agent holds keeps its worker from training, beside a memcpy() of as many bytes:
of the first two saves, which allocate the memory, and of those after them, which use it again.

usage: hold.py [MIB [SAVES]]     default 1024 and 8; takes six times that memory"""
import json
import statistics
import sys

from launchers import ctrun


def main():
    size, saves = (int(word) for word in (sys.argv[1:] + ["1024", "8"][len(sys.argv) - 1:]))
    box = ctrun.Box()
    try:
        run = box.start_ctrun("--standalone", "--nproc-per-node=1", "--no-python", ctrun.program("hold"),
                              box.path("held"), size, saves, box.path("out"))
        assert run.wait(600) == 0, run
        told = json.loads(box.path("out").read_text())
    finally:
        box.close()
    print(f"{size} MiB, {saves} saves: milliseconds of the processor, and of the clock")
    for name, of in (("the first two", told[:2]), ("again", told[2:])):
        cpu, wall, copy, copy_wall = (statistics.median(one[key] for one in of) for key in (
            "stall_cpu_ms", "stall_ms", "memcpy_cpu_ms", "memcpy_ms"))
        print(f"  {name:14} {cpu:7.1f} {wall:7.1f}   memcpy() {copy:7.1f} {copy_wall:7.1f}   ratio {cpu / copy:.2f}")


main()
