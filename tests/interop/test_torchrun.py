# SPDX-License-Identifier: Apache-2.0
"""The same command under a real torchrun and under ctrun: workers get the same environment, byte
for byte, except for the names listed here. Debian's torch 1.13 always, and the torch of the
interpreter that CTRUN_TEST_TORCH names."""
import os
import pathlib
import subprocess

import ctrun
import pytest

HERE = pathlib.Path(__file__).parent

# Differ by nature: a path made for each run, the last command of a shell.
UNEQUAL = {"TORCHELASTIC_ERROR_FILE", "_"}
# Only workers of ctrun have them.
OURS = {"CTRUN_AGENT_SOCKET", "CTRUN_CRASH_REPORT", "CTRUN_GENERATION", "PYTHONFAULTHANDLER",
        "PYTHONUNBUFFERED"}
# Names and values of later releases, which ctrun follows.
NEWER_THAN_113 = {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "NCCL_ASYNC_ERROR_HANDLING",
                  "TORCHELASTIC_SIGNALS_TO_HANDLE", "TORCHELASTIC_USE_AGENT_STORE"}


def interpreter(kind):
    python = ctrun.DEBIAN_PYTHON if kind == "debian" else os.environ.get("CTRUN_TEST_TORCH")
    if not python:
        pytest.skip("CTRUN_TEST_TORCH names no python with a newer torch")
    probe = "import importlib.util as u; raise SystemExit(u.find_spec('torch') is None)"
    if subprocess.run([python, "-c", probe]).returncode:
        pytest.skip(f"{python} has no torch")
    return python


def environments(box, name, launcher, port):
    """Two nodes of two workers under one launcher; rank -> {name: value as bytes}."""
    folder = box.path(name)
    folder.mkdir()
    words = ["--nnodes=2", "--nproc_per_node=2", "--master_addr=127.0.0.1",
             f"--master_port={port}", "--rdzv_id=J", "--role=r", "--max_restarts=2", "--no_python",
             "sh", "-c", f'env -0 >"{folder}/$RANK.new" && mv "{folder}/$RANK.new" "{folder}/$RANK"']
    env = {"OMP_NUM_THREADS": "3", "MY OWN": "kept \udcff", "TORCHELASTIC_RUN_ID": "outer"}
    runs = [box.start(*launcher, f"--node_rank={node}", *words, env=env) for node in (0, 1)]
    assert [run.wait(120) for run in runs] == [0, 0], runs
    found = {}
    for path in folder.iterdir():
        pairs = (item.partition(b"=") for item in path.read_bytes().split(b"\0") if item)
        found[int(path.name)] = {key.decode(errors="surrogateescape"): value
                                 for key, _, value in pairs}
    assert sorted(found) == [0, 1, 2, 3]
    return found


@pytest.mark.parametrize("kind", ["debian", "newer"])
def test_workers_see_the_same_environment_as_under_torchrun(box, kind):
    python = interpreter(kind)
    torchrun = ([python, str(HERE / "torchrun_113.py")] if kind == "debian"
                else [python, "-m", "torch.distributed.run"])
    port = ctrun.free_port()
    theirs = environments(box, "theirs", torchrun, port)
    ours = environments(box, "ours", [ctrun.program("ctrun")], port)
    differ = UNEQUAL | OURS | (NEWER_THAN_113 if kind == "debian" else set())
    for rank in range(4):
        left = {key: value for key, value in theirs[rank].items() if key not in differ}
        right = {key: value for key, value in ours[rank].items() if key not in differ}
        assert left == right
        assert OURS <= set(ours[rank]) and "TORCHELASTIC_ERROR_FILE" in ours[rank]
