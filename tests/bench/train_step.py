#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One training step of the MNIST network, batch 64, with 1 and 2 threads: ours beside PyTorch's.

usage: train_step.py [ROUNDS]     default 3

Every PyTorch at hand is a peer: Debian's, with OpenBLAS where it is installed, and the one whose
python CTRUN_TEST_TORCH names. Everybody gets a turn in each round, so that a slow hour of the
machine is slow for all; ratios are of medians over the rounds. Needs a release build:
CTRUN_BUILD=build/release."""
import glob
import json
import os
import statistics
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import ctrun  # noqa: E402
import torch_net  # noqa: E402

DATA = os.environ.get("CTRUN_TEST_MNIST", "/usr/share/datasets/fashion-mnist")
STEPS, BATCH = 60, 64
TORCH = torch_net.NET + '''
import json, statistics, sys, time
threads, steps, batch = map(int, sys.argv[1:])
torch.set_num_threads(threads); torch.manual_seed(1)
net = Net(); net.train(); opt = torch.optim.Adadelta(net.parameters(), lr=1.0)
x = torch.randn(batch, 1, 28, 28); y = torch.randint(0, 10, (batch,)); ms = []
for i in range(steps + 8):
    begin = time.perf_counter()
    opt.zero_grad(); F.nll_loss(net(x), y).backward(); opt.step()
    ms.append((time.perf_counter() - begin) * 1e3)
print(json.dumps({"torch": torch.__version__, "ms": statistics.median(ms[8:])}))
'''


def run(command, env=None):
    """The last line of output as JSON, or None when it cannot run here."""
    done = subprocess.run([str(word) for word in command], env={**os.environ, **(env or {})},
                          capture_output=True, text=True, check=False)
    return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None


def peers():
    """name -> (command prefix, environment)"""
    found = {"torch of Debian": ([ctrun.DEBIAN_PYTHON], {})}
    openblas = glob.glob("/usr/lib/*/openblas-pthread")
    if openblas:
        found["torch of Debian + OpenBLAS"] = ([ctrun.DEBIAN_PYTHON],
                                               {"LD_LIBRARY_PATH": openblas[0]})
    if os.environ.get("CTRUN_TEST_TORCH"):
        found["torch of CTRUN_TEST_TORCH"] = ([os.environ["CTRUN_TEST_TORCH"]], {})
    return found


def measure(threads, samples):
    count = {"OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": str(threads)}
    for backend in ("simd", "onednn"):
        said = run([ctrun.program("step"), backend, threads, STEPS, DATA, BATCH])
        if said:
            samples.setdefault((threads, f"ctrun {backend}"), []).append(said["ms"])
    for name, (python, env) in peers().items():
        said = run([*python, "-c", TORCH, threads, STEPS, BATCH], {**count, **env})
        if said:
            key = (threads, f"{name} ({said['torch']})")
            samples.setdefault(key, []).append(said["ms"])


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    samples = {}
    for _ in range(rounds):
        for threads in (1, 2):
            measure(threads, samples)
    medians = {key: statistics.median(values) for key, values in samples.items()}
    for threads in (1, 2):
        ours = {name: ms for (n, name), ms in medians.items()
                if n == threads and name.startswith("ctrun")}
        print(f"training step, batch {BATCH}, {threads} thread(s), median of {rounds} runs")
        for (n, name), ms in medians.items():
            if n != threads:
                continue
            ratios = "" if name in ours else "".join(
                f"  {mine} / this {value / ms:.3f}" for mine, value in ours.items())
            print(f"  {name:40} {ms:8.2f} ms{ratios}")


main()
