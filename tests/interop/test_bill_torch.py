# SPDX-License-Identifier: Apache-2.0
"""The bill of a restart of PyTorch: the import ends with init_process_group, and init with the last
request to the store before the first step."""
import os
import signal

import ctrun
import pytest
import schema

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
