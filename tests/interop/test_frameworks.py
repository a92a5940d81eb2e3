# SPDX-License-Identifier: Apache-2.0
"""Frameworks that people train with, on the CPU over gloo: the same script under a real torchrun
and under ctrun has the same ranks and ends with the same parameters. They must be installed beside
the PyTorch of the interpreter that CTRUN_TEST_FRAMEWORKS names, or else CTRUN_TEST_TORCH:

    python3 -m venv V && V/bin/pip install torch accelerate lightning transformers deepspeed
    V/bin/pip install --no-deps megatron-core && export CTRUN_TEST_FRAMEWORKS=V/bin/python
"""
import json
import os
import pathlib
import subprocess

import ctrun
import pytest

SCRIPTS = pathlib.Path(__file__).parent / "frameworks"
# Script -> what it imports.
NEEDS = {"ddp": "torch", "fsdp": "torch", "accelerate_loop": "accelerate",
         "lightning_fit": "lightning", "transformers_trainer": "transformers",
         "deepspeed_zero": "deepspeed", "megatron_parallel": "megatron.core"}
STOPS = {"lightning_stop": "lightning", "transformers_stop": "transformers"}
COMPILES = 400  # seconds; DeepSpeed builds an operator at its first start on a machine


@pytest.fixture(scope="module")
def python():
    path = os.environ.get("CTRUN_TEST_FRAMEWORKS") or os.environ.get("CTRUN_TEST_TORCH")
    if not path:
        pytest.skip("CTRUN_TEST_FRAMEWORKS names no python with frameworks on a newer torch")
    if ctrun.SLOW > 1:
        pytest.skip("compared in the builds without sanitizers")
    return path


def environment(python):
    return {"OMP_NUM_THREADS": "1", "PYTHON_EXEC": python, "HF_HUB_OFFLINE": "1"}


def has(python, package):
    probe = f"import importlib.util as u; raise SystemExit(u.find_spec('{package}') is None)"
    return subprocess.run([python, "-c", probe], capture_output=True).returncode == 0


def reports(box, python, name, *command):
    """What the ranks printed, in their order."""
    folder = box.path(name)
    folder.mkdir()
    run = box.run(*command, cwd=folder, seconds=COMPILES, env=environment(python))
    assert run.code == 0, run
    return told(run), run


def told(run):
    found = [json.loads(line[7:]) for line in run.out.splitlines() if line.startswith("report ")]
    return sorted(found, key=lambda each: each["rank"])


@pytest.mark.parametrize("name", NEEDS)
def test_a_framework_trains_alike_under_both(box, python, name):
    if not has(python, NEEDS[name]):
        pytest.skip(f"{python} has no {NEEDS[name]}")
    words = ["--standalone", "--nproc-per-node=2", str(SCRIPTS / f"{name}.py")]
    theirs, _ = reports(box, python, "torchrun", python, "-m", "torch.distributed.run", *words)
    ours, run = reports(box, python, "ctrun", ctrun.program("ctrun"), *words)
    assert ours == theirs, run
    assert [each["rank"] for each in ours] == [0, 1]
    assert {each["world"] for each in ours} == {2}
    assert [each["local_rank"] for each in ours] == [0, 1]
    assert ours[0]["sum"] == ours[1]["sum"], run


@pytest.mark.parametrize("name", STOPS)
def test_a_callback_saves_and_ends_the_training_at_the_same_step_on_all_ranks(box, python, name):
    if not has(python, STOPS[name]):
        pytest.skip(f"{python} has no {STOPS[name]}")
    package = {"PYTHONPATH": str(ctrun.ROOT / "python"), "PYTHONDONTWRITEBYTECODE": "1",
               "CTRUN_LIBRARY": str(ctrun.BUILD / "lib/libctrun.so")}
    run = box.start_ctrun("--standalone", "--nproc-per-node=2", "--shutdown-timeout=60", SCRIPTS / f"{name}.py",
                          env={**environment(python), **package})
    ctrun.wait_until(lambda: all(box.path(f"ready.{rank}").exists() for rank in range(2)), lambda: run, COMPILES)
    assert box.run(ctrun.program("ctrunctl"), "stop").code == 0, box.runs[-1]
    run.wait(COMPILES)
    ours = told(run)
    assert [each["rank"] for each in ours] == [0, 1], run
    assert ours[0]["steps"] == ours[1]["steps"] >= 5, run
    assert {each["saved"] for each in ours} == {ours[0]["steps"]}, run
