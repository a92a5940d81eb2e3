# SPDX-License-Identifier: Apache-2.0
"""The reference trainer learns what it should, alone and with two workers."""
import json
import os

import ctrun
import pytest

MNIST = os.environ.get("CTRUN_TEST_MNIST", ctrun.ROOT.parent / "shared" / "data" / "mnist")
FASHION = "/usr/share/datasets/fashion-mnist"

whole_epochs = pytest.mark.skipif(
    ctrun.SLOW > 1, reason="whole epochs are trained in the builds without sanitizers")


def epochs(run):
    """The line of each epoch, printed by rank 0 only."""
    lines = [json.loads(line) for line in run.out.splitlines() if line.startswith("{")]
    return [line for line in lines if "test_accuracy" in line]


def train(box, workers, *options, seconds=400):
    run = box.ctrun("--standalone", f"--nproc-per-node={workers}", ctrun.program("ctrun-mnist"),
                    "--json", *options, seconds=seconds)
    assert run.code == 0, run
    return run


@whole_epochs
@pytest.mark.parametrize("workers", [1, 2])
def test_one_epoch_of_mnist_reaches_97_percent(box, workers):
    if not os.path.isdir(MNIST):
        pytest.skip(f"no MNIST in {MNIST} (CTRUN_TEST_MNIST names its folder)")
    [epoch] = epochs(train(box, workers, "--data", MNIST, "--epochs=1"))
    assert epoch["test_accuracy"] >= 0.975
    assert epoch["seconds"] > 0 and epoch["images_per_s"] > 0
    # Printed only after all ranks have shown the same digest of all their parameters.
    assert len(epoch["params_digest"]) == 16


@whole_epochs
def test_one_epoch_of_fashion_mnist_with_two_workers_reaches_84_percent(box):
    if not os.path.isdir(FASHION):
        pytest.skip("Debian's dataset-fashion-mnist is not installed")
    [epoch] = epochs(train(box, 2, "--epochs=1"))
    assert epoch["test_accuracy"] >= 0.84


def test_the_first_losses_do_not_depend_on_the_number_of_workers(box):
    def losses(workers):
        run = train(box, workers, "--global-batch=64", "--limit-steps=6", "--log-interval=1",
                    "--seed=7")
        found = [json.loads(line) for line in run.out.splitlines() if line.startswith("{")]
        return [line["loss"] for line in found if "step" in line and "loss" in line]

    alone, both = losses(1), losses(2)
    assert len(alone) >= 5 and len(alone) == len(both)
    assert both == pytest.approx(alone, rel=1e-5)
