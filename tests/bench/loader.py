#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long steps wait for data: records of 12 KiB in a shuffled order, batches of 64, 5 ms of
computing a step.

usage: loader.py [TURNS]     default 3

Ours with one thread that reads ahead, and with none; torch's DataLoader with one worker process and with
none, for each torch at hand. Each on the machine as it is, and beside one process a core that computes. The file
is dropped from the kernel's cache before each turn where that is possible; shares are medians over the turns."""
import contextlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import ctrun  # noqa: E402

RECORD, RECORDS, BATCH, STEPS, COMPUTE_US = 12288, 40000, 64, 400, 5000
TORCH = '''
import json, os, sys, time
import torch
from torch.utils.data import DataLoader, Dataset
torch.set_num_threads(1)
path = sys.argv[1]; record, batch, steps, us, workers = map(int, sys.argv[2:])
class Records(Dataset):
    fd = None
    def __len__(self):
        return os.path.getsize(path) // record
    def __getitem__(self, i):
        if self.fd is None:
            self.fd = os.open(path, os.O_RDONLY)
        return torch.frombuffer(bytearray(os.pread(self.fd, record, i * record)), dtype=torch.uint8)
batches = iter(DataLoader(Records(), batch, shuffle=True, num_workers=workers))
kept = 0; waited = 0; begin = 0
for step in range(steps):
    asked = time.perf_counter()
    if step == 8:
        begin, waited = asked, 0
    data = next(batches)
    waited += time.perf_counter() - asked
    end = time.thread_time() + us / 1e6
    while time.thread_time() < end:
        kept += int(data[0, 0])
took = time.perf_counter() - begin
print(json.dumps({"step_ms": took / (steps - 8) * 1e3, "wait_share": waited / took}))
sys.stdout.flush()
os._exit(0)
'''


def contestants():
    """Name -> command in front of FILE RECORD_BYTES BATCH STEPS COMPUTE_US THREADS, and THREADS."""
    found = {"ctrun, no thread": ([ctrun.program("loader")], 0), "ctrun, 1 thread": ([ctrun.program("loader")], 1)}
    for python in (ctrun.DEBIAN_PYTHON, os.environ.get("CTRUN_TEST_TORCH")):
        done = python and subprocess.run([python, "-c", "import torch; print(torch.__version__.split('+')[0])"],
                                         capture_output=True, text=True, check=False)
        for workers in (0, 1) if done and done.returncode == 0 else ():
            found[f"torch {done.stdout.strip()}, {workers} worker"] = ([python, "-c", TORCH], workers)
    return found


@contextlib.contextmanager
def busy(cores):
    """So many processes compute meanwhile."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(cores)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def drop_cache(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def main():
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    programs, samples = contestants(), {}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "records")
        with open(path, "wb") as file:
            for _ in range(RECORDS // 100):
                file.write(os.urandom(RECORD) * 100)
        for _, cores, (name, (command, threads)) in itertools.product(
                range(turns), (0, os.cpu_count()), programs.items()):
            drop_cache(path)
            words = [*command, path, *map(str, (RECORD, BATCH, STEPS, COMPUTE_US, threads))]
            with busy(cores):
                done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=True)
            samples.setdefault(name + ", busy" * (cores > 0), []).append(json.loads(done.stdout.splitlines()[-1]))
    print(f"{RECORDS * RECORD >> 20} MiB of records, batches of {BATCH}, median of {turns} turns")
    for name, said in samples.items():
        wait, step = (statistics.median(one[key] for one in said) for key in ("wait_share", "step_ms"))
        print(f"  {name:30} waits {100 * wait:7.3f} % of a step of {step:6.2f} ms")


main()
