#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Operations per second of our store, in ctrund and behind the tests' small loop, beside PyTorch's
server, with pipelined requests.

usage: store.py [SAMPLES]     default 5; CTRUN_TEST_TORCH names the python with PyTorch"""
import contextlib
import os
import statistics
import sys

sys.path[:0] = [os.path.join(os.path.dirname(__file__), "..", folder)
                for folder in ("lib", "interop")]

import ctrun  # noqa: E402
import store_peers  # noqa: E402

CASES = [("get", 16, 16), ("add", 16, 16), ("set", 16, 16), ("get", 16, 1), ("get", 1, 1)]
OPS = 200000


def load(box, port, op, clients, depth):
    ops = OPS if depth > 1 else OPS // 4
    run = box.run(ctrun.program("store_load"), port, op, clients, depth, ops, seconds=120)
    assert run.code == 0, run
    return float(run.out)


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    torch = os.environ.get("CTRUN_TEST_TORCH")
    box = ctrun.Box()
    with contextlib.ExitStack() as stack:
        stack.callback(box.close)
        ports = {"ctrund": stack.enter_context(store_peers.ctrund(box)),
                 "store_server": stack.enter_context(store_peers.our_server(box))}
        if torch:
            ports["torch"] = stack.enter_context(store_peers.torch_server(box, torch, 1))
        else:
            print("no torch beside it: CTRUN_TEST_TORCH is not set")
        for case in CASES:
            samples = {name: [] for name in ports}
            for _ in range(count):
                for name, port in ports.items():
                    samples[name].append(load(box, port, *case))
            medians = {name: statistics.median(s) for name, s in samples.items()}
            text = "  ".join(f"{name} {medians[name]:>9,.0f} [{min(s):,.0f}..{max(s):,.0f}]"
                             for name, s in samples.items())
            ratio = medians["ctrund"] / medians["torch"] if torch else float("nan")
            print("%s, %d clients, %d under way each, ops/s: %s  ctrund/torch %.2f"
                  % (*case, text, ratio), flush=True)


main()
