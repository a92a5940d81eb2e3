# SPDX-License-Identifier: Apache-2.0
"""Real digits, and PyTorch as a reader of what we wrote."""
import json
import os
import shutil

import ctrun
import mnist
import pytest
from torch_job import has_torch

READER = '''
import json, struct, sys
import torch, torch.nn as nn, torch.nn.functional as F
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, 1); self.conv2 = nn.Conv2d(32, 64, 3, 1)
        self.fc1 = nn.Linear(9216, 128); self.fc2 = nn.Linear(128, 10)
    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2)
        return F.log_softmax(self.fc2(F.relu(self.fc1(torch.flatten(x, 1)))), 1)
data = open(sys.argv[1], "rb").read()
size = struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8:8 + size])
state = {}
for name, info in header.items():
    if name == "__metadata__" or name.startswith("adadelta."):
        continue
    begin, end = info["data_offsets"]
    raw = bytearray(data[8 + size + begin:8 + size + end])
    state[name] = torch.frombuffer(raw, dtype=torch.float32).reshape(info["shape"])
net = Net(); net.load_state_dict(state); net.eval()
raw = bytearray(open(sys.argv[2] + "/t10k-images-idx3-ubyte", "rb").read()[16:])
count = int(sys.argv[3])
x = torch.frombuffer(raw, dtype=torch.uint8).float().reshape(-1, 1, 28, 28)[:count]
with torch.no_grad():
    print(json.dumps(net((x / 255 - 0.1307) / 0.3081).tolist()))
'''


def torch_python():
    """Debian's torch 1.13, or the one that CTRUN_TEST_TORCH names; None without any."""
    for python in (os.environ.get("CTRUN_TEST_TORCH"), ctrun.DEBIAN_PYTHON):
        if python and shutil.which(python) and has_torch(python):
            return python
    return None


@pytest.mark.parametrize("backend", ["simd", "plain"])
def test_torch_loads_our_checkpoint_and_computes_the_same(box, backend):
    python = torch_python()
    if not python:
        pytest.skip("no python3 with torch: apt-get install python3-torch")
    data = mnist.make_data(box)
    mnist.train(box, 1, data, "--epochs=1", "--batch-size=32", "--save=state.safetensors")
    state = box.path("state.safetensors")
    reader = box.write("reader.py", READER)
    torch = box.run(python, reader, state, data, "50", env={"OMP_NUM_THREADS": "1"})
    assert torch.code == 0, torch
    ours = box.run(ctrun.BUILD / "tests/mnist/mnist_predict", state, data, "50", backend)
    assert ours.code == 0, ours
    wanted = [value for row in json.loads(torch.out) for value in row]
    got = [float(value) for value in ours.out.split()]
    assert len(got) == 500
    assert got == pytest.approx(wanted, abs=1e-4)


def test_one_epoch_of_mnist_reaches_97_5_percent(box):
    """With one worker; two of them train in tests/train."""
    if ctrun.SLOW > 1:
        pytest.skip("whole epochs are trained in the builds without sanitizers")
    if not mnist.REAL.is_dir():
        pytest.skip(f"no MNIST in {mnist.REAL}: set CTRUN_TEST_MNIST to its directory")
    said = mnist.train(box, 1, str(mnist.REAL), "--epochs=1", seconds=240)
    assert mnist.epochs(said)[0]["test_accuracy"] >= 0.975
