# SPDX-License-Identifier: Apache-2.0
"""Many runs on one machine at once, and a run inside of a worker of another."""
import collections

import ctrun

NAMES = "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK MASTER_ADDR TORCHELASTIC_RUN_ID"
SAY = "; ".join(f'echo "{name}=${name}"' for name in NAMES.split()) + "; echo"


def worlds(run):
    """What each worker printed, as dicts."""
    return [dict(line.partition("=")[::2] for line in block.splitlines())
            for block in run.out.split("\n\n") if block.strip()]


def test_t12_fifty_runs_at_once_with_defaults_are_fifty_worlds(box):
    inner = box.write("inner.sh", f"{SAY}\n")
    runs = [box.start_ctrun("--no-python", "sh", inner) for _ in range(49)]
    runs.append(box.start_ctrun("--no-python", "sh", "-c",
                                f"sh {inner}; exec ctrun --no-python sh {inner}"))
    for run in runs:
        assert run.wait(120) == 0, run
    ids = collections.Counter()
    for run in runs:
        for world in worlds(run):
            assert (world["RANK"], world["WORLD_SIZE"], world["LOCAL_RANK"]) == ("0", "1", "0")
            ids[world["TORCHELASTIC_RUN_ID"]] += 1
    assert len(ids) == 51 and set(ids.values()) == {1}
    for run in runs:
        assert "port" not in run.err and "E_" not in run.err, run
    assert [run.err.count("ignored") for run in runs] == [0] * 49 + [1]
    assert "inherited RANK/WORLD_SIZE/" in runs[-1].err, runs[-1]


def test_a_run_inside_of_a_worker_says_once_what_it_ignores(box):
    inner = box.write("inner.sh", f"{SAY}\n")
    box.write("outer.sh", f"#!/bin/sh\n[ $RANK = 1 ] || exit 0\n"
              f"exec ctrun --nproc-per-node=1 --max-restarts=1 --no-python sh {inner}\n", 0o755)
    run = box.ctrun("--nproc-per-node=2", "--rdzv-id=exp-7", "--no-python", "./outer.sh")
    assert run.code == 0, run
    (world,) = worlds(run)
    assert (world["RANK"], world["WORLD_SIZE"]) == ("0", "1"), run
    assert world["TORCHELASTIC_RUN_ID"] != "exp-7", run
    assert run.err.count("ignored") == 1 and "rank 1 of run exp-7" in run.err, run


# What Slurm 22.05 gives to task 1 of two on one of two nodes.
STEP = {"SLURM_JOB_ID": "41", "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "n[1-2]",
        "SLURM_STEP_TASKS_PER_NODE": "2(x2)", "SLURM_NODEID": "0", "SLURM_LOCALID": "1"}


def test_a_run_inside_of_a_worker_does_not_meet_the_others_of_its_step(box):
    worker = {**STEP, "RANK": "3", "LOCAL_RANK": "1", "TORCHELASTIC_RUN_ID": "slurm-41.0",
              "CTRUN_BATCH_TASK": "slurm-41.0"}
    run = box.ctrun("--no-python", "sh", "-c", SAY, env=worker)
    assert run.code == 0, run
    (world,) = worlds(run)
    assert (world["RANK"], world["WORLD_SIZE"], world["MASTER_ADDR"]) == ("0", "1", "127.0.0.1")
    run = box.ctrun("--nproc-per-node=2", "--no-python", "sh", "-c", SAY, env=worker)
    assert run.code == 0 and len(worlds(run)) == 2, run  # nor does it wait for their tasks
