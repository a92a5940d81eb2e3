#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares two builds of ctrun, by turns within one run: the cost of a start, of a restart, of a launcher's
memory and of a rendezvous of 4,096 agents.

usage: versus.py OLD NEW [SAMPLES]     release build folders; default 15; agents get a third of them

The ratios are new by old: of the medians, and of the best of each, which other programs disturb least."""
import os
import pathlib
import statistics
import sys

if len(sys.argv) < 3:
    sys.exit(__doc__)
BUILDS = {name: pathlib.Path(path).resolve() for name, path in zip(("old", "new"), sys.argv[1:3])}
COUNT = int(sys.argv[3]) if len(sys.argv) > 3 else 15
os.environ["CTRUN_BUILD"] = str(BUILDS["new"])  # its workers are started by both

import agents  # noqa: E402
import launchers  # noqa: E402
import memory  # noqa: E402
import restart  # noqa: E402
import start  # noqa: E402
from launchers import ctrun  # noqa: E402


AGENTS = 4096


def command(build, workers, *options):
    return [str(build / "bin" / "ctrun"), "--standalone", f"--nproc-per-node={workers}", *options, "--no-python"]


def compare(samples, turns=COUNT):
    """samples(build) returns {what: value}; one row a name."""
    values = {}
    for turn in range(turns):
        for name in list(BUILDS)[::1 if turn % 2 else -1]:
            for what, value in samples(name).items():
                values.setdefault(what, {}).setdefault(name, []).append(value)
    for what, (old, new) in ((what, (both["old"], both["new"])) for what, both in values.items()):
        medians = statistics.median(old), statistics.median(new)
        print(f"{what:52} {medians[0]:9.2f} {medians[1]:9.2f} {medians[1] / medians[0]:7.2f} {min(new) / min(old):7.2f}", flush=True)


def start_of(workers):
    def sample(name):
        first, over = start.sample(command(BUILDS[name], workers), workers)
        return {f"exec to the first instruction of {workers} workers [ms]": first,
                f"{workers} workers started and ended [ms]": over}
    return sample


def memory_of(name):
    rss, pss = memory.sample(command(BUILDS[name], memory.WORKERS))
    return {f"launcher with {memory.WORKERS} workers, Pss [MB]": pss, "the same, Rss [MB]": rss}


def restart_of(name):
    return {"kill -9 of a worker to the restarted group [ms]":
            restart.sample(command(BUILDS[name], restart.WORKERS, "--max_restarts=1"))}


def agents_of(name):
    """A server of its own for each sample: so its peak is that of one run."""
    room = ctrun.Box()
    try:
        with agents.store_peers.ctrund(room, str(BUILDS[name] / "bin" / "ctrund")) as port:
            [server] = room.runs
            took = agents.agents(room, port, AGENTS, path=str(BUILDS[name] / "tests" / "bench" / "agents"))
            return {f"{AGENTS} agents: connect to ranks [ms]": took["join_ms"],
                    f"{AGENTS} agents: failure to the next ranks [ms]": took["rejoin_ms"],
                    f"{AGENTS} agents: messages to each": took["messages"] / AGENTS,
                    f"ctrund's peak with {AGENTS} agents [MB]": agents.resident_kib(server.pid) / 1e3}
    finally:
        room.close()


def main():
    print(f"load {os.getloadavg()[0]:.1f}; medians of {COUNT}{'':24} {'old':>9} {'new':>9} {'ratio':>7} {'best':>7}")
    launchers.run_before_others()
    compare(start_of(2))
    compare(start_of(64))
    compare(restart_of)
    compare(memory_of, max(3, COUNT // 5))
    compare(agents_of, max(3, COUNT // 3))


main()
