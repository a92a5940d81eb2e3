#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A stock DDP script on Gloo whose rank 0 is killed again and again: from kill -9 to the next optimizer
step of the last rank, by torchrun, by ctrun, and by ctrun --warm; from the launcher's start to the first;
and the memory of many ranks that have stepped (Pss: what is shared is divided by who shares it).

usage: warm.py [PYTHON [KILLS [RANKS]]]   a Python that has torch; default CTRUN_TEST_TORCH, 10 kills of 2 ranks, 8"""
import contextlib
import os
import signal
import statistics
import sys
import time

from launchers import ctrun

LIMIT_S = 60  # for a step after a kill: torchrun's workers may never meet again
SCRIPT = """
import os, sys, time
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(torch.nn.Linear(10, 10))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for step in range(1000000):
    optimizer.zero_grad()
    model(torch.randn(4, 10)).sum().backward()
    optimizer.step()
    if step == 0:
        name = f"{sys.argv[1]}/step.{os.environ['TORCHELASTIC_RESTART_COUNT']}.{rank}"
        with open(name + ".new", "w") as file:
            file.write(f"{time.monotonic()} {os.getpid()}")
        os.rename(name + ".new", name)
    time.sleep(0.05)
"""


def commands(python):
    ctrun_words = [ctrun.program("ctrun"), "--standalone", "--min-uptime=0"]
    return {"torchrun": [python, "-m", "torch.distributed.run", "--standalone"],
            "ctrun": ctrun_words, "ctrun --warm": [*ctrun_words, "--warm"]}


def first_steps(box, attempt, ranks):
    """(when, pids) of the first step of all ranks, or None in time."""
    paths = [box.path(f"step.{attempt}.{rank}") for rank in range(ranks)]
    try:
        ctrun.wait_until(lambda: all(path.exists() for path in paths), "a step", LIMIT_S)
    except AssertionError:
        return None
    told = [path.read_text().split() for path in paths]
    return max(float(at) for at, _ in told), [int(pid) for _, pid in told]


def pss_mib(pid):
    with open(f"/proc/{pid}/smaps_rollup", encoding="utf-8") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Pss:")) / 1024


def start(box, words, python, ranks, kills):
    return box.start(*words, f"--nproc-per-node={ranks}", f"--max-restarts={kills}",
                     box.write("train.py", SCRIPT), box.dir, env={"PYTHON_EXEC": python, "OMP_NUM_THREADS": "1"})


def end(box, run):
    run.signal(signal.SIGKILL)
    for pid in box.pids():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    run.wait()
    box.close()


def kill_again_and_again(words, python, kills):
    """Seconds to the first step, seconds to the next one for each kill, kills after which there was none."""
    box, found, lost = ctrun.Box(), [], 0
    begin = time.monotonic()
    run = start(box, words, python, 2, kills)
    try:
        step = first_steps(box, 0, 2)
        first = step[0] - begin if step else float("nan")
        for attempt in range(1, kills + 1):
            if not step:
                break
            killed = time.monotonic()
            os.kill(step[1][0], signal.SIGKILL)
            step = first_steps(box, attempt, 2)
            found += [step[0] - killed] if step else []
            lost += not step
        return first, found, lost
    finally:
        end(box, run)


def memory(words, python, ranks):
    """Seconds to the first step, MiB of all processes of the job, of the worst worker."""
    box = ctrun.Box()
    begin = time.monotonic()
    run = start(box, words, python, ranks, 0)
    try:
        step = first_steps(box, 0, ranks)
        if not step:
            return None
        return step[0] - begin, sum(pss_mib(pid) for pid in box.pids()), max(pss_mib(pid) for pid in step[1])
    finally:
        end(box, run)


def main():
    python = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("CTRUN_TEST_TORCH", ctrun.DEBIAN_PYTHON)
    kills = int(sys.argv[2]) if len(sys.argv) > 2 else 10
    ranks = int(sys.argv[3]) if len(sys.argv) > 3 else 8
    print(f"2 ranks, {kills} kills: start to the first step; kill -9 to the next: median, p95, worst [s]; never")
    for name, words in commands(python).items():
        first, found, lost = kill_again_and_again(words, python, kills)
        found.sort()
        rest = [statistics.median(found), found[min(len(found) - 1, int(len(found) * 0.95))], found[-1]] if found else []
        print(f"  {name:13} {first:7.2f} ", *(f"{value:8.3f}" for value in rest), f"  never: {lost}", flush=True)
    print(f"{ranks} ranks: start to the first step of all [s], Pss of the whole job, of the largest worker [MiB]")
    for name, words in commands(python).items():
        told = memory(words, python, ranks)
        print(f"  {name:13}", *(f"{value:8.2f}" for value in told or ()), flush=True)


main()
