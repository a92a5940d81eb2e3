#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a new rank gets from a peer's memory (ctrun_group_catch_up(), checksums included) beside a bare TCP connection.

usage: catch_up.py [MIB] [TURNS]     default 128 MiB, 5 turns

Over loopback as it is, where the processor is the link, and over one that is made as slow as a network of 2 Gbit/s (a
network namespace of its own; needs root, unshare and tc)."""
import statistics
import subprocess
import sys

from launchers import ctrun

SLOW = "ip link set lo up && tc qdisc add dev lo root tbf rate 2gbit burst 256kb latency 100ms && exec \"$0\" \"$@\""


def measure(title, command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        print(f"{title:12} left out: {done.stderr.strip()[-80:]}")
        return
    samples = {}
    for line in done.stdout.splitlines():
        kind, speed = line.split()
        samples.setdefault(kind, []).append(float(speed))
    median = {kind: statistics.median(found) for kind, found in samples.items()}
    print(f"{title:12}" + "".join(f"  {kind} {speed:.3f} GB/s" for kind, speed in median.items()) +
          f"  tcp / link {median['tcp'] / median['link']:.2f}")


def main():
    words = [ctrun.program("catch_up"), *(sys.argv[1:] + ["128", "5"][len(sys.argv) - 1:])]
    measure("loopback", words)
    measure("2 Gbit/s", ["unshare", "-n", "sh", "-c", SLOW, *words])


main()
