# SPDX-License-Identifier: Apache-2.0
"""A data set or checkpoint that is missing or damaged is named, through the launcher too."""
import gzip

import ctrun


def mnist(box, *options):
    return box.ctrun("--standalone", ctrun.program("ctrun-mnist"), "--limit-steps=2", *options)


def test_a_missing_data_set_is_named(box):
    run = mnist(box, "--data", box.path("nowhere"))
    assert run.code == 1 and str(box.path("nowhere")) in run.err, run


def test_a_corrupt_data_set_is_named(box):
    for name in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
        with gzip.open(box.path(f"{name}-ubyte.gz"), "wb") as file:
            file.write(b"\0\0\x08\x09junk")
    run = mnist(box, "--data", box.dir)
    assert run.code == 1 and "train-images-idx3-ubyte" in run.err, run


def test_a_corrupt_checkpoint_is_named(box):
    path = box.write("ck", "this is no checkpoint")
    run = mnist(box, "--save", path, "--resume")
    assert run.code == 1 and path in run.err, run
    assert box.path("ck").read_text() == "this is no checkpoint"  # unchanged
