# SPDX-License-Identifier: Apache-2.0
"""libctrun deals samples and writes checkpoints as PyTorch does: compared with PyTorch itself."""
import os
import pathlib

import ctrun
import pytest
from store_peers import interpreter

SCRIPT = pathlib.Path(__file__).with_name("sdk_torch.py")


def has_package(box, python):
    return box.run(python, "-c", "import safetensors.torch", seconds=60).code == 0


@pytest.fixture(params=["debian", "newer"])
def story(box, request):
    if os.environ.get("LD_PRELOAD") or "CTRUN_SANITIZE:STRING=\n" not in (
            ctrun.BUILD / "CMakeCache.txt").read_text():
        pytest.skip("a library with sanitizers cannot be loaded into python")
    python = interpreter(request.param)

    def run(name):
        if name == "package" and not has_package(box, python):
            pytest.skip(f"{python} has no package safetensors: python -m pip install safetensors")
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


def test_checkpoints_are_those_of_the_package_safetensors(story):
    story("package")


@pytest.mark.parametrize("python", ["debian", "newer"])
def test_torch_loads_what_the_ranks_of_a_world_saved(box, python):
    """By the example; where the package safetensors is missing, with another reader of the format in its place."""
    python = interpreter(python)
    run = box.ctrun("--standalone", "--nproc-per-node=3", ctrun.program("10_checkpoint"), box.path("shards"))
    assert run.code == 0, run
    if not has_package(box, python):
        box.path("reader/safetensors").mkdir(parents=True)
        box.write("reader/safetensors/torch.py", "from sdk_torch import read\n\n\ndef load_file(path):\n"
                  "    return read(path)[0]\n")
    run = box.run(python, "-B", ctrun.ROOT / "examples/pytorch/load_shards.py", box.path("shards"),
                  env={"PYTHONPATH": f"{box.path('reader')}:{SCRIPT.parent}"}, seconds=120)
    assert run.code == 0, run
    assert run.out == ("step 20: {'next_step': '20'}\n"
                       "state: torch.float32 (1000,), the sum is 20000\n"), run
