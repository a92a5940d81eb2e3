#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long a sharded checkpoint that is written in the background keeps the ranks from training, compared with a
memcpy() of as many bytes and torch.distributed.checkpoint.async_save() (of the torch that CTRUN_TEST_TORCH names).

usage: shards.py [MIB [RANKS [SAVES]]]     default 1024, 2 and 3; takes three times that memory, twice that disk

Measures the first save, which allocates memory for the copy, unless it was reserved (ctrun_shards_reserve), and those
after it, where ours uses that again (torch keeps none without CUDA). Each save is on the disk before the next begins. On a busy machine processor time is what counts."""
import json
import os
import statistics
import subprocess
import sys
import tempfile

from launchers import ROOT, ctrun

TORCH = '''
import json, os, sys, time
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
import torch, torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.filesystem import FileSystemWriter
folder, mib, ranks, saves = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
rank = next((r for r in range(1, ranks) if os.fork() == 0), 0)
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="file://" + folder + "/store", rank=rank, world_size=ranks)
own = mib * (1 << 20) // ranks // 16
state = {f"rank{rank}.tensor{i}": torch.zeros(own, dtype=torch.uint8) for i in range(16)}
writer = FileSystemWriter(folder + "/kept", overwrite=True)
for save in range(saves):
    for one in state.values():
        one.fill_(save)
    dist.barrier()
    begin = time.perf_counter()
    going = dcp.async_save(state, checkpoint_id=folder + "/kept", storage_writer=writer)
    stall = time.perf_counter() - begin
    getattr(going, "upload_completion", going).result()
    dist.barrier()
    if rank == 0:
        print(json.dumps({"stall_ms": stall * 1e3, "disk_ms": (time.perf_counter() - begin) * 1e3}), flush=True)
while rank == 0 and ranks > 1:
    os.wait()
    ranks -= 1
os._exit(0)
'''


def measure(command, mib, ranks, saves, word=()):
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        done = subprocess.run([*command, folder, str(mib), str(ranks), str(saves), *word], cwd=ROOT, text=True, timeout=600,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if done.returncode:
        print(f"left out: {done.stderr.strip().splitlines()[-1:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def main():
    mib, ranks, saves = (int(word) for word in (sys.argv[1:] + ["1024", "2", "3"][len(sys.argv) - 1:]))
    contestants = {"ctrun": [ctrun.program("shards")], "ctrun, reserved": [ctrun.program("shards")]}
    if os.environ.get("CTRUN_TEST_TORCH"):
        contestants["torch async_save"] = [os.environ["CTRUN_TEST_TORCH"], "-c", TORCH]
    print(f"{mib} MiB of {ranks} ranks, {saves} saves: milliseconds of the clock on rank 0")
    for name, command in contestants.items():
        said = measure(command, mib, ranks, saves, ["reserve"] if "reserved" in name else ())
        for when, of in (("first", said[:1]), ("again", said[1:])):
            medians = {key: statistics.median(one[key] for one in of) for key in of[0]} if of else {}
            print(f"  {name:18} {when:6}" + "".join(f"  {key[:-3]} {value:8.1f}" for key, value in medians.items()))


main()
