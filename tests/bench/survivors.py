#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""From the moment when the agent knows that a rank is gone (its state changes to stopping) to the error
in each survivor that waits for another survivor: rank 2 of 3 is killed again and again, ranks 0 and 1
wait. One story reads from plain sockets; with a PYTHON that has torch, another sits in a Gloo recv.

usage: survivors.py [KILLS [PYTHON]]     default 100; Gloo gets a fifth of them"""
import os
import signal
import statistics
import sys

from launchers import ctrun

RING = ctrun.ROOT / "tests" / "lib" / "ring.py"
GLOO = """
import os, sys, time
from datetime import timedelta
import torch, torch.distributed as dist
folder = os.path.join(sys.argv[1], os.environ["TORCHELASTIC_RESTART_COUNT"])
os.makedirs(folder, exist_ok=True)
dist.init_process_group("gloo", timeout=timedelta(seconds=600))
rank = dist.get_rank()
x = torch.ones(1)
dist.all_reduce(x)
open(folder + "/.new." + str(rank), "w").write(str(os.getpid()))
os.rename(folder + "/.new." + str(rank), folder + "/ready." + str(rank))
try:
    dist.recv(x, src=(rank + 1) % 3)
except RuntimeError:
    now = time.time_ns()
    open(folder + "/raised." + str(rank), "w").write(str(now))
    while not all(os.path.exists(folder + "/raised." + str(r)) for r in (0, 1)):
        time.sleep(0.001)
    os._exit(1)
"""


def measure(kills, python, text):
    """Milliseconds of both survivors, for each kill."""
    box, found = ctrun.Box(), []
    try:
        script = box.write("rank.py", text)
        run = box.start_ctrun("--standalone", "--nproc-per-node=3", "--survivor-grace=20", "--min-uptime=0",
                              f"--max-restarts={kills - 1}", script, box.dir, "127.0.0.1",
                              env={"PYTHON_EXEC": python})
        for kill in range(kills):
            folder = box.path(str(kill))
            for rank in range(3):
                ctrun.wait_until((folder / f"ready.{rank}").exists, lambda: f"rank {rank}\n{run}", 120)
            (folder / "gone").write_text("2\n")
            os.kill(int((folder / "ready.2").read_text()), signal.SIGKILL)
            known = box.wait_event("agent_state", kill + 1, to="stopping")[kill]["time_ns"]
            for rank in (0, 1):
                path = folder / f"raised.{rank}"
                ctrun.wait_until(lambda: path.exists() and path.read_text(), lambda: f"{path}\n{run}", 60)
                found.append(max(0, int(path.read_text().split()[0]) - known) / 1e6)
        run.wait(60)
        return found
    finally:
        box.close()


def main():
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    print("the agent knows of a dead rank to the error in a survivor [ms]")
    stories = [("plain sockets", kills, sys.executable, RING.read_text())]
    if len(sys.argv) > 2:
        stories.append(("Gloo", max(1, kills // 5), sys.argv[2], GLOO))
    for name, count, python, text in stories:
        found = sorted(measure(count, python, text))
        print(f"  {name:14} {len(found)} survivors: median {statistics.median(found):.1f}, "
              f"p95 {found[int(len(found) * 0.95)]:.1f}, worst {found[-1]:.1f}, "
              f"at most 50 ms: {sum(ms <= 50 for ms in found)}", flush=True)


main()
