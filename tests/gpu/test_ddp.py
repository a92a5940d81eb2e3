# SPDX-License-Identifier: Apache-2.0
"""The reference trainer on the GPUs of this machine, a worker on each, gradients by NCCL."""
import json
import pathlib

import ctrun
import mnist
import pytest

GPUS = pathlib.Path("/proc/driver/nvidia/gpus")


def test_torchrun_127_ddp_with_nccl_over_all_gpus_trains_and_finishes(box):
    count = len(list(GPUS.iterdir())) if GPUS.is_dir() else 0
    if count == 0:
        pytest.skip("no NVIDIA GPU on this machine")
    run = box.ctrun("--standalone", "--nproc-per-node=gpu", ctrun.program("ctrun-mnist"), "--json",
                    "--backend=cuda", "--exchange=nccl", "--epochs=2", "--data", mnist.make_data(box), seconds=120)
    assert run.code == 0, run
    assert len(box.events("worker_started")) == count
    epochs = [json.loads(line) for line in run.out.splitlines() if "test_accuracy" in line]
    assert len(epochs) == 2 and epochs[1]["loss"] < epochs[0]["loss"], run
