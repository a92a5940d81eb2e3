#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the start of a stock DDP job asks of the file system: calls of all its processes that look at names or open
files, counted by strace: of a run whose ranks make one step and end, and of one whose rank 0 fails once behind that
step. By torchrun, which may never start ranks again and is only asked to start them, by ctrun, and by ctrun --warm; a count
does not depend on the load. What is below /proc, /sys and /dev is the kernel's own, on no disk and no network: it is counted
by itself, and grows with the processes of the machine.

usage: imports.py [PYTHON [RANKS]]     a Python that has torch; default CTRUN_TEST_TORCH, 8 ranks"""
import os
import re
import shutil
import subprocess
import sys

from launchers import ctrun

CALLS = "%%stat,access,faccessat,faccessat2,open,openat,openat2,readlink,readlinkat,getdents64"
# Folder and name in a call; a call with "" is for a file that is open already.
CALL = re.compile(r'^\d+ +\w+\((?:(?:AT_FDCWD|\d+)<([^>]*)>, )?(?!"")(?:"([^"]*)")?', re.M)
SCRIPT = """
import os, sys
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(10, 10))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
model(torch.randn(4, 10)).sum().backward()
optimizer.step()
dist.barrier()
if dist.get_rank() == 0 and os.environ["TORCHELASTIC_RESTART_COUNT"] < sys.argv[1]:
    os._exit(1)
dist.barrier()
os._exit(0)
"""


def commands(python):
    own = [ctrun.program("ctrun"), "--standalone", "--min-uptime=0"]
    return {"torchrun": [python, "-m", "torch.distributed.run", "--standalone"], "ctrun": own, "ctrun --warm": [*own, "--warm"]}


def count(words, python, ranks, restarts):
    """Calls of all processes of one run: those for files, those for the kernel's own files."""
    box = ctrun.Box()
    try:
        told = box.path("calls")
        ended = subprocess.run(["strace", "-f", "--seccomp-bpf", "-qq", "-y", "-s", "300", "-e", f"trace={CALLS}", "-e", "signal=none",
                                "-o", told, *words, f"--nproc-per-node={ranks}", f"--max-restarts={restarts}",
                                box.write("train.py", SCRIPT), str(restarts)],
                               env={**os.environ, **box.env, "PYTHON_EXEC": python, "OMP_NUM_THREADS": "1"},
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        assert ended.returncode == 0, ended.stderr
        paths = [os.path.join(folder, name) for folder, name in CALL.findall(told.read_text(errors="replace")) if folder or name]
        own = sum(path.startswith(("/proc/", "/sys/", "/dev/")) or path == "/proc" for path in paths)
        return len(paths) - own, own
    finally:
        box.close()


def main():
    python = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("CTRUN_TEST_TORCH", ctrun.DEBIAN_PYTHON)
    ranks = int(sys.argv[2]) if len(sys.argv) > 2 else 8
    if not shutil.which("strace"):
        sys.exit("strace is not installed")
    print(f"{ranks} ranks: calls for names and files of a start, and of a restart; in parentheses those of the kernel's own",
          flush=True)
    cold = None
    for name, words in commands(python).items():
        start, own = count(words, python, ranks, 0)
        cold = cold or start
        print(f"  {name:13} {start:8} (1/{cold / start:.1f} of torchrun's start; {own})", end="", flush=True)
        if name != "torchrun":
            again, own_again = count(words, python, ranks, 1)
            print(f" {again - start:8} (1/{cold / max(1, again - start):.0f}; {own_again - own})", end="")
        print(flush=True)


main()
