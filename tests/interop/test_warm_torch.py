# SPDX-License-Identifier: Apache-2.0
"""Stock PyTorch, forked from a template: a rank is killed, and all train again without an import."""
import os
import signal

import ctrun
import pytest

SCRIPT = """import os, sys, time
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
folder, attempt = sys.argv[1], os.environ["TORCHELASTIC_RESTART_COUNT"]
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
loader = torch.utils.data.DataLoader(torch.arange(8.0).reshape(2, 4), num_workers=1)
for batch in loader:
    model(batch + rank).sum().backward()
    optimizer.step()
sums = [torch.zeros(1), torch.zeros(1)]
dist.all_gather(sums, sum(p.detach().sum() for p in model.parameters()).reshape(1))
assert sums[0] == sums[1]
with open(f"{folder}/trained.{attempt}.{rank}.new", "w") as file:
    file.write(f"{os.getpid()} {sums[0].item()} {torch.get_num_threads()}")
os.rename(file.name, file.name[:-4])
while attempt == "0":
    time.sleep(0.01)
del model, optimizer  # the group ends here: its threads may not outlive Python (torch 1.13 aborts then)
dist.destroy_process_group()
"""


def trained(box, attempt, rank, run):
    path = box.path(f"trained.{attempt}.{rank}")
    ctrun.wait_until(path.exists, lambda: f"rank {rank} has trained\n{run}", 200)
    pid, *rest = path.read_text().split()
    return int(pid), rest


@pytest.mark.parametrize("warm", ["--warm", "--warm=torch,auto"])
def test_workers_train_again_from_one_import(box, python, warm):
    run = box.start_ctrun("--standalone", "--nproc-per-node=2", "--max-restarts=1", warm,
                          box.write("train.py", SCRIPT), box.dir, env={"PYTHON_EXEC": python})
    (pid, first), (_, other) = (trained(box, 0, rank, run) for rank in (0, 1))
    os.kill(pid, signal.SIGKILL)
    assert run.wait(200) == 0, run
    assert first == other == trained(box, 1, 0, run)[1] == trained(box, 1, 1, run)[1]
    assert [event["start"] for event in box.events("worker_started")] == ["fork"] * 4, run
    assert [event["to"] for event in box.events("template_state")] == ["starting", "ready"]
