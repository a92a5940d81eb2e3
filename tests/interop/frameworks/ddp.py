# SPDX-License-Identifier: Apache-2.0
"""PyTorch's DistributedDataParallel."""
import os

import torch
import torch.distributed as dist
from report import batches, net, report

dist.init_process_group("gloo")
rank = dist.get_rank()
model = torch.nn.parallel.DistributedDataParallel(net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for x, y in batches(rank):
    optimizer.zero_grad()
    (model(x) - y).square().mean().backward()
    optimizer.step()
report(rank, dist.get_world_size(), int(os.environ["LOCAL_RANK"]), model.parameters())
del model, optimizer  # the group ends here: its threads may not outlive Python (torch 1.13 aborts then)
dist.destroy_process_group()
