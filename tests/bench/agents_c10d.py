#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""N agents that meet through torch's c10d rendezvous, threads of one process, every one with a
store connection of its own (as processes they would need 200 MB each): milliseconds from the
first to the last that has its rank. Ends with 1 when that takes more than 90 s.

usage: agents_c10d.py N"""
import os
import sys
import threading
import time
from datetime import timedelta

import torch.distributed as dist
from torch.distributed.elastic.rendezvous import c10d_rendezvous_backend as c10d
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler

SECONDS = 90


def main():
    count = int(sys.argv[1])
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    ranks, errors = [], []

    def agent():
        try:
            store = dist.TCPStore("127.0.0.1", server.port, is_master=False,
                                  wait_for_workers=False, timeout=timedelta(seconds=SECONDS))
            handler = DynamicRendezvousHandler.from_backend(
                "job", store, c10d.C10dRendezvousBackend(store, "job"), count, count)
            met = handler.next_rendezvous()
            ranks.append(met.rank if hasattr(met, "rank") else met[1])
        except Exception as error:  # the main thread prints it
            errors.append(error)

    threads = [threading.Thread(target=agent, daemon=True) for _ in range(count)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0, began + SECONDS - time.monotonic()))
    took = time.monotonic() - began
    if errors or sorted(ranks) != list(range(count)):
        print(f"{len(ranks)} of {count} met: {errors[:1]}", file=sys.stderr, flush=True)
        os._exit(1)  # its threads would continue
    print(f"{took * 1e3:.3f}", flush=True)


main()
