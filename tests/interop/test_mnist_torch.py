# SPDX-License-Identifier: Apache-2.0
"""ctrun-mnist computes what PyTorch computes: the same weights, images, losses and gradients."""
import array
import json
import pathlib
import struct

import mnist
import pytest
from store_peers import interpreter

SCRIPT = pathlib.Path(__file__).with_name("mnist_torch.py")
BATCH = 12
SLOW, FAST = 50, 7  # Adadelta at its usual rate amplifies rounding from step to step
SAME = ("--init=init.safetensors", "--no-dropout", "--no-shuffle", f"--global-batch={BATCH}",
        "--log-interval=1", "--threads=1")


def tensors(path):
    data = path.read_bytes()
    length, = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    found = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        found[name] = (entry["shape"], array.array("f", data[8 + length + begin:8 + length + end]))
    return found


def check_gradients(ours, wanted):
    assert ours.keys() == wanted.keys() and len(wanted) == 8
    for name, (shape, want) in wanted.items():
        assert ours[name][0] == shape
        far = max(abs(a - b) for a, b in zip(ours[name][1], want))
        assert far <= 1e-5 * max(map(abs, want)), (name, far)


@pytest.mark.parametrize("kind", ["debian", "newer"])
def test_losses_and_gradients_are_those_of_torch(box, kind):
    data = mnist.make_data(box, train=SLOW * BATCH)
    torch = box.start(interpreter(kind), "-B", SCRIPT, data, box.dir, BATCH, f"0.01:{SLOW}",
                      f"1:{FAST}")
    torch.wait(240)
    assert torch.code == 0, torch
    slow, fast = map(json.loads, torch.out.splitlines())
    gradients = tensors(box.path("gradients.safetensors"))
    for workers, backend in ((1, "simd"), (1, "plain"), (2, "simd")):
        same = (*SAME, f"--backend={backend}")
        said = mnist.train(box, workers, data, *same, "--limit-steps=1",
                           "--dump-gradients=ours.safetensors")
        assert mnist.losses(said) == pytest.approx(slow[:1], rel=1e-4)
        check_gradients(tensors(box.path("ours.safetensors")), gradients)
        for lr, wanted in (("0.01", slow), ("1", fast)):
            got = mnist.losses(mnist.train(box, workers, data, *same, f"--lr={lr}",
                                           f"--limit-steps={len(wanted)}"))
            assert got == pytest.approx(wanted, rel=1e-4), (workers, backend, lr)
