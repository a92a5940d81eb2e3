# SPDX-License-Identifier: Apache-2.0
"""A training that was ended in any way continues where it was."""
import os
import signal

import ctrun
import mnist
import pytest

OPTIONS = ("--global-batch=32", "--log-interval=1", "--threads=1", "--epochs=3", "--save-steps=1")


def test_a_resumed_run_ends_with_the_bits_of_an_uninterrupted_one(box):
    data = mnist.make_data(box)  # 10 steps an epoch
    whole = mnist.train(box, 1, data, *OPTIONS)
    saved = ("--save=state.safetensors", "--resume")
    parts = []
    for limit in ("--limit-steps=7", "--limit-steps=10", "--limit-steps=13", "--limit-steps=0"):
        parts += mnist.train(box, 1, data, *OPTIONS, *saved, limit)
    assert mnist.losses(parts) == mnist.losses(whole)
    assert [e["loss"] for e in mnist.epochs(parts)] == pytest.approx(
        [e["loss"] for e in mnist.epochs(whole)], rel=1e-9)
    assert mnist.digest(parts) == mnist.digest(whole)


def test_a_finished_run_that_is_resumed_has_nothing_to_do(box):
    data = mnist.make_data(box, train=64)
    options = (*OPTIONS, "--epochs=1", "--save=state.safetensors", "--resume")
    assert len(mnist.epochs(mnist.train(box, 1, data, *options))) == 1
    assert mnist.train(box, 1, data, *options) == []


def test_a_run_is_resumed_with_another_number_of_workers(box):
    data = mnist.make_data(box)
    options = (*OPTIONS, "--lr=0.01", "--epochs=1")
    whole = mnist.losses(mnist.train(box, 1, data, *options))
    saved = ("--save=state.safetensors", "--resume")
    parts = []
    for workers, limit in ((2, 4), (1, 6), (3, 0)):
        parts += mnist.losses(mnist.train(box, workers, data, *options, *saved,
                                          f"--limit-steps={limit}"))
    assert len(parts) == len(whole) == 10
    assert parts == pytest.approx(whole, rel=1e-4)


def test_sigterm_saves_and_ends_with_143(box):
    data = mnist.make_data(box)
    options = (*OPTIONS, "--epochs=100000", "--save-steps=0", "--save=state.safetensors", "--resume")
    run = mnist.start(box, 1, data, *options)
    ctrun.wait_until(lambda: len(mnist.losses(mnist.lines(run))) > 3, "three steps")
    run.signal(signal.SIGTERM)
    assert run.wait() == 143, run
    stopped = mnist.lines(run)[-1]
    assert stopped["stopped"] == "terminated by a signal"
    # One step more of the resumed run is what the whole run's next step would have been.
    next_step = stopped["step"] + 1
    resumed = mnist.train(box, 1, data, *options, f"--limit-steps={next_step}")
    whole = mnist.train(box, 1, data, *OPTIONS, "--epochs=100000", f"--limit-steps={next_step}")
    assert mnist.losses(resumed) == mnist.losses(whole)[-1:]
    assert mnist.digest(resumed) == mnist.digest(whole)


def train_with_a_kill(box, data, *options, is_saved):
    """Kills a worker once a checkpoint is there, and ends the training some time after its restart;
    returns its last epoch's line."""
    run = mnist.start(box, 2, data, *options, "--epochs=100000", launcher=("--max-restarts=1",))
    worker = box.wait_event("worker_started", rank=1)[0]["worker_pid"]
    ctrun.wait_until(is_saved, lambda: f"a checkpoint\n{run}", 60)
    os.kill(worker, signal.SIGKILL)
    ctrun.wait_until(lambda: "resumed from" in run.err, lambda: f"the restart\n{run}", 60)
    before = len(mnist.epochs(mnist.lines(run)))
    ctrun.wait_until(lambda: len(mnist.epochs(mnist.lines(run))) > before, lambda: f"an epoch\n{run}", 60)
    run.signal(signal.SIGUSR1)  # the workers end with 0
    assert run.wait() == 0, run
    return mnist.epochs(mnist.lines(run))[-1]


