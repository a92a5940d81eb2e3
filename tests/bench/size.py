#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What has to come from the disk: bytes of the programs and libraries that the launcher maps, and
its start with four workers when none of those files is in memory. Scripts that Python reads
without mapping them stay in memory, which makes its cold start look better than it is.

usage: size.py [SAMPLES]     default 5"""
import os
import shutil
import sys

from launchers import FIRST, PROBE, ctrun, launchers, stamps, table

WORKERS = 4


def mapped_files(command):
    """Files that processes of the launcher map, the worker left out."""
    box = ctrun.Box()
    try:
        run = box.start(*command, PROBE, "wait")
        ctrun.wait_until(lambda: len(stamps(run.out)) == WORKERS, lambda: f"workers\n{run}", 60)
        found = set()
        for pid in box.pids():
            with open(f"/proc/{pid}/maps", encoding="utf-8") as file:
                found |= {line.split(maxsplit=5)[5].strip() for line in file
                          if len(line.split(maxsplit=5)) == 6}
        run.signal(15)
        run.wait(60)
        return sorted(path for path in found if os.path.isfile(path) and path != PROBE
                      and not path.startswith(("/dev", "/tmp")))
    finally:
        box.close()


def evict(paths):
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def cold_start(command, paths):
    box = ctrun.Box()
    try:
        evict(paths)
        run = box.run(PROBE, "exec", *command, FIRST, seconds=300)
        assert run.code == 0, run
        return (max(stamps(run.out)) - stamps(run.err, "exec")[0]) / 1e6
    finally:
        box.close()


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    files = {name: mapped_files(command) for name, command in launchers(WORKERS).items()}
    table("programs and libraries that are mapped", "MB",
          {name: [sum(map(os.path.getsize, paths)) / 1e6] for name, paths in files.items()})
    table("the program itself", "kB", {
        name: [os.path.getsize(shutil.which(command[0])) / 1e3]
        for name, command in launchers(WORKERS).items()})
    samples = {}
    for _ in range(count):
        for name, command in launchers(WORKERS).items():
            samples.setdefault(name, []).append(cold_start(command, files[name]))
    table(f"cold exec to the first instruction of {WORKERS} workers", "ms", samples)


main()
