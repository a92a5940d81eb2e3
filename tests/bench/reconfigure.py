#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A stock DDP script on Gloo with ctrun.elastic whose ranks are killed again and again, each in its turn, rank 0 too,
under `ctrun --survive=torch --survive-replace --warm`: from kill -9 to the next optimizer step of the last survivor, and
to the first one of all ranks; whether each step was made once, and came to the same bits on all ranks.

usage: reconfigure.py [PYTHON [KILLS [RANKS]]]   a Python with torch 2.15; default CTRUN_TEST_TORCH, 200 kills of 3 ranks"""
import os
import random
import signal
import statistics
import sys
import time

from launchers import ctrun

SCRIPT = """
import hashlib, os, sys, time
import torch, torch.distributed as dist
import ctrun.elastic
from torch.nn.parallel import DistributedDataParallel
rank = int(os.environ["RANK"])
dist.init_process_group("gloo")
torch.manual_seed(rank)
net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
model = DistributedDataParallel(net)
optimizer = torch.optim.AdamW(model.parameters())
first = ctrun.elastic.attach(model, optimizer)
with open(f"{sys.argv[1]}/steps.{rank}.{os.getpid()}", "w", buffering=1) as log:
    for step in range(first, 100000000):
        optimizer.zero_grad()
        model(torch.randn(8, 64)).square().sum().backward()
        optimizer.step()
        now, told = time.monotonic(), hashlib.sha256()
        for tensor in [*net.parameters(), *(t for state in optimizer.state.values() for t in state.values())]:
            told.update(tensor.detach().numpy().tobytes())
        log.write(f"{step} {dist.get_world_size()} {now} {told.hexdigest()[:16]}\\n")
        time.sleep(0.01)
"""
LIMIT_S = 120


class Log:
    """What one process has written, read as it grows."""

    def __init__(self, path):
        self.file, self.rest, self.lines = open(path, encoding="utf-8"), "", []

    def read(self):
        *whole, self.rest = (self.rest + self.file.read()).split("\n")
        self.lines += [(int(a), int(b), float(c), d) for a, b, c, d in map(str.split, whole)]
        return self.lines


def log_of(box, logs, rank, pid):
    path = box.path(f"steps.{rank}.{pid}")
    if pid not in logs and path.exists():
        logs[pid] = Log(path)
    return logs[pid].read() if pid in logs else []


def pids(box, ranks):
    found = {e["rank"]: e["worker_pid"] for e in box.events("worker_started")}
    return found if len(found) == ranks else {}


def first_after(lines, when, world):
    """When the first step behind `when` was made by a world of that size; None: not yet."""
    return next((at for _, size, at, _ in lines[-400:] if at > when and size == world), None)


def kill_one(box, logs, rank, ranks):
    """Seconds to the next step of all survivors, and of all ranks again."""
    now = pids(box, ranks)
    for other, pid in now.items():
        ctrun.wait_until(lambda: log_of(box, logs, other, pid) and logs[pid].lines[-1][1] == ranks, "a step of all", LIMIT_S)
    time.sleep(random.uniform(0.05, 0.15))
    killed = time.monotonic()
    os.kill(now[rank], signal.SIGKILL)
    others = {r: p for r, p in now.items() if r != rank}

    def of(workers, world):
        found = [first_after(log_of(box, logs, r, p), killed, world) for r, p in workers.items()]
        return max(found) if workers and all(found) else None

    fewer = ctrun.wait_until(lambda: of(others, ranks - 1), "a step of the others", LIMIT_S)
    ctrun.wait_until(lambda: pids(box, ranks).get(rank) != now[rank], "another worker", LIMIT_S)
    whole = ctrun.wait_until(lambda: of(pids(box, ranks), ranks), "a step of all", LIMIT_S)
    log_of(box, logs, rank, now[rank])
    logs[f"{now[rank]} until {killed}"] = logs.pop(now[rank])  # another one may get that pid
    box.path(f"steps.{rank}.{now[rank]}").unlink()
    return fewer - killed, whole - killed


def check(logs):
    """Complaints: a step that a process made twice or left out, one that came to other bits elsewhere."""
    seen, bad = {}, []
    for pid, log in logs.items():
        steps = [step for step, *_ in log.read()]
        if steps != list(range(steps[0], steps[0] + len(steps))):
            bad.append(f"pid {pid}: steps are missing, or there twice")
        bad += [f"pid {pid}, step {step}: other bits" for step, _, _, digest in log.lines
                if seen.setdefault(step, digest) != digest]
    return len(seen), bad


def tell(name, found):
    found = sorted(1000 * value for value in found)
    print(f"  {name:28} median {statistics.median(found):6.0f}  p95 {found[int(len(found) * 0.95)]:6.0f}  "
          f"worst {found[-1]:6.0f}", flush=True)


def main():
    python = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("CTRUN_TEST_TORCH", ctrun.DEBIAN_PYTHON)
    kills = int(sys.argv[2]) if len(sys.argv) > 2 else 200
    ranks = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    box, logs = ctrun.Box(), {}
    env = {"PYTHON_EXEC": python, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ctrun.ROOT / "python"),
           "CTRUN_LIBRARY": str(ctrun.BUILD / "lib" / "libctrun.so")}
    run = box.start(ctrun.program("ctrun"), "--standalone", "--warm", "--survive=torch", f"--survive-replace={kills}",
                    f"--nproc-per-node={ranks}", box.write("train.py", SCRIPT), box.dir, env=env)
    try:
        ctrun.wait_until(lambda: pids(box, ranks), lambda: f"workers\n{run}", LIMIT_S)
        load = [os.getloadavg()[0]]
        found = []
        for kill in range(kills):
            found.append(kill_one(box, logs, kill % ranks, ranks))
            load.append(os.getloadavg()[0])
        made, bad = check(logs)
    finally:
        run.signal(signal.SIGKILL)
        run.wait()
        box.close()
    print(f"{kills} kills of {ranks} ranks on {os.cpu_count()} CPUs, load {min(load):.1f} to {max(load):.1f}; from kill -9 [ms]")
    tell(f"to a step of the {ranks - 1} others", [fewer for fewer, _ in found])
    tell(f"to a step of {ranks} ranks", [whole for _, whole in found])
    print(f"  {made} steps: {'each once, the same bits on all ranks' if not bad else '; '.join(bad[:5])}")
    sys.exit(bool(bad))


main()
