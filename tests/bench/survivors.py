#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""From the time when the state of the agent changes to stopping, as a rank has ended, to the error
in each survivor that waits for another survivor: rank 2 of 3 is killed again and again, ranks 0 and
1 wait. First they read from plain sockets; then, with a PYTHON that has torch, they wait in a Gloo
recv. Then, where there can be a lab, each rank is on a host of its own, and the cable of the third
is cut.

usage: survivors.py [KILLS [CUTS [PYTHON]]]     default 100 and 100; Gloo gets a fifth of the kills"""
import json
import os
import signal
import statistics
import sys

from launchers import ctrun

import lab

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


def stopping_ns(path):
    """When the agent that writes there began to stop; None: not yet."""
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return next((event["time_ns"] for event in map(json.loads, lines)
                 if event["event"] == "agent_state" and event["to"] == "stopping"), None)


def cut_once(hosts, folder):
    """Milliseconds of both survivors."""
    folder.mkdir()
    own, runs, found = [folder / f"node{n}" for n in (1, 2, 3)], [], []
    for n, place in enumerate(own, 1):
        place.mkdir()
        runs.append(hosts.start(
            f"node{n}", ctrun.program("ctrun"), "--nproc-per-node=1", "--nnodes=3", "--rdzv-endpoint=node1:29400",
            f"--rdzv-id={folder.name}", "--rdzv-conf=keep_alive_interval=1,keep_alive_max_attempt=2", "--survivor-grace=20",
            RING, folder, hosts.ip(f"node{n}"),
            env={"PYTHON_EXEC": sys.executable, "TMPDIR": place, "CTRUN_CONTROL_DIR": place / "ctl",
                 "CTRUN_EVENTS": place / "events"}))
        ctrun.wait_until(lambda: (place / "events").exists() and '"to":"joining"' in (place / "events").read_text(),
                         lambda: f"node {n}\n{runs}", 60)  # the order of the ranks
    for rank in range(3):
        ctrun.wait_until((folder / "0" / f"ready.{rank}").exists, lambda: f"rank {rank}\n{runs}", 60)
    (folder / "0" / "gone").write_text("2\n")
    hosts.partition("node3")
    for rank in (0, 1):
        path = folder / "0" / f"raised.{rank}"
        ctrun.wait_until(path.exists, lambda: f"{path}\n{runs}", 60)
        known = ctrun.wait_until(lambda: stopping_ns(own[rank] / "events"), lambda: f"{own[rank]}\n{runs}", 60)
        found.append(max(0, int(path.read_text().split()[0]) - known) / 1e6)
    for run in runs:
        run.signal(signal.SIGTERM)
    hosts.heal()
    for run in runs:
        run.wait(60)
    return found


def measure_cuts(cuts):
    box, hosts, found = ctrun.Box(), None, []
    try:
        hosts = lab.Lab(box, 3)
        for number in range(cuts):
            found += cut_once(hosts, box.path(f"cut{number}"))
        return found
    finally:
        if hosts:
            hosts.down()
        box.close()


def tell(name, found):
    found = sorted(found)
    print(f"  {name:14} {len(found)} survivors: median {statistics.median(found):.1f}, "
          f"p95 {found[int(len(found) * 0.95)]:.1f}, worst {found[-1]:.1f}, "
          f"at most 50 ms: {sum(ms <= 50 for ms in found)}; load {os.getloadavg()[0]:.1f}", flush=True)


def main():
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    cuts = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    print("the agent knows of a dead rank to the error in a survivor [ms]")
    stories = [("plain sockets", kills, sys.executable, RING.read_text())]
    if len(sys.argv) > 3:
        stories.append(("Gloo", max(1, kills // 5), sys.argv[3], GLOO))
    for name, count, python, text in stories:
        tell(name, measure(count, python, text))
    if lab.why_not():
        print(f"  cable cut: {lab.why_not()}")
    elif cuts > 0:
        tell("cable cut", measure_cuts(cuts))


main()
