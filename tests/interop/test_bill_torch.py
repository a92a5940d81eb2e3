# SPDX-License-Identifier: Apache-2.0
"""The bill of a restart of PyTorch: the import ends with init_process_group, and init with the last
request to the store before the first step: one that the script reports, or that of its optimizer."""
import json
import os
import signal

import ctrun
import pytest
import schema
from torch_job import interpreter

SCRIPT = """import os, signal, sys
import torch, torch.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
open(f"met.{dist.get_rank()}", "w").close()
if TELLS:
    import ctrun
    ctrun.step(5 - int(os.environ["TORCHELASTIC_RESTART_COUNT"]))
signal.pause()
"""


@pytest.mark.parametrize("tells", [True, False], ids=["steps", "no steps"])
def test_a_restart_is_billed(box, python, tells):
    run = box.start_ctrun("--standalone", "--nproc-per-node=2", "--max-restarts=1",
                          box.write("s.py", SCRIPT.replace("TELLS", str(tells))),
                          env={"PYTHON_EXEC": python, "PYTHONPATH": str(ctrun.ROOT / "python"),
                               "CTRUN_LIBRARY": str(ctrun.BUILD / "lib" / "libctrun.so")})
    if tells:
        box.wait_event("bill", of="start", seconds=120)
    else:
        ctrun.wait_until(lambda: all(box.path(f"met.{rank}").exists() for rank in range(2)), "both ranks have met", 120)
    os.kill(box.wait_workers(2)[1], signal.SIGKILL)
    bill = box.wait_event("bill", of="restart", seconds=120) and box.events("bill", of="restart")[0]
    run.signal(signal.SIGTERM)
    assert run.wait(60) == 143, run
    schema.check(bill, "events")
    phases = [phase for part in bill["parts"] for phase in part["phases"]]
    assert sum(part["ms"] for part in bill["parts"]) == bill["total_ms"]
    assert {"start", "import"} <= set(phases) and bill["is_whole"] == 1, bill
    imported = next(part for part in bill["parts"] if "import" in part["phases"])
    assert imported["phases"] == ["import"] and imported["rank"] in (0, 1) and imported["ms"] > bill["total_ms"] / 4, bill  # to import torch takes long
    if tells:
        assert bill["unknown"] == ["detect"] and bill["lost_steps"] == 2, bill
        assert [part["phases"] for part in bill["parts"]][-2:] == [["init"], ["first step"]], bill
    else:
        assert bill["unknown"] == ["detect", "init", "first step"], bill


TRAIN = """import os, sys, time
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
while not os.path.exists(f"end.{os.environ['TORCHELASTIC_RESTART_COUNT']}"):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    time.sleep(0.01)
os.kill(os.getpid(), 9) if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" else os._exit(0)
"""


@pytest.mark.parametrize("option", ["--budget=1000", "--warm", "--hang-timeout=1000"])
def test_the_first_step_of_a_stock_script_is_that_of_its_optimizer(box, option):
    run = box.start_ctrun("--standalone", "--nproc-per-node=2", "--max-restarts=1", option, "--log-dir=logs", box.write("s.py", TRAIN),
                          env={"PYTHON_EXEC": interpreter("newer")})
    bills = []
    for attempt, of in enumerate(("start", "restart")):
        box.wait_event("bill", of=of, seconds=200)
        bills += box.events("bill", of=of)
        box.write(f"end.{attempt}", "")
    assert run.wait(200) == 0, run
    for bill, unknown in zip(bills, ([], ["detect"])):
        schema.check(bill, "events")
        assert sum(part["ms"] for part in bill["parts"]) == bill["total_ms"]
        assert bill["unknown"] == unknown and bill["is_whole"] == 1 and "lost_steps" not in bill, bill
        assert [part["phases"] for part in bill["parts"]][-3:] == [["import"], ["init"], ["first step"]], bill
        assert bill["parts"][-1]["rank"] in (0, 1), bill
    for start in json.loads(next(box.path("logs").glob("*/summary.json")).read_text())["start_ranks"]:
        assert [part["phases"] for part in start["parts"]] == [["start"], ["import"], ["init"], ["first step"]], start


COMPILED = """import torch
from torch._dynamo.utils import counters
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
model(torch.ones(2, 4)).sum().backward()
step = torch.compile(lambda: optimizer.step(), backend="eager")
for _ in range(3):
    step()
print(counters["stats"], sum(counters["graph_break"].values()))
"""


def test_a_step_that_is_compiled_is_as_without_the_hook(box):
    said = [box.ctrun("--standalone", "--nproc-per-node=1", *options, box.write("s.py", COMPILED),
                      env={"PYTHON_EXEC": interpreter("newer")}, seconds=200) for options in ([], ["--budget=1000"])]
    assert [run.code for run in said] == [0, 0] and said[0].out == said[1].out != "", said
