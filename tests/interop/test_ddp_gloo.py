# SPDX-License-Identifier: Apache-2.0
"""An unmodified PyTorch script, DDP over gloo with env://, under ctrun: with Debian's torch 1.13 in
every test run, and with the PyTorch of the interpreter that CTRUN_TEST_TORCH names."""
import os

import ctrun

SCRIPT = ctrun.ROOT / "examples" / "pytorch" / "ddp_gloo.py"


def reports(run):
    return sorted(line for line in run.out.splitlines() if line.startswith("rank "))


def ddp(box, python, *options):
    run = box.ctrun("--standalone", "--nproc-per-node=2", "--max-restarts=1", SCRIPT, *options,
                    seconds=200, env={"PYTHON_EXEC": python})
    assert run.code == 0, run
    lines = reports(run)
    assert len(lines) == 2 and all("parameters equal" in line for line in lines), run
    return run, lines


def test_torchrun_046_ddp_over_gloo_trains_with_equal_parameters(box, python):
    _, lines = ddp(box, python)
    assert all("restart 0, steps 0 to 40" in line for line in lines)


def test_torchrun_126_torch_knows_that_it_was_launched(box, python):
    run = box.ctrun("--standalone", "--no-python", python, "-c",
                    "import torch.distributed as d; print(d.is_torchelastic_launched())")
    assert (run.code, run.out) == (0, "True\n"), run


MEET = """import os, torch, torch.distributed as dist
how = "env://" if os.environ.get("BY") == "env" else (
    "tcp://{MASTER_ADDR}:{MASTER_PORT}?rank={RANK}&world_size={WORLD_SIZE}".format(**os.environ))
dist.init_process_group("gloo", init_method=how)
both = torch.ones(1) + dist.get_rank()
dist.all_reduce(both)
assert both.item() == 3
os._exit(3 if os.environ["TORCHELASTIC_RESTART_COUNT"] != os.environ.get("LAST", "0") else 0)
"""


def test_torchrun_050_workers_meet_by_tcp_as_by_env(box, python):
    run = box.ctrun("--nproc-per-node=2", box.write("meet.py", MEET), seconds=100,
                    env={"PYTHON_EXEC": python})
    assert run.code == 0, run


def test_torchrun_143_every_restart_initialises_gloo(box, python):
    restarts = 5 if python == ctrun.DEBIAN_PYTHON else 20  # seconds of imports each
    run = box.ctrun("--nproc-per-node=2", f"--max-restarts={restarts}", "--min-uptime=0",
                    box.write("meet.py", MEET), seconds=400,
                    env={"PYTHON_EXEC": python, "BY": "env", "LAST": str(restarts)})
    assert run.code == 0, run
    assert len(box.events("round_started")) == restarts + 1
    assert {event["code"] for event in box.events("worker_ended", cause="exit")} == {3}


def test_ddp_over_gloo_survives_a_killed_rank_and_resumes(box, python):
    run, lines = ddp(box, python, "--checkpoint", box.path("ddp.pt"), "--fail-at=25")
    assert all("restart 1, steps 20 to 40" in line for line in lines), run
    assert "rank 1" in run.err and "SIGKILL" in run.err, run
