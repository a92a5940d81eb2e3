# SPDX-License-Identifier: Apache-2.0
"""What scripts/demo shows: two workers, Debian's Fashion-MNIST, one epoch. tests/mnist has the
other tests of the trainer."""
import json
import os

import ctrun
import pytest

FASHION = "/usr/share/datasets/fashion-mnist"


def test_one_epoch_of_fashion_mnist_with_two_workers_reaches_84_percent(box):
    if ctrun.SLOW > 1:
        pytest.skip("whole epochs are trained in the builds without sanitizers")
    if not os.path.isdir(FASHION):
        pytest.skip("Debian's dataset-fashion-mnist is not installed")
    run = box.ctrun("--standalone", "--nproc-per-node=2", ctrun.program("ctrun-mnist"), "--json",
                    "--epochs=1", seconds=400)
    assert run.code == 0, run
    lines = [json.loads(line) for line in run.out.splitlines() if line.startswith("{")]
    [epoch] = [line for line in lines if "test_accuracy" in line]
    assert epoch["test_accuracy"] >= 0.84
    # Printed by rank 0 only after all ranks have shown the same digest of all their parameters.
    assert len(epoch["params_digest"]) == 16
