# SPDX-License-Identifier: Apache-2.0
"""A collective of stock PyTorch times out, and nobody has asked for --hang-timeout: the rank that was in no collective is
named, and no rank that waited."""
import re

import ctrun  # noqa: F401  (the fixtures)

SCRIPT = """import os, time
from datetime import timedelta
import torch, torch.distributed as dist
rank = int(os.environ["RANK"])
dist.init_process_group("gloo", timeout=timedelta(seconds=600))
early = dist.new_group(timeout=timedelta(seconds=3), ranks=[0, 1])
late = dist.new_group(timeout=timedelta(seconds=600), ranks=[1, 2])
x = torch.ones(3)
dist.all_reduce(x)
def load():
    time.sleep(600)
if rank == 0:
    dist.all_reduce(x, group=early)
elif rank == 1:
    load()
else:
    work = dist.all_reduce(x, group=late, async_op=True)
    work.wait()
"""


def test_the_rank_that_was_in_no_collective_is_named(box, python):
    script = box.write("train.py", SCRIPT)
    ended = box.ctrun("--standalone", "--nproc-per-node=3", "--log-dir=logs", "--shutdown-timeout=2", script,
                      env={"PYTHON_EXEC": python}, seconds=120)
    line = 1 + SCRIPT.splitlines().index("    time.sleep(600)")
    assert ended.code == 1 and re.search(r"error\[E_EXIT\]: rank 0 .*imed out", ended.err), ended
    assert re.search(rf"^  so         : rank 1 was in no collective: load \({re.escape(str(script))}:{line}\), sleeping", ended.err, re.M), ended
    assert "rank 2 was in " not in ended.err and "rank 2 waited in a collective\n" in ended.err, ended
    [stacks] = box.path("logs").glob("*/attempt_0/stacks.node0.txt")
    assert f"load ({script}:{line})" in stacks.read_text(), stacks.read_text()
