#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""init_process_group("gloo") of many ranks that begin together, with the variables that ctrun sets for a
PyTorch that knows them, and without; and the requests to the store of rank 0 in it. Ranks are forked (--warm): what is
measured begins behind the imports, and 96 ranks that import by themselves would take 27 GiB.

usage: gloo_start.py PYTHON [RANKS [TURNS]]     default 32 ranks, 3 turns each; PYTHON has torch"""
import re
import statistics
import sys

from launchers import ctrun, run_before_others

SCRIPT = """
import os, time
from datetime import timedelta
import torch, torch.distributed as dist
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
plain = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), world, False,
                      timedelta(seconds=300))
count = 0
class Store(dist.Store):  # counts what passes
    def __init__(self): super().__init__()
    def has_extended_api(self): return True
    def clone(self): return self
    def set_timeout(self, timeout): return plain.set_timeout(timeout)
    timeout = property(lambda self: plain.timeout)
def counted(name):
    def call(self, *words):
        global count
        count += 1
        return getattr(plain, name)(*words)
    return call
for name in ("set", "get", "wait", "add", "check", "compare_set", "multi_get", "multi_set", "append"):
    setattr(Store, name, counted(name))
plain.add("ready", 1)
while plain.add("ready", 0) < world:
    time.sleep(0.02)
begin = time.monotonic()
dist.init_process_group("gloo", store=Store() if rank == 0 else plain, rank=rank, world_size=world)
took = time.monotonic() - begin
plain.set(f"took{rank}", str(took))
if rank == 0:
    every = sorted(float(plain.get(f"took{r}")) for r in range(world))
    print("took %.3f %.3f %d" % (every[world // 2], every[-1], count), flush=True)
    plain.set("end", "1")
plain.wait(["end"])
os._exit(0)
"""


def sample(python, ranks, env):
    box = ctrun.Box()
    try:
        run = box.ctrun("--standalone", "--warm", f"--nproc-per-node={ranks}", box.write("start.py", SCRIPT), seconds=500,
                        env={"PYTHON_EXEC": python, "OMP_NUM_THREADS": "1", **env})
        assert run.code == 0, str(run)
        return [float(n) for n in re.search(r"^took (\S+) (\S+) (\d+)$", run.out, re.M).groups()]
    finally:
        box.close()


def main():
    python, ranks, turns = sys.argv[1], *(int(n) for n in (sys.argv[2:] + ["32", "3"][len(sys.argv) - 2:])[:2])
    run_before_others()
    print(f"init_process_group of {ranks} ranks, median of {turns} turns: median rank, last rank [s], requests of rank 0")
    stories = {"as PyTorch does it": {"TORCH_GLOO_LAZY_INIT": "0"}, "as ctrun sets it": {}}
    found = {name: [] for name in stories}
    for _ in range(turns):
        for name, env in stories.items():
            found[name].append(sample(python, ranks, env))
    for name, samples in found.items():
        print(f"  {name:20}", *(f"{statistics.median(column):8.3f}" for column in zip(*samples)))


main()
