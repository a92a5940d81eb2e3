# SPDX-License-Identifier: Apache-2.0
"""What the tests of ctrun-mnist share: a tiny data set, runs with N workers, and their output."""
import os
import pathlib
import random
import struct

import ctrun

# Real MNIST, if it is there: in CTRUN_TEST_MNIST, or in shared/data beside the checkout.
REAL = pathlib.Path(os.environ.get("CTRUN_TEST_MNIST", ctrun.ROOT.parent / "shared/data/mnist"))


def write_idx(path, sizes, data):
    header = struct.pack(">HBB", 0, 8, len(sizes)) + struct.pack(f">{len(sizes)}I", *sizes)
    path.write_bytes(header + data)


FAINT = bytes(byte // 4 for byte in range(256))


def image(label, noise):
    """28 x 28: faint noise, and a bright bar whose place depends on the label."""
    pixels = bytearray(noise.randbytes(784).translate(FAINT))
    for row in range(4, 24):
        at = row * 28 + 2 + 2 * label
        pixels[at:at + 3] = b"\xf0\xff\xf0"
    return bytes(pixels)


def make_data(box, train=320, test=100):
    """Makes a data set that trains in milliseconds; returns its directory."""
    noise = random.Random(7)
    folder = box.path("data")
    folder.mkdir(exist_ok=True)
    for prefix, count in (("train", train), ("t10k", test)):
        labels = [noise.randrange(10) for _ in range(count)]
        write_idx(folder / f"{prefix}-images-idx3-ubyte", (count, 28, 28),
                  b"".join(image(label, noise) for label in labels))
        write_idx(folder / f"{prefix}-labels-idx1-ubyte", (count,), bytes(labels))
    return str(folder)


def command(data, *options):
    return [ctrun.program("ctrun-mnist"), "--json", f"--data={data}", *options]


def start(box, workers, data, *options, launcher=(), **how):
    """One worker runs alone, without any launcher; more of them under ctrun."""
    if workers == 1 and not launcher:
        return box.start(*command(data, *options), **how)
    return box.start_ctrun("--standalone", f"--nproc-per-node={workers}", *launcher,
                           *command(data, *options), **how)


def train(box, workers, data, *options, seconds=120, **how):
    """Trains to the end; the exit code must be 0. Returns the JSON lines."""
    run = start(box, workers, data, *options, **how)
    assert run.wait(seconds) == 0, run
    return lines(run)


def lines(run):
    return ctrun.json_lines(run.out)


def losses(said):
    return [line["loss"] for line in said if "step" in line and "loss" in line]


def epochs(said):
    return [line for line in said if "test_accuracy" in line]


def digest(said):
    return said[-1]["params_digest"]
