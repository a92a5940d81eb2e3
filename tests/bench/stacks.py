#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long `ctrunctl stacks` takes for many ranks of a stock PyTorch job, and for how long it stops a rank that runs:
rank 0 computes, the others wait for it in a collective. It is stopped for the time that rank 0 did not run, less its
wait for a processor; the same without `ctrunctl stacks` is what the machine itself costs.

usage: stacks.py [PYTHON [RANKS [TIMES]]]     a Python that has torch; default CTRUN_TEST_TORCH, 64 ranks, 20 times"""
import os
import re
import statistics
import sys
import time

from launchers import ctrun

SCRIPT = """
import os, sys, time
import torch, torch.distributed as dist
def waited():
    with open("/proc/thread-self/schedstat") as file:
        return int(file.read().split()[1])
def compute(log):
    before, last = waited(), time.monotonic_ns()
    while True:
        now = time.monotonic_ns()
        if now - last > 50000:
            told = waited()
            log.write(f"{now} {now - last - (told - before)}\\n")
            before, last = told, time.monotonic_ns()
        else:
            last = now
dist.init_process_group("gloo")
dist.barrier()
if dist.get_rank() == 0:
    with open(sys.argv[1], "w", buffering=1) as log:
        compute(log)
dist.all_reduce(torch.ones(1))
"""


def ask(box):
    """(seconds, its answer)"""
    begin = time.monotonic()
    answer = box.run(ctrun.program("ctrunctl"), "stacks")
    return time.monotonic() - begin, answer.out


def agent_ms(box):
    """CPU time that the agent has used."""
    return time.clock_gettime_ns(~box.events("worker_started")[0]["pid"] << 3 | 2) / 1e6  # as clock_getcpuclockid()


def stops(box, begin, end):
    """Milliseconds of rank 0, the longest last."""
    lines = box.path("stops").read_text().split("\n")[:-1]
    return sorted([int(ns) / 1e6 for at, ns in map(str.split, lines) if begin <= int(at) <= end] or [0.0])


def main():
    python = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("CTRUN_TEST_TORCH", ctrun.DEBIAN_PYTHON)
    ranks, times = (int(n) for n in (sys.argv[2:] + ["64", "20"][max(0, len(sys.argv) - 2):])[:2])
    box = ctrun.Box()
    run = box.start_ctrun("--standalone", "--warm", f"--nproc-per-node={ranks}", box.write("train.py", SCRIPT), box.path("stops"),
                          env={"PYTHON_EXEC": python, "OMP_NUM_THREADS": "1"})
    try:
        ctrun.wait_until(box.path("stops").exists, lambda: f"all have met\n{run}", 300)
        ctrun.wait_until(lambda: ask(box)[1].count("all_reduce (") >= ranks - 1, lambda: f"all wait\n{run}", 60)
        marks, took, used = [time.monotonic_ns()], [], agent_ms(box)
        for _ in range(times):
            seconds, text = ask(box)
            took.append(seconds)
            whole = len(re.findall(r"^rank \d+: pid \d+, Python", text, re.M))
            native = len(re.findall(r"^rank \d+:.*\n  thread.*\n    in ", text, re.M))
            assert whole == ranks, text
        marks.append(time.monotonic_ns())
        used = (agent_ms(box) - used) / times
        time.sleep((marks[1] - marks[0]) / 1e9)
        marks.append(time.monotonic_ns())
        with_, without = stops(box, *marks[:2]), stops(box, *marks[1:])
    finally:
        run.signal(15)
        run.wait(60)
        box.close()
    took.sort()
    print(f"{times} x ctrunctl stacks, {ranks} ranks on {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}: median "
          f"{statistics.median(took):.2f}, worst {took[-1]:.2f} s, {used:.0f} ms of a processor in the agent; {len(text)} bytes, C frames of {native} first threads")
    print(f"rank 0 stands still for, at most: {with_[-1]:.2f} ms, {sum(ms > 5 for ms in with_)} times more than 5 ms; "
          f"while nobody asks: {without[-1]:.2f} ms, {sum(ms > 5 for ms in without)} times")


main()
