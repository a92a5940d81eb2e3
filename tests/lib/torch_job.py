# SPDX-License-Identifier: Apache-2.0
"""A stock DDP script with the two lines of ctrun.elastic. It writes a line for each step, and makes
only steps that the test has allowed."""
import os
import subprocess

import ctrun
import pytest

SCRIPT = """import hashlib, os, sys, time
import torch, torch.distributed as dist
import ctrun.elastic
from torch.nn.parallel import DistributedDataParallel
folder, steps, rank = sys.argv[1], int(sys.argv[2]), int(os.environ["RANK"])
dist.init_process_group("gloo")
torch.manual_seed(rank)
net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 4))
model = DistributedDataParallel(net)
optimizer = torch.optim.AdamW(model.parameters())
first = ctrun.elastic.attach(model, optimizer)

def digest():
    told = hashlib.sha256()
    for tensor in net.state_dict().values():
        told.update(tensor.numpy().tobytes())
    for state in optimizer.state.values():
        for name in sorted(state):
            told.update(state[name].numpy().tobytes())
    return told.hexdigest()

def may_step(step):
    with open(f"{folder}/allowed") as file:
        return step < int(file.read())

pid = os.getpid()
while os.path.exists(f"{folder}/steps.{rank}.{pid}"):
    pid += 1 << 22  # a process of another host had the same pid
with open(f"{folder}/steps.{rank}.{pid}", "w", buffering=1) as log:
    for step in range(first, steps):
        while not may_step(step):
            time.sleep(0.005)
        optimizer.zero_grad()
        model(torch.randn(8, 8, generator=torch.Generator().manual_seed(step * 100 + rank))).square().sum().backward()
        optimizer.step()
        log.write(f"{step} {dist.get_world_size()} {digest()}\\n")
dist.destroy_process_group()
"""
PACKAGE = {"PYTHONPATH": str(ctrun.ROOT / "python"), "CTRUN_LIBRARY": str(ctrun.BUILD / "lib" / "libctrun.so"),
           "OMP_NUM_THREADS": "1"}


def has_torch(python):
    """Without importing it, which takes seconds."""
    code = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
    return subprocess.run([python, "-c", code], capture_output=True).returncode == 0


def interpreter(kind):
    """The python with Debian's torch 1.13 ("debian") or with the one that is asked for."""
    python = ctrun.DEBIAN_PYTHON if kind == "debian" else os.environ.get("CTRUN_TEST_TORCH")
    if not python:
        pytest.skip("CTRUN_TEST_TORCH names no python with a newer torch")
    if not has_torch(python):
        pytest.skip(f"{python} has no torch")
    return python


def allow(box, step):
    path = box.path("allowed.new")
    path.write_text(str(step))
    path.rename(box.path("allowed"))


def logs(box):
    """{(rank, pid): [(step, world size, digest)]} of whole lines; the pid is that of the process on
    its host."""
    found = {}
    for path in box.path(".").glob("steps.*"):
        lines = path.read_text().split("\n")[:-1]
        found[tuple(int(n) for n in path.name.split(".")[1:])] = [
            (int(step), int(world), digest) for step, world, digest in map(str.split, lines)]
    return found


def check_steps(made, steps, killed):
    """Each process makes each step once, with the same bits as all others; new ranks begin at the
    current step. The last step of a killed process is not compared: without its sum the others make
    the step again. Returns the sizes that the world had."""
    seen = {}
    for who, lines in made.items():
        own = [step for step, *_ in lines]
        assert own == list(range(own[0], own[0] + len(own))), (who, own)
        assert who in killed or own[-1] == steps - 1, (who, own[-1])
        for step, _, digest in lines[:-1] if who in killed else lines:
            assert seen.setdefault(step, digest) == digest, (who, step)
    assert len(seen) == steps
    return {world for lines in made.values() for _, world, _ in lines}
