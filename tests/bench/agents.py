#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The rendezvous at scale: agents that join ctrund, a failure that is sent to all, a node
that is lost, and store clients in a barrier; beside torch's c10d rendezvous and its store server.

usage: agents.py [SAMPLES]     default 5; torch gets one sample of each. CTRUN_TEST_TORCH names
                               the python with PyTorch; without it Debian's torch 1.13 stands in"""
import json
import os
import pathlib
import re
import statistics
import sys

import launchers  # noqa: F401  sets CTRUN_BUILD and the path
import ctrun

sys.path.append(str(launchers.ROOT / "tests" / "interop"))
import store_peers  # noqa: E402

HERE = pathlib.Path(__file__).parent
TORCH = os.environ.get("CTRUN_TEST_TORCH", ctrun.DEBIAN_PYTHON)
CLIENTS = 10000
serial = iter(range(10**9))


def program(box, path, *arguments):
    run = box.run(path, *arguments, seconds=120)
    assert run.code == 0, run
    return json.loads(run.out)


def agents(box, port, count, *mode, path=None):
    return program(box, path or ctrun.program("agents"), port, count, f"run{next(serial)}", *mode)


def c10d(box, count, ours):
    run = box.run(TORCH, HERE / "agents_c10d.py", count, seconds=120)
    if run.code != 0:
        return f"   torch: {(run.err.splitlines() or ['?'])[-1][:70]}"
    peer = float(run.out)
    return f"   torch {peer:.1f} ms, {peer / statistics.median(ours):.0f} x"


def show(title, ours, note=""):
    print(f"  {title:44} {statistics.median(ours):10.1f} ms   {min(ours):.1f} to {max(ours):.1f}"
          + note, flush=True)


def resident_kib(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", status).group(1))


def main():
    turns = range(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
    box = ctrun.Box()
    try:
        with store_peers.ctrund(box) as port:
            pid = next(run.pid for run in box.runs if "ctrund" in str(run.argv[0]))
            for count in (8, 32, 128):
                ours = [agents(box, port, count)["join_ms"] for _ in turns]
                show(f"{count} agents: connect to ranks", ours, c10d(box, count, ours))
            big = [agents(box, port, 4096) for _ in turns]
            show("4096 agents: connect to ranks", [one["join_ms"] for one in big])
            show("4096 agents: failure to the next ranks", [one["rejoin_ms"] for one in big],
                 note=f"   {big[0]['messages'] / 4096:.1f} messages an agent")
            show("64 agents: failure known to all",
                 [agents(box, port, 64)["failure_ms"] for _ in turns])
            show("64 agents: node lost to the next ranks", [agents(box, port, 64, "lose")["loss_ms"]])
            ours = [program(box, ctrun.program("store_clients"), port, CLIENTS)["barrier_ms"] for _ in turns]
            show(f"{CLIENTS} store clients: connect, set, add, wait", ours,
                 note=f"   ctrund's peak {resident_kib(pid) / 1024:.0f} MiB")
        with store_peers.torch_server(box, TORCH, 1) as port:
            run = box.run(ctrun.program("store_clients"), port, CLIENTS, seconds=120)
            took = json.loads(run.out)["barrier_ms"] if run.code == 0 else None
            print(f"  torch's store server, the same clients:      "
                  f"{f'{took:10.1f} ms, {took / statistics.median(ours):.1f} x' if took else run.err}")
    finally:
        box.close()


if __name__ == "__main__":
    main()
