# SPDX-License-Identifier: Apache-2.0
"""Stock PyTorch on gloo: a rank is killed, and `except` and `finally` of the others run."""
import os
import signal

import ctrun
import pytest

SCRIPT = """import os, sys, time
from datetime import timedelta
import torch, torch.distributed as dist
folder = sys.argv[1]
dist.init_process_group("gloo", timeout=timedelta(seconds=600))
rank, world = dist.get_rank(), dist.get_world_size()
x = torch.ones(1)
dist.all_reduce(x)
open(f"{folder}/ready.{rank}", "w").write(str(os.getpid()))
try:
    if rank == world - 1:
        time.sleep(600)
    dist.recv(x, src=(rank + 1) % world)  # of a survivor that sends nothing either
except RuntimeError as error:
    torch.save({"x": x}, f"{folder}/saved.{rank}")
    while not all(os.path.exists(f"{folder}/saved.{r}") for r in range(world - 1)):
        time.sleep(0.01)
finally:
    open(f"{folder}/finally.{rank}", "w").close()
"""


@pytest.mark.parametrize("world", [2, 3])
def test_survivors_of_a_killed_rank_save_a_checkpoint(box, python, world):
    script = box.write("train.py", SCRIPT)
    run = box.start_ctrun("--standalone", f"--nproc-per-node={world}", "--survivor-grace=100", script,
                          box.dir, env={"PYTHON_EXEC": python})
    for rank in range(world):
        ctrun.wait_until(lambda: box.path(f"ready.{rank}").exists() and box.path(f"ready.{rank}").read_text(),
                         lambda: f"rank {rank} is ready\n{run}", 120)
    os.kill(int(box.path(f"ready.{world - 1}").read_text()), signal.SIGKILL)
    assert run.wait(60) == 128 + signal.SIGKILL, run
    for rank in range(world - 1):
        assert box.path(f"saved.{rank}").exists() and box.path(f"finally.{rank}").exists(), run
    assert not box.path(f"finally.{world - 1}").exists()
