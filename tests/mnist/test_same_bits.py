# SPDX-License-Identifier: Apache-2.0
"""Virtual workers have the same bits on any number of workers; so have shares of the optimizer's state."""
import ctrun
import mnist
import pytest

OPTIONS = ("--global-batch=30", "--log-interval=1", "--epochs=1", "--save-steps=0", "--threads=1")
SAME = (*OPTIONS, "--virtual-workers=4")


def test_virtual_workers_have_the_same_bits_on_any_number_of_workers(box):
    data = mnist.make_data(box, train=170)  # 5 steps, and one of 20 samples
    said = {workers: mnist.train(box, workers, data, *SAME) for workers in (1, 2, 3)}
    assert len({mnist.digest(one) for one in said.values()}) == 1, said
    plain = [mnist.train(box, workers, data, *OPTIONS) for workers in (1, 3)]
    assert mnist.digest(plain[0]) != mnist.digest(plain[1]), "DDP has them, too: the test shows nothing"
    for one in said.values():
        assert mnist.losses(one) == pytest.approx(mnist.losses(plain[0]), rel=1e-4)


def test_a_run_of_virtual_workers_is_resumed_by_any_number_of_them_with_the_same_bits(box):
    data = mnist.make_data(box)
    whole = mnist.train(box, 1, data, *SAME)
    saved = (*SAME, "--save=state.safetensors", "--resume")
    for workers, limit, *zero in ((3, 4, "--zero"), (1, 6), (2, 9, "--zero"), (1, 0, "--zero")):
        said = mnist.train(box, workers, data, *saved, f"--limit-steps={limit}", *zero)
    assert mnist.digest(said) == mnist.digest(whole)


def test_shares_of_the_state_have_the_bits_of_all_of_it(box):
    data = mnist.make_data(box, train=170)
    files = []
    for zero in ((), ("--zero",)):
        path = box.path(f"state{len(zero)}.safetensors")
        files.append((mnist.digest(mnist.train(box, 3, data, *OPTIONS, f"--save={path}", *zero)), path.read_bytes()))
    assert files[0] == files[1]


def test_what_does_not_go_together_is_refused(box):
    for options, text in ((["--zero", "--save=x", "--save-sharded"], "--save-sharded: not with --zero"),
                          (["--zero", "--exchange=nccl", "--backend=cuda"], "--zero: needs --exchange=host"),
                          (["--virtual-workers=2", "--exchange=nccl"], "--virtual-workers: needs --exchange=host")):
        run = box.run(ctrun.program("ctrun-mnist"), *options)
        assert run.code == 2 and text in run.err, run
