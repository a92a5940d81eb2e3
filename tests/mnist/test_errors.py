# SPDX-License-Identifier: Apache-2.0
"""Each error is printed in one line, with the right exit code and an error file."""
import json
import math
import os
import re
import signal

import ctrun
import mnist
import pytest


def fails(box, code, name, *options, data=None, **how):
    """Runs ctrun-mnist, which must end with `code` and exactly one line that names the error."""
    run = box.run(*mnist.command(data or mnist.make_data(box), *options), **how)
    assert run.code == code, run
    told = [line for line in run.err.splitlines() if line]
    assert len(told) == 1 and told[0].startswith(f"ctrun-mnist: error[{name}]: "), run
    return told[0]


@pytest.mark.parametrize("option, told", [
    ("--wrong", "--help"), ("--epoch=3", "--epochs"), ("--epochs=-1", "--epochs -1"),
    ("--batch-size=0", "from 1"), ("--lr=fast", "--lr fast"), ("--resume", "--save"),
    ("--exchange=nccl", "--backend=cuda"), ("--init=", "empty"), ("--exchange=pigeon", "use host or nccl")])
def test_wrong_usage_is_exit_code_2(box, option, told):
    assert told in fails(box, 2, "E_USAGE", option)


def test_an_unknown_back_end_is_refused(box):
    assert "simd" in fails(box, 1, "E_UNSUPPORTED", "--backend=abacus")


def test_a_missing_data_set_names_the_directory(box):
    assert "/nowhere" in fails(box, 1, "E_BAD_DATA", data="/nowhere")


def test_a_truncated_data_set_is_refused(box):
    data = mnist.make_data(box)
    images = box.path("data") / "train-images-idx3-ubyte"
    images.write_bytes(images.read_bytes()[:-1])
    assert str(images) in fails(box, 1, "E_BAD_DATA", data=data)


def test_images_of_another_size_are_refused(box):
    data = mnist.make_data(box)
    mnist.write_idx(box.path("data") / "train-images-idx3-ubyte", (320, 7, 7), bytes(320 * 49))
    assert "28 x 28" in fails(box, 1, "E_BAD_DATA", data=data)


def saved(box):
    data = mnist.make_data(box)
    mnist.train(box, 1, data, "--limit-steps=2", "--save=state.safetensors")
    return data, box.path("state.safetensors")


@pytest.mark.parametrize("what", ["header", "body", "tail", "empty"])
def test_a_damaged_checkpoint_is_refused(box, what):
    data, path = saved(box)
    good = path.read_bytes()
    half = len(good) // 2
    path.write_bytes({"header": b"\xff" * 9 + good[9:],
                      "body": good[:half] + bytes([good[half] ^ 1]) + good[half + 1:],
                      "tail": good[:half], "empty": b""}[what])
    told = fails(box, 1, "E_BAD_CHECKPOINT", "--save=state.safetensors", "--resume", data=data)
    assert "state.safetensors" in told


def test_a_checkpoint_of_another_seed_is_refused(box):
    data, _ = saved(box)
    assert "--seed 1" in fails(box, 1, "E_BAD_CHECKPOINT", "--save=state.safetensors",
                               "--resume", "--seed=2", data=data)


def test_a_training_that_diverges_says_so_and_keeps_the_last_good_checkpoint(box):
    data, path = saved(box)
    good = path.read_bytes()
    run = mnist.start(box, 1, data, "--save=state.safetensors", "--resume", "--lr=1e30")
    assert run.wait() == 1, run
    assert "error[E_DIVERGED]: after step " in run.err, run
    assert "state.safetensors still holds step 2; " in run.err, run
    assert path.read_bytes() == good
    mnist.train(box, 1, data, "--save=state.safetensors", "--resume", "--limit-steps=4")


@pytest.mark.parametrize("lr, layer", [("1e30", "conv2"), ("1e15", "fc1"), ("1e12", "fc2")])
def test_the_layer_that_overflows_is_named(box, lr, layer):
    told = fails(box, 1, "E_DIVERGED", f"--lr={lr}", "--limit-steps=9", "--batch-size=16")
    assert f"after step 1, rank 0: the loss holds NaN or infinity (no parameter does; the output of {layer}" in told


def test_a_rank_whose_model_diverges_is_named(box):
    data = mnist.make_data(box)
    run = mnist.start(box, 2, data, "--lr=1e30", "--log-interval=1", "--batch-size=16", launcher=("--max-restarts=0",))
    assert run.wait() == 1, run
    assert re.search(r"error\[E_DIVERGED\]: after step \d+, rank [01]: the loss", run.err), run
    assert all(math.isfinite(loss) for loss in mnist.losses(mnist.lines(run)))


@pytest.mark.parametrize("option, name", [
    ("--save=no/such/folder/state", "E_NOT_FOUND"), ("--dump-gradients=no/such/folder/state", "E_NOT_FOUND"),
    ("--save=data", "E_SYSTEM"), ("--save=pipe", "E_USAGE")])
def test_a_place_where_nothing_can_be_written_is_told_before_the_training(box, option, name):
    data = mnist.make_data(box)
    box.path("data/t10k-labels-idx1-ubyte").unlink()  # what is read first, and would be told
    os.mkfifo(box.path("pipe"))
    assert option.split("=")[1] in fails(box, 1, name, option, data=data)


def test_first_weights_that_cannot_be_read_are_told(box):
    assert "none.safetensors" in fails(box, 1, "E_NOT_FOUND", "--init=none.safetensors")
    box.path("bad.safetensors").write_bytes(b"bad")
    assert "bad.safetensors" in fails(box, 1, "E_BAD_CHECKPOINT", "--init=bad.safetensors")


def test_the_error_reaches_the_error_file(box):
    path = box.path("error.json")
    fails(box, 1, "E_BAD_DATA", data="/nowhere", env={"TORCHELASTIC_ERROR_FILE": str(path)})
    assert "/nowhere" in json.dumps(json.loads(path.read_text()))


def test_a_rank_without_a_world_is_told_which_variable_is_missing(box):
    assert "WORLD_SIZE" in fails(box, 1, "E_BAD_ENVIRONMENT", env={"RANK": "0"})


def test_a_worker_whose_peer_is_killed_says_who_is_lost(box):
    data = mnist.make_data(box)
    run = mnist.start(box, 2, data, "--epochs=100000", launcher=("--max-restarts=0",))
    workers = box.wait_workers(2)
    ctrun.wait_until(lambda: mnist.epochs(mnist.lines(run)), "an epoch")
    os.kill(workers[1], signal.SIGKILL)
    assert run.wait() == 137, run
    box.wait_gone()
