#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What data-parallel training costs: a DDP step of two ranks over a single rank's step.

usage: ddp_step.py [TURNS [STEPS]]     default 3, and 200 steps of ours (20 of torch's)

64 samples and one thread a rank: ctrun-mnist's kernels over shared memory, and torch's DDP over
gloo (Debian's torch, and the one that CTRUN_TEST_TORCH names). "apart" are two ranks that do not
communicate: what the second process alone costs. "lockstep" are two that meet in a barrier in each step: what
waiting for the slower one costs, too, and so the least that any exchange can take. Each kind runs once in a round;
ratios are of medians over the rounds. On a busy machine only those of processor time mean something."""
import json
import os
import statistics
import subprocess
import sys

import torch_net
from launchers import ROOT, ctrun

DATA = os.environ.get("CTRUN_TEST_MNIST", "/usr/share/datasets/fashion-mnist")
STEPS = {"ctrun": 200, "torch": 20}
KINDS = {"single": ("apart", 1), "apart": ("apart", 2), "lockstep": ("lockstep", 2), "DDP": ("ddp", 2)}
TORCH = torch_net.NET + '''
import json, os, statistics, sys, tempfile, time
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
import torch.distributed as dist
kind, ranks, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
folder = tempfile.mkdtemp()
rank = 0 if ranks == 1 or os.fork() else 1
torch.set_num_threads(1); torch.manual_seed(1)
dist.init_process_group("gloo", init_method="file://" + folder + "/store", rank=rank,
                        world_size=ranks)
net = Net()
if kind == "ddp":
    net = nn.parallel.DistributedDataParallel(net)
opt = torch.optim.Adadelta(net.parameters(), lr=1.0)
x = torch.randn(64, 1, 28, 28); y = torch.randint(0, 10, (64,)); ms = []; cpu = []
dist.barrier()
for i in range(steps + 8):
    begin, used = time.perf_counter(), time.process_time()
    opt.zero_grad(); F.nll_loss(net(x), y).backward()
    if kind == "lockstep":
        dist.barrier()
    opt.step()
    ms.append((time.perf_counter() - begin) * 1e3); cpu.append((time.process_time() - used) * 1e3)
dist.barrier()
if rank == 0:
    print(json.dumps({"ms": statistics.median(ms[8:]), "cpu_ms": statistics.median(cpu[8:])}))
    sys.stdout.flush()
if ranks > 1 and rank == 0:
    os.wait()
if rank == 0:
    import shutil; shutil.rmtree(folder)
os._exit(0)
'''


def contestants():
    """Name -> command in front of KIND RANKS STEPS."""
    found = {"ctrun": [ctrun.program("ddp_step")]}
    for python in (ctrun.DEBIAN_PYTHON, os.environ.get("CTRUN_TEST_TORCH")):
        done = python and subprocess.run(
            [python, "-c", "import torch; print(torch.__version__.split('+')[0])"],
            capture_output=True, text=True, check=False)
        if done and done.returncode == 0:
            found["torch " + done.stdout.strip()] = [python, "-c", TORCH]
    return found


def measure(name, command, kind, ranks):
    words = [*command, kind, str(ranks), str(STEPS[name.split()[0]])]
    if name == "ctrun":
        words.append(DATA)
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=300,
                          env={**os.environ, "OMP_NUM_THREADS": "1"}, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main():
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    STEPS["ctrun"] = int(sys.argv[2]) if len(sys.argv) > 2 else STEPS["ctrun"]
    programs = contestants()
    samples = {}
    for _ in range(turns):
        for name, command in programs.items():
            for label, (kind, ranks) in KINDS.items():
                samples.setdefault((name, label), []).append(
                    measure(name, command, kind, ranks))
    print(f"training step, 64 samples and 1 thread a rank, median of {turns} turns")
    for name in programs:
        wall, cpu = ({label: statistics.median(one[key] for one in samples[name, label])
                      for label in KINDS} for key in ("ms", "cpu_ms"))
        print(f"  {name:14}" + "".join(f" {label} {wall[label]:8.2f} ms (CPU {cpu[label]:.2f})"
                                       for label in KINDS) +
              f"   DDP / single {wall['DDP'] / wall['single']:.3f}"
              f"   DDP / apart {wall['DDP'] / wall['apart']:.3f}"
              f"   DDP / lockstep {wall['DDP'] / wall['lockstep']:.3f}"
              f"   CPU, DDP / single {cpu['DDP'] / cpu['single']:.3f}"
              f"   CPU, DDP / lockstep {cpu['DDP'] / cpu['lockstep']:.3f}")


main()
