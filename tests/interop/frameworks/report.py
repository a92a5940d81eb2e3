# SPDX-License-Identifier: Apache-2.0
"""What the scripts of this folder share: a line of each rank that must be equal under both
launchers."""
import json
import os

import torch

torch.set_num_threads(1)
torch.manual_seed(0)


def batches(rank, steps=4):
    """This rank's samples, the same in every run."""
    for step in range(steps):
        random = torch.Generator().manual_seed(100 * step + rank)
        x = torch.randn(8, 4, generator=random)
        yield x, x.sum(dim=1, keepdim=True)


def samples(count=64):
    """A data set that a framework distributes by itself."""
    x = torch.randn(count, 4, generator=torch.Generator().manual_seed(7))
    return torch.utils.data.TensorDataset(x, x.sum(dim=1, keepdim=True))


def net():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))


def report(rank, world, local_rank, parameters, **more):
    """One write, so that lines of ranks do not mix."""
    total = sum(float(p.detach().double().abs().sum()) for p in parameters)
    line = json.dumps({"rank": rank, "world": world, "local_rank": local_rank,
                       "sum": f"{total:.6f}", **more})
    os.write(1, f"report {line}\n".encode())
