#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A stock DDP script on Gloo, 64 ranks on 8 hosts of a lab, under `ctrun --warm`: from the launchers' start to the
first step of all, what memory each kind of process has then (Pss), and, for each of FAULTS faults,
from the fault to the next step of all: kill -9 of a rank, of an agent, the power of a host cut (it
boots, and its launcher is started again), a host cut off for some seconds, all by a seed. Each
incarnation that makes a step has all ranks, and no rank of an older one makes a step behind it.

usage: hosts64.py [PYTHON [FAULTS [SEED [HOSTS [RANKS-A-HOST]]]]]
                  a Python that has torch; default CTRUN_TEST_TORCH, 0 faults, seed 1, 8 hosts of 8 ranks"""
import os
import pathlib
import random
import signal
import statistics
import struct
import sys
import time

from launchers import ctrun

import lab

LIMIT_S = 150
# In each incarnation a rank writes a file of fixed size: the times of its first and last step, the
# size of the world.
SCRIPT = """
import mmap, os, struct, sys, time
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(torch.nn.Linear(10, 10))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
name = f"{sys.argv[1]}/{os.environ['CTRUN_GENERATION']}.{rank}"
for step in range(1000000):
    optimizer.zero_grad()
    model(torch.randn(4, 10)).sum().backward()
    optimizer.step()
    now = time.monotonic()
    if step == 0:
        with open(name + ".new", "wb") as file:
            file.write(struct.pack("=ddi", now, now, dist.get_world_size()))
        os.rename(name + ".new", name)
        with open(name, "r+b") as file:
            told = mmap.mmap(file.fileno(), 0)
    told[8:16] = struct.pack("=d", now)
    time.sleep(0.25)
