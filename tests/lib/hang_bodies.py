# SPDX-License-Identifier: Apache-2.0
"""A stock PyTorch script that hangs in one of several ways, or only takes long.

tests/interop/test_hang_torch.py and tests/bench/hangs.py run it. It does not use ctrun."""

# Rank 1 is the one that the others wait for.
SCRIPT = '''import os, signal, sys, threading, time
import torch, torch.distributed as dist
from torch.utils.data import DataLoader

kind, seconds = sys.argv[1], float(sys.argv[2])
AT, CULPRIT = 5, 1


def sleep():
    time.sleep(600)


def lock():
    held = threading.Lock()
    held.acquire()
    held.acquire()


def loop():
    while True: pass


def stop():
    os.kill(os.getpid(), signal.SIGSTOP)


def read():
    ends = os.pipe()
    os.read(ends[0], 1)


def blocked():
    """In state D, as in a read of a disk, until the child has opened the pipe."""
    os.mkfifo(sys.argv[0] + ".pipe")
    os.posix_spawn("/bin/true", ["true"], os.environ, file_actions=[(os.POSIX_SPAWN_OPEN, 0, sys.argv[0] + ".pipe", 0, 0)])


class Slow(list):
    def __getitem__(self, i):
        time.sleep(600)


def loader():
    next(iter(DataLoader(Slow([1, 2]), num_workers=1)))


def leave():
    dist.broadcast(torch.ones(3), src=0)  # the others are in all_reduce


def fault(i):
    if rank == CULPRIT and i == AT and kind in globals():
        globals()[kind]()


def work(i):
    """What takes long, and is no fault: the others wait in the next all_reduce."""
    if rank != CULPRIT or i != (0 if kind == "first" else AT):
        return
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if kind == "evaluation":
            print("evaluated", flush=True)
        if kind == "checkpoint":
            torch.save(torch.ones(1000), f"{sys.argv[3]}/checkpoint")
        if kind in ("evaluation", "checkpoint", "first", "quiet"):
            time.sleep(0.1)
        else:
            return


def train():
    for i in range(10):
        fault(i)
        work(i)
        if kind == "skip" and rank == CULPRIT and i == AT:
            continue
        dist.all_reduce(torch.ones(4 if kind == "shape" and rank == CULPRIT and i == AT else 3))


dist.init_process_group("gloo")
rank = dist.get_rank()
train()
if kind == "skip" and rank == CULPRIT:
    dist.broadcast(torch.ones(1), src=0)
dist.destroy_process_group()
'''

# Kinds in which the stuck rank is in the function of that name.
HANGS = ("blocked", "loader", "lock", "loop", "read", "sleep", "stop")
FINE = ("none", "first", "quiet", "evaluation", "checkpoint")


def line_of(function):
    """The line of the last statement of a function of the script, in which it is stuck."""
    lines = SCRIPT.splitlines()
    at = lines.index(f"def {function}():")
    while lines[at + 1]:
        at += 1
    return at + 1
