# SPDX-License-Identifier: Apache-2.0
"""libctrun deals samples and writes checkpoints as PyTorch does: compared with it live."""
import os
import pathlib

import ctrun
import pytest
from store_peers import interpreter

SCRIPT = pathlib.Path(__file__).with_name("sdk_torch.py")


@pytest.fixture(params=["debian", "newer"])
def story(box, request):
    if os.environ.get("LD_PRELOAD") or "CTRUN_SANITIZE:STRING=\n" not in (
            ctrun.BUILD / "CMakeCache.txt").read_text():
        pytest.skip("a library with sanitizers cannot be loaded into python")
    python = interpreter(request.param)

    def run(name):
        run = box.start(python, "-B", SCRIPT, ctrun.BUILD / "lib" / "libctrun.so", name,
                        box.dir)
        run.wait(120)
        assert run.code == 0 and run.out == "equal\n", run
    return run


def test_permutations_are_those_of_randperm(story):
    story("permutations")


def test_samplers_deal_what_distributed_sampler_deals(story):
    story("samplers")


def test_checkpoints_are_read_by_others_and_read_others(story):
    story("checkpoints")
