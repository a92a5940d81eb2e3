#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What data-parallel training costs: a DDP step of two ranks over a single rank's step.

usage: ddp_step.py [ROUNDS]     default 1000 of ours, a tenth of torch's

64 samples and one thread a rank: ctrun-mnist's kernels over shared memory, and torch's DDP over
gloo (Debian's torch, and the one that CTRUN_TEST_TORCH names). A round has one step of each kind, in
the same processes, so that all meet the same noise; ratios are medians over the rounds. "single" is rank 0
alone while the other sleeps. "apart" are two ranks that do not communicate: what the second process alone
costs. "lockstep" are two that meet in a barrier in each step: what waiting for the slower one costs, too,
and so the least that any exchange can take."""
import json
import os
import statistics
import subprocess
import sys

import torch_net
from launchers import ROOT, ctrun

DATA = os.environ.get("CTRUN_TEST_MNIST", "/usr/share/datasets/fashion-mnist")
WALL, CPU = 0, 1
KINDS = ("single", "apart", "lockstep", "DDP")
TORCH = torch_net.NET + '''
import json, os, shutil, sys, tempfile, time
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
import torch.distributed as dist
rounds, warm_up = int(sys.argv[2]), 8
folder = tempfile.mkdtemp()
rank = 0 if os.fork() else 1
torch.set_num_threads(1); torch.manual_seed(1)
dist.init_process_group("gloo", init_method="file://" + folder + "/store", rank=rank,
                        world_size=2)
net = Net()
ddp = nn.parallel.DistributedDataParallel(net)
opt = torch.optim.Adadelta(net.parameters(), lr=1.0)
x = torch.randn(64, 1, 28, 28); y = torch.randint(0, 10, (64,))

def step(kind):
    opt.zero_grad(); F.nll_loss((ddp if kind == "DDP" else net)(x), y).backward()
    if kind == "lockstep":
        dist.barrier()
    opt.step()

for i in range(warm_up + rounds):
    took = {}
    for kind in ("single", "apart", "lockstep", "DDP"):
        dist.barrier()
        begin, used = time.perf_counter(), time.process_time()
        if kind != "single" or rank == 0:
            step(kind)
        took[kind] = [(time.perf_counter() - begin) * 1e3, (time.process_time() - used) * 1e3]
    if rank == 0 and i >= warm_up:
        print(json.dumps(took))
dist.barrier()
if rank == 0:
    sys.stdout.flush(); os.wait(); shutil.rmtree(folder)
os._exit(0)
'''


def contestants():
    """Name -> command in front of RANKS ROUNDS."""
    found = {"ctrun": [ctrun.program("ddp_step")]}
    for python in (ctrun.DEBIAN_PYTHON, os.environ.get("CTRUN_TEST_TORCH")):
        done = python and subprocess.run(
            [python, "-c", "import torch; print(torch.__version__.split('+')[0])"],
            capture_output=True, text=True, check=False)
        if done and done.returncode == 0:
            found["torch " + done.stdout.strip()] = [python, "-c", TORCH]
    return found


def measure(name, command, rounds):
    words = [*command, "2", str(rounds if name == "ctrun" else max(rounds // 10, 1)), DATA]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=600,
                          env={**os.environ, "OMP_NUM_THREADS": "1"}, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    print(f"training step, 2 ranks, 64 samples and 1 thread a rank, median of {rounds} rounds (torch: a tenth)")
    for name, command in contestants().items():
        took = measure(name, command, rounds)

        def median(kind, what=WALL, over=None):
            return statistics.median(one[kind][what] / (one[over][what] if over else 1) for one in took)
        print(f"  {name:14}" + "".join(f" {kind} {median(kind):8.2f} ms (CPU {median(kind, CPU):.2f})"
                                       for kind in KINDS) +
              "".join(f"   DDP / {kind} {median('DDP', WALL, kind):.3f} (CPU {median('DDP', CPU, kind):.3f})"
                      for kind in KINDS[:-1]), flush=True)


main()
