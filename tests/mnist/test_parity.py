# SPDX-License-Identifier: Apache-2.0
"""For a seed and a global batch the training is the same whatever the number of workers."""
import mnist
import pytest

OPTIONS = ("--global-batch=48", "--log-interval=1", "--threads=1", "--seed=5")


def test_first_losses_are_the_same_with_1_2_3_and_4_workers(box):
    data = mnist.make_data(box)
    wanted = mnist.losses(mnist.train(box, 1, data, *OPTIONS, "--limit-steps=4"))
    assert len(wanted) == 4
    for workers in (2, 3, 4):
        got = mnist.losses(mnist.train(box, workers, data, *OPTIONS, "--limit-steps=4"))
        assert got == pytest.approx(wanted, rel=1e-5), f"{workers} workers"


def test_a_whole_slow_epoch_is_the_same_with_1_and_2_workers_and_an_odd_last_batch(box):
    # Adadelta at its usual rate amplifies rounding from step to step; at 0.01 it does not.
    data = mnist.make_data(box, train=331)
    options = (*OPTIONS, "--epochs=2", "--lr=0.01")
    one, two = mnist.train(box, 1, data, *options), mnist.train(box, 2, data, *options)
    assert len(mnist.losses(one)) == 2 * 7
    assert mnist.losses(two) == pytest.approx(mnist.losses(one), rel=1e-4)
    assert [e["loss"] for e in mnist.epochs(two)] == pytest.approx(
        [e["loss"] for e in mnist.epochs(one)], rel=1e-5)


def test_more_workers_than_samples_in_the_last_batch_are_no_trouble(box):
    data = mnist.make_data(box, train=49, test=3)
    said = mnist.train(box, 4, data, *OPTIONS, "--epochs=1")
    assert len(mnist.losses(said)) == 2
    assert mnist.epochs(said)[0]["test_accuracy"] in (0, pytest.approx(1 / 3, rel=1e-5),
                                                      pytest.approx(2 / 3, rel=1e-5), 1)


@pytest.mark.parametrize("backend", ["plain", "simd", "onednn"])
def test_back_ends_agree_on_the_first_losses(box, backend):
    data = mnist.make_data(box, train=64, test=10)
    options = ("--batch-size=16", "--log-interval=1", "--limit-steps=3", "--threads=2")
    if backend not in box.run(mnist.command(data)[0], "--help").out.rpartition("back ends:")[2]:
        pytest.skip(f"this build has no back end {backend}")
    # LeakSanitizer's tracer crashes on the thread storage of libraries that are loaded late.
    run = box.run(*mnist.command(data, *options, f"--backend={backend}"),
                  env={"ASAN_OPTIONS": "detect_leaks=0"} if backend == "onednn" else None)
    assert run.code == 0, run
    wanted = mnist.losses(mnist.train(box, 1, data, *options, "--backend=plain"))
    assert mnist.losses(mnist.lines(run)) == pytest.approx(wanted, rel=1e-4)


def test_the_bars_are_learnt_in_three_epochs(box):
    said = mnist.train(box, 2, mnist.make_data(box), "--batch-size=16", "--epochs=3")
    last = mnist.epochs(said)[-1]
    assert last["test_accuracy"] >= 0.9
    assert set(last) == {"epoch", "loss", "test_accuracy", "seconds", "images_per_s",
                         "params_digest"}
