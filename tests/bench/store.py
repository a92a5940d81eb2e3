#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Operations per second of our store, in ctrund and behind the tests' small loop, beside PyTorch's
server, with pipelined requests; and the server's CPU time for each.

usage: store.py [SAMPLES]     default 5; CTRUN_TEST_TORCH names the python with PyTorch"""
import contextlib
import os
import statistics
import sys
import time

sys.path[:0] = [os.path.join(os.path.dirname(__file__), "..", folder)
                for folder in ("lib", "interop")]

import ctrun  # noqa: E402
import launchers  # noqa: E402
import store_peers  # noqa: E402

CASES = [("get", 16, 32), ("add", 16, 32), ("set", 16, 32), ("get", 16, 1), ("add", 16, 1),
         ("get", 1, 1)]
OPS = 200000
CPUCLOCK_SCHED = 2  # how clock_getcpuclockid(3) makes a clock's number of a pid


class Server:
    """What a context manager of store_peers started, and the CPU time that it took."""

    def __init__(self, stack, box, manager):
        self.port = stack.enter_context(manager)
        self.pid = box.runs[-1].pid

    def cpu_seconds(self):
        """By its CPU clock: a tick of /proc is a tenth of what one sample takes."""
        return time.clock_gettime(~self.pid << 3 | CPUCLOCK_SCHED)


def load(box, server, op, clients, depth):
    """(operations per second, microseconds of the server's CPU time for each)"""
    ops = OPS if depth > 1 else OPS // 4
    before = server.cpu_seconds()
    run = box.run(ctrun.program("store_load"), server.port, op, clients, depth, ops, seconds=120)
    assert run.code == 0, run
    return float(run.out), (server.cpu_seconds() - before) * 1e6 / ops


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    launchers.run_before_others()
    torch = os.environ.get("CTRUN_TEST_TORCH")
    box = ctrun.Box()
    with contextlib.ExitStack() as stack:
        stack.callback(box.close)
        servers = {"ctrund": Server(stack, box, store_peers.ctrund(box)),
                   "store_server": Server(stack, box, store_peers.our_server(box))}
        if torch:
            servers["torch"] = Server(stack, box, store_peers.torch_server(box, torch, 1))
        else:
            print("no torch beside it: CTRUN_TEST_TORCH is not set")
        for case in CASES:
            samples = {name: [] for name in servers}
            for _ in range(count):
                for name, server in servers.items():
                    samples[name].append(load(box, server, *case))
            rate = {name: statistics.median(ops for ops, _ in s) for name, s in samples.items()}
            cost = {name: statistics.median(cpu for _, cpu in s) for name, s in samples.items()}
            text = "  ".join(f"{name} {rate[name]:>9,.0f}/s {cost[name]:.2f} us CPU" for name in servers)
            if torch:
                best = {name: (max(ops for ops, _ in s), min(cpu for _, cpu in s))
                        for name, s in samples.items()}
                pairs = [(ours[0] / theirs[0], ours[1] / theirs[1])
                         for ours, theirs in zip(samples["ctrund"], samples["torch"])]
                text += (f"  ctrund/torch, median of pairs: rate"
                         f" {statistics.median(r for r, _ in pairs):.2f}"
                         f" CPU {statistics.median(c for _, c in pairs):.2f}, best samples: rate"
                         f" {best['ctrund'][0] / best['torch'][0]:.2f}"
                         f" CPU {best['ctrund'][1] / best['torch'][1]:.2f}")
            print("%s, %d clients, %d under way each: %s" % (*case, text), flush=True)


main()
