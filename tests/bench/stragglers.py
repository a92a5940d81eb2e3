#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How often --stragglers names the slow rank of a stock DDP job, after how many steps, how often it names one where
there is none, and what it costs of a step.

usage: stragglers.py [PYTHON [TURNS [STEP-MS [RANKS]]]]    a Python whose torch has a recorder; default CTRUN_TEST_TORCH,
                                                           20 turns of each kind, steps of 100 ms, 8 ranks

A step is a pause that differs by up to 10 % by chance, for each rank on its own, and is 5 % longer on the slow rank;
then a backward pass on Gloo. A pause takes no processor, so ranks do not slow down one another where processors are few.
One run, restarted for each turn, with the same seeds each time. The cost is CPU time per step: of torch's threads that
answer in each rank, and of the whole agent."""
import os
import pathlib
import statistics
import sys
import time

from launchers import ctrun, run_before_others

STEPS = 130  # in a turn; a rank must be named within 100
SCRIPT = """
import os, random, sys, time
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
folder, turns, step_s, steps = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, turn = dist.get_rank(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
slow, dice = turn % dist.get_world_size() if turn < turns else -1, random.Random(f"{turn} {rank}")
model = DistributedDataParallel(torch.nn.Linear(10, 10))
log = open(f"{folder}/steps.{turn}", "w", buffering=1) if rank == 0 else None
for step in range(steps):
    time.sleep(step_s * dice.uniform(0.9, 1.1) * (1.05 if rank == slow else 1))
    model(torch.ones(4, 10)).sum().backward()
    if log:
        log.write(f"{time.time_ns()}\\n")
dist.barrier()
if rank == 0:
    os._exit(1)
time.sleep(600)
"""


def steps_of(box, turn):
    """When rank 0 ended each step of it."""
    path = box.path(f"steps.{turn}")
    return [int(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else []


def server_ns(pid):
    """CPU time of the threads of torch's server in a worker."""
    threads = pathlib.Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads
               if (thread / "comm").read_text() == "pt_workerserver\n")


def process_ns(pid):
    return time.clock_gettime_ns(~pid << 3 | 2)  # its CPU clock, as clock_getcpuclockid() makes it


def costs(box, ranks):
    """CPU time so far of the threads that answer in each rank, and of the agent."""
    started = box.events("worker_started")[-ranks:]
    return [server_ns(event["worker_pid"]) for event in started], process_ns(started[0]["pid"])


def measure_cost(box, run, turn, ranks):
    """Shares of a step: of the worst rank, of all ranks and the agent together."""
    def wait(count):
        ctrun.wait_until(lambda: len(steps_of(box, turn)) >= count, lambda: f"{count} steps\n{run}", 300)
        return time.monotonic_ns(), *costs(box, ranks)
    begin, before, agent = wait(1)
    end, after, agent_after = wait(STEPS - 10)
    own = [(b - a) / (end - begin) for a, b in zip(before, after)]
    return max(own), sum(own), (agent_after - agent) / (end - begin)


def judge(box, turn, slow):
    """(whether it is right, text)"""
    at = steps_of(box, turn)
    told = [(sum(ns <= event["time_ns"] for ns in at), event) for event in box.events("straggler")
            if at[0] <= event["time_ns"] <= at[-1]]
    right = not told if slow is None else len(told) == 1 and told[0][1]["rank"] == slow and told[0][0] <= 100
    return right, told, f"{'right' if right else 'WRONG'}; {'rank %d is slow' % slow if slow is not None else 'none is slow'}; told: " + (
        ", ".join(f"rank {event['rank']} after {step} steps, {event['late_us'] / 1000:.1f} ms late, {event['late_permille'] / 10:.1f} %"
                  for step, event in told) or "none")


def main():
    python = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("CTRUN_TEST_TORCH", ctrun.DEBIAN_PYTHON)
    turns, step_ms, ranks = (int(n) for n in (sys.argv[2:] + ["20", "100", "8"][max(0, len(sys.argv) - 2):])[:3])
    run_before_others()  # else a rank that waits for a processor is late, too
    box, right, after, shares = ctrun.Box(), [0, 0], [], []
    run = box.start_ctrun("--standalone", "--warm", "--stragglers", "--min-uptime=0", f"--nproc-per-node={ranks}",
                          f"--max-restarts={2 * turns - 1}", box.write("train.py", SCRIPT), box.dir, str(turns),
                          str(step_ms / 1000), str(STEPS), env={"PYTHON_EXEC": python, "OMP_NUM_THREADS": "1"})
    try:
        for turn in range(2 * turns):
            slow = turn % ranks if turn < turns else None
            shares.append(measure_cost(box, run, turn, ranks))
            ctrun.wait_until(lambda: len(steps_of(box, turn)) == STEPS, lambda: f"{STEPS} steps\n{run}", 300)
            good, told, text = judge(box, turn, slow)
            right[slow is None] += good
            after += [step for step, _ in told] if slow is not None and good else []
            print(f"  turn {turn + 1} of {2 * turns}: {text}; load {os.getloadavg()[0]:.1f}", flush=True)
        run.wait(60)
    finally:
        box.close()
    print(f"{ranks} ranks, steps of {step_ms} ms: the slow rank is named within 100 steps {right[0]} of {turns}"
          + (f", after {statistics.median(after):.0f} (median), {max(after)} (most)" if after else "")
          + f"; one where none is slow {turns - right[1]} of {turns}")
    worst, all_ranks, agent = (statistics.median(column) for column in zip(*shares))
    print(f"CPU time of a step, median of {len(shares)} turns: the worst rank {100 * worst:.3f} %, "
          f"all {ranks} ranks {100 * all_ranks:.3f} %, the agent {100 * agent:.3f} %")


main()
