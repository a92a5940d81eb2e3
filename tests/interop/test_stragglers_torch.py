# SPDX-License-Identifier: Apache-2.0
"""--stragglers on stock PyTorch: it finds the rank that the others wait for in torch's own flight
recorder. The hang watch does not take a read of the recorder for progress."""
import re
import signal

import ctrun
import pytest
from torch_job import interpreter

# A DDP model whose gradients go in two buckets; no rank waits for each of them. Rank 1 of 3 is 15
# ms late in each step.
SCRIPT = """import os, sys, time, torch
import torch.distributed as dist
dist.init_process_group("gloo")
torch.set_num_threads(1)
model = torch.nn.parallel.DistributedDataParallel(
    torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(4)]), bucket_cap_mb=0.5)
for step in range(int(sys.argv[1])):
    time.sleep(0.035 if dist.get_rank() == 1 else 0.02)
    model(torch.ones(4, 256)).sum().backward()
if dist.get_rank() == 1:
    os.read(os.pipe()[0], 1)
dist.barrier()
"""


@pytest.fixture
def python():
    return interpreter("newer")


def test_a_rank_of_stock_ddp_that_is_late_is_named(box, python):
    run = box.start_ctrun("--standalone", "--nproc-per-node=3", "--stragglers", box.write("train.py", SCRIPT), "1000000",
                          env={"PYTHON_EXEC": python})
    event = box.wait_event("straggler", seconds=120, rank=1)[0]
    assert event["late_us"] > 5000 and event["late_permille"] > 25, event
    run.signal(signal.SIGTERM)
    run.wait()


def test_a_hang_is_told_in_time_though_stragglers_are_looked_for(box, python):
    ended = box.ctrun("--standalone", "--nproc-per-node=3", "--stragglers", "--hang-timeout=2", "--shutdown-timeout=1",
                      box.write("train.py", SCRIPT), "50", env={"PYTHON_EXEC": python}, seconds=120)
    assert ended.code == 1, ended
    assert re.search(r"error\[E_HANG\]: rank 1 \(\S+, pid \d+\) is stuck: it has not entered ", ended.err), ended
