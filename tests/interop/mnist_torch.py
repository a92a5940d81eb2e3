# SPDX-License-Identifier: Apache-2.0
"""mnist_torch.py DATA FOLDER BATCH LR:STEPS...: trains PyTorch's MNIST example without dropout on
the images in their order, each time from the weights that it writes to FOLDER/init.safetensors.
FOLDER/gradients.safetensors gets those of the first step. Prints a line of losses for each LR."""
import json
import pathlib
import struct
import sys

import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, 1)
        self.conv2 = nn.Conv2d(32, 64, 3, 1)
        self.fc1 = nn.Linear(9216, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2)
        return F.log_softmax(self.fc2(F.relu(self.fc1(torch.flatten(x, 1)))), dim=1)


def read_idx(path):
    data = path.read_bytes()
    sizes = struct.unpack_from(f">{data[3]}I", data, 4)
    return torch.frombuffer(bytearray(data[4 + 4 * data[3]:]), dtype=torch.uint8).reshape(sizes)


def write(path, tensors):
    """safetensors: 8 bytes of length, a header of JSON, the data."""
    header, at = {}, 0
    for name, tensor in tensors.items():
        end = at + tensor.numel() * 4
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(
        struct.pack(f"<{t.numel()}f", *t.flatten().tolist()) for t in tensors.values()))


def main():
    data, folder = map(pathlib.Path, sys.argv[1:3])
    batch = int(sys.argv[3])
    images = read_idx(data / "train-images-idx3-ubyte")
    x = ((images.float() / 255 - 0.1307) / 0.3081).unsqueeze(1)
    y = read_idx(data / "train-labels-idx1-ubyte").long()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    first = {name: value.clone() for name, value in Net().state_dict().items()}
    write(folder / "init.safetensors", first)
    for word in sys.argv[4:]:
        lr, steps = float(word.split(":")[0]), int(word.split(":")[1])
        net, losses = Net(), []
        net.load_state_dict(first)
        optimizer = torch.optim.Adadelta(net.parameters(), lr=lr)
        for step in range(steps):
            part = slice(step * batch, (step + 1) * batch)
            optimizer.zero_grad()
            loss = F.nll_loss(net(x[part]), y[part])
            loss.backward()
            if step == 0:
                write(folder / "gradients.safetensors",
                      {name: value.grad for name, value in net.named_parameters()})
            optimizer.step()
            losses.append(loss.item())
        print(json.dumps(losses))


main()
