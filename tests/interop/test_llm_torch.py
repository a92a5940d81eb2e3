# SPDX-License-Identifier: Apache-2.0
"""examples/llm trains as the same model does in PyTorch, alone and with ranks that share the work."""
import pathlib
import re

import ctrun
import pytest
from store_peers import interpreter

TEXT = ctrun.ROOT / "man" / "ctrun.1"
STEPS = (1, 10, 20)


def losses(box, ranks, steps, *words):
    run = box.ctrun("--standalone", f"--nproc-per-node={ranks}", ctrun.program("train_llm"), TEXT, steps, *words,
                    seconds=120)
    assert run.code == 0, run
    return {int(step): float(loss) for step, loss in re.findall(r"^step (\d+): loss (\S+)$", run.out, re.M)}


@pytest.fixture(name="theirs", scope="module", params=["debian", "newer"])
def train_in_torch(request):
    python = interpreter(request.param)
    box = ctrun.Box()
    try:
        run = box.run(python, "-B", pathlib.Path(__file__).with_name("llm_torch.py"), TEXT, max(STEPS), seconds=120)
        assert run.code == 0, run
        return [float(line) for line in run.out.split()]
    finally:
        box.close()


def test_losses_are_those_of_torch(box, theirs):
    ours = {step: losses(box, 2, step, box.path(f"steps{step}"), "f32")[step] for step in STEPS}
    for step in STEPS:
        assert ours[step] == pytest.approx(theirs[step - 1], rel=1e-4), (ours, theirs)
    assert theirs[-1] < theirs[0] - 1  # it has learned


def test_the_number_of_ranks_changes_nothing_and_bf16_little(box):
    one = losses(box, 1, 20, box.path("one"), "f32")
    assert losses(box, 4, 20, box.path("four"), "f32") == pytest.approx(one, rel=1e-5)
    assert losses(box, 2, 20) == pytest.approx(one, rel=1e-2)


def test_another_number_of_ranks_goes_on_with_a_checkpoint(box):
    whole = losses(box, 1, 20, box.path("whole"), "f32")
    assert 10 in losses(box, 4, 10, box.path("cut"), "f32")
    assert losses(box, 2, 20, box.path("cut"), "f32")[20] == pytest.approx(whole[20], rel=1e-5)


def test_bad_input_is_told_in_one_line(box):
    short = box.write("short", "too little")
    run = box.ctrun("--standalone", "--nproc-per-node=1", ctrun.program("train_llm"), short, 1)
    assert run.code == 1 and "short: a text of 1025 bytes or more is needed" in run.err, run
    run = box.ctrun("--standalone", "--nproc-per-node=3", ctrun.program("train_llm"), TEXT, 1)
    assert run.code == 1 and "3 workers: they cannot share 16 sequences" in run.err, run