"""


class Job:
    def __init__(self, box, python, hosts, per_host):
        self.box, self.python, self.per_host, self.ranks = box, python, per_host, hosts * per_host
        self.hosts = lab.Lab(box, hosts)
        self.names = [f"node{n + 1}" for n in range(hosts)]
        self.steps, self.runs = box.path("steps"), {}
        self.steps.mkdir()
        self.script = box.write("train.py", SCRIPT)

    def start(self, name):
        own = self.box.path(name)
        own.mkdir(exist_ok=True)
        self.runs[name] = self.hosts.start(
            name, ctrun.program("ctrun"), f"--nnodes={len(self.names)}", f"--nproc-per-node={self.per_host}", "--warm",
            "--rdzv-endpoint=node1:29400", "--rdzv-id=J", "--max-restarts=1000", "--min-uptime=0",
            "--rdzv-conf=keep_alive_interval=1,keep_alive_max_attempt=3", self.script, self.steps,
            env={"PYTHON_EXEC": self.python, "OMP_NUM_THREADS": "1", "TMPDIR": str(own), "CTRUN_CONTROL_DIR": str(own / "ctl"),
                 "CTRUN_EVENTS": str(own / "events")})

    def generations(self):
        return {int(path.name.split(".")[0]) for path in self.steps.iterdir() if path.suffix != ".new"}

    def first_steps(self, above):
        """(generation, when the last rank made its first step) of the first whole one above that; None: there is none."""
        for generation in sorted(self.generations()):
            paths = [self.steps / f"{generation}.{rank}" for rank in range(self.ranks)]
            if generation > above and all(path.exists() for path in paths):
                return generation, max(struct_of(path)[0] for path in paths)
        return None

    def wait_steps(self, above, what):
        return ctrun.wait_until(lambda: self.first_steps(above),
                                lambda: f"{what}: a step of all {self.ranks}\n" + "\n".join(map(str, self.runs.values())), LIMIT_S)

    def check(self):
        """Complaints: two incarnations that made steps at the same time, or one without all
        ranks."""
        spans = {}
        for path in self.steps.iterdir():
            if path.suffix != ".new":
                first, last, size = struct_of(path)
                spans.setdefault(int(path.name.split(".")[0]), []).append((first, last, size))
        bad, before = [], 0.0
        for generation, lives in sorted(spans.items()):
            if any(size != self.ranks for *_, size in lives):
                bad.append(f"generation {generation}: a world of other size")
            if min(first for first, *_ in lives) < before:
                bad.append(f"generation {generation}: made a step beside an older one")
            before = max(before, max(last for _, last, _ in lives))
        return bad

    # ---- Faults

    def kill_rank(self, dice, name):
        mine = kinds(self.box)["workers"]
        os.kill(dice.choice(mine), signal.SIGKILL)

    def kill_agent(self, dice, name):
        for pid in self.hosts.agents(name):
            os.kill(pid, signal.SIGKILL)
        self.runs[name].wait(60)
        self.start(name)

    def cut_power(self, dice, name):
        self.hosts.cut_power(name)
        self.runs[name].wait(60)
        self.hosts.boot(name)
        self.start(name)

    def cut_off(self, dice, name):
        self.hosts.partition(name)
        time.sleep(dice.uniform(1, 6))
        self.hosts.heal()
        if self.runs[name].code is not None:
            self.start(name)

    def close(self):
        for run in self.runs.values():
            run.signal(signal.SIGTERM)
        for run in self.runs.values():
            run.wait(60)
        self.hosts.down()


def struct_of(path):
    """When it made its first step, its last one, and the size of its world."""
    return struct.unpack("=ddi", path.read_bytes())


def pss_mib(pid):
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="utf-8") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("Pss:")) / 1024
    except (OSError, StopIteration):
        return 0.0


def kinds(box):
    found = {"workers": [], "templates": [], "ctrun": []}
    for pid in box.pids():
        comm = pathlib.Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
        kind = "templates" if comm == "ctrun-template" else "workers" if comm.startswith("python") or comm == "pt_main_thread" \
            else "ctrun"
        found[kind].append(pid)
    return found


def main():
    python = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("CTRUN_TEST_TORCH", ctrun.DEBIAN_PYTHON)
    faults, seed, hosts, per_host = (int(n) for n in (sys.argv[2:] + ["0", "1", "8", "8"][max(0, len(sys.argv) - 2):])[:4])
    if lab.why_not():
        sys.exit(lab.why_not())
    box, dice, took = ctrun.Box(), random.Random(seed), {}
    job = Job(box, python, hosts, per_host)
    try:
        begin = time.monotonic()
        for name in job.names:
            job.start(name)
        generation, at = job.wait_steps(0, "start")
        pss = {kind: [pss_mib(pid) for pid in pids] for kind, pids in kinds(box).items()}
        print(f"{job.ranks} ranks on {hosts} hosts, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}: first step of all "
              f"after {at - begin:.2f} s; Pss {sum(map(sum, pss.values())):.0f} MiB: "
              + ", ".join(f"{len(list_)} {kind} {sum(list_):.0f}" for kind, list_ in pss.items()), flush=True)
        for number in range(faults):
            action = dice.choice([job.kill_rank, job.kill_rank, job.kill_agent, job.cut_power, job.cut_off])
            name = dice.choice(job.names[1:])  # the first has the rendezvous
            print(f"  fault {number + 1} of {faults}, seed {seed}: {action.__name__} {name}", end="", flush=True)
            begin = time.monotonic()
            action(dice, name)
            if action == job.cut_off and job.first_steps(generation) is None and is_whole(job, generation):
                print(": the world went on", flush=True)
                continue
            generation, at = job.wait_steps(generation, action.__name__)
            took.setdefault(action.__name__, []).append(at - begin)
            print(f": {at - begin:.2f} s", flush=True)
        bad = job.check()
    finally:
        job.close()
        box.close()
    for name, found in took.items():
        print(f"  {name:12} {len(found)}: median {statistics.median(found):.2f}, worst {max(found):.2f} s")
    if faults:
        print(f"  {'; '.join(bad) if bad else 'all ranks in each world, and never two worlds'}")
    sys.exit(bool(bad))


def is_whole(job, generation):
    """True when the host was cut off too briefly: all ranks continue."""
    now = time.monotonic()
    paths = [job.steps / f"{generation}.{rank}" for rank in range(job.ranks)]

    def look():
        return job.first_steps(generation) or all(struct_of(path)[1] > now for path in paths)
    ctrun.wait_until(look, "steps go on, or a new world", LIMIT_S)
    return job.first_steps(generation) is None


main()
