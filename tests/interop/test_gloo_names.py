# SPDX-License-Identifier: Apache-2.0
"""PyTorch reads the variables that ctrun sets for it to start Gloo at scale."""
import mmap

from torch_job import interpreter

TELL = """import os, torch
print(torch.__version__, os.path.dirname(torch.__file__), *[os.environ.get(name, "-") for name in (
    "GLOO_ENABLE_STORE_V2_API", "GLOO_ENABLE_RANK_AS_SEQUENCE_NUMBER", "TORCH_GLOO_LAZY_INIT")])
"""


def test_what_is_set_is_in_the_library(box):
    run = box.ctrun("--standalone", box.write("tell.py", TELL), env={"PYTHON_EXEC": interpreter("newer")}, seconds=120)
    version, folder, *values = run.out.split()
    is_tried = tuple(int(n) for n in version.split(".")[:2]) >= (2, 15)
    assert values == ["1" if is_tried else "-"] * 3, run
    if is_tried:
        with open(f"{folder}/lib/libtorch_cpu.so", "rb") as file:
            library = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
            for name in ("GLOO_ENABLE_STORE_V2_API", "GLOO_ENABLE_RANK_AS_SEQUENCE_NUMBER", "TORCH_GLOO_LAZY_INIT"):
                assert library.find(name.encode()) >= 0, name


def test_an_old_pytorch_has_none(box):
    run = box.ctrun("--standalone", box.write("tell.py", TELL), env={"PYTHON_EXEC": interpreter("debian")}, seconds=120)
    assert run.out.split()[2:] == ["-"] * 3, run