def is_as_without_a_kill(box, data, *options, epoch):
    whole = mnist.train(box, 2, data, *options, f"--epochs={epoch['epoch']}")
    return mnist.digest(whole) == epoch["params_digest"]


def test_a_killed_worker_is_restarted_and_the_run_continues_as_if_nothing_had_been(box):
    data = mnist.make_data(box)
    options = (*OPTIONS, "--lr=0.01", "--save-steps=3")
    last = train_with_a_kill(box, data, *options, "--save=state.safetensors", "--resume",
                             is_saved=box.path("state.safetensors").exists)
    assert is_as_without_a_kill(box, data, *options, epoch=last)


def test_a_resume_with_another_global_batch_says_so(box):
    data = mnist.make_data(box, train=64)
    options = ("--batch-size=4", "--save=state.safetensors", "--resume", "--threads=1")
    mnist.train(box, 1, data, *options, "--limit-steps=2")
    same = mnist.start(box, 2, data, *options, "--global-batch=4", "--limit-steps=4")
    assert same.wait() == 0 and "warning: state.safetensors" not in same.err, same
    other = mnist.start(box, 2, data, *options, "--limit-steps=6")
    assert other.wait() == 0, other
    assert ("state.safetensors was written with 4 samples a step, this run has 8, and the learning "
            "rate stays as it is: give --global-batch=4 to continue as before") in other.err


def test_gradients_can_be_of_any_step_and_a_run_without_a_step_has_none(box):
    data = mnist.make_data(box, train=64)
    options = (*OPTIONS, "--save=state.safetensors", "--resume", "--dump-gradients=gradients")
    mnist.train(box, 1, data, *options, "--limit-steps=2")
    second = box.path("gradients").read_bytes()
    again = mnist.start(box, 1, data, *options, "--limit-steps=2")
    assert again.wait() == 0 and "this run made no step" in again.err, again
    assert box.path("gradients").read_bytes() == second and b'"step":"2"' in second
    whole = mnist.train(box, 2, data, *OPTIONS, "--dump-gradients=gradients", "--limit-steps=3")
    assert b'"step":"3"' in box.path("gradients").read_bytes() and mnist.losses(whole)


def test_resume_without_a_file_starts_anew(box):
    data = mnist.make_data(box, train=64)
    fresh = mnist.train(box, 1, data, *OPTIONS, "--epochs=1")
    said = mnist.train(box, 1, data, *OPTIONS, "--epochs=1", "--save=new.safetensors", "--resume")
    assert mnist.digest(said) == mnist.digest(fresh)
    assert box.path("new.safetensors").exists()


SHARDED = ("--save=checkpoints", "--save-sharded", "--resume")


def test_shards_of_one_world_are_gone_on_with_by_others(box):
    data = mnist.make_data(box)
    options = (*OPTIONS, "--lr=0.01", "--epochs=1")
    whole = mnist.losses(mnist.train(box, 1, data, *options))
    parts = []
    for workers, limit in ((3, 4), (1, 6), (2, 0)):
        parts += mnist.losses(mnist.train(box, workers, data, *options, *SHARDED, "--keep=2",
                                          f"--limit-steps={limit}"))
    assert len(parts) == len(whole) == 10
    assert parts == pytest.approx(whole, rel=1e-4)
    assert [int(path.name[5:]) for path in sorted(box.path("checkpoints").iterdir())] == [9, 10]


def test_a_worker_killed_while_shards_are_written_costs_no_bit(box):
    data = mnist.make_data(box)
    options = (*OPTIONS, "--lr=0.01")
    last = train_with_a_kill(box, data, *options, *SHARDED,
                             is_saved=lambda: list(box.path("checkpoints").glob("*/manifest.json")))
    assert is_as_without_a_kill(box, data, *options, epoch=last)


def test_a_folder_that_is_further_than_the_training_is_not_overtaken(box):
    data = mnist.make_data(box, train=64)
    mnist.train(box, 1, data, *OPTIONS, *SHARDED, "--epochs=2")
    run = mnist.start(box, 1, data, *OPTIONS, *SHARDED[:2], "--epochs=2")
    assert run.wait() == 1 and "step 4 is there already" in run.err, run
