# SPDX-License-Identifier: Apache-2.0
"""PyTorch's fully_shard (FSDP2) over a device mesh, which reads LOCAL_RANK and the world's size."""
import os

import torch
import torch.distributed as dist
from report import batches, net, report
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

mesh = init_device_mesh("cpu", (int(os.environ["WORLD_SIZE"]),))
model = net()
for layer in model:
    if isinstance(layer, torch.nn.Linear):
        fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for x, y in batches(dist.get_rank()):
    optimizer.zero_grad()
    (model(x) - y).square().mean().backward()
    optimizer.step()
report(dist.get_rank(), dist.get_world_size(), int(os.environ["LOCAL_RANK"]),
       [p.full_tensor() for p in model.parameters()])
dist.destroy_process_group()
