# SPDX-License-Identifier: Apache-2.0
"""Megatron's entry: rank, size and local rank out of the environment as its argument parser reads
them, one process group, and the groups that megatron-core makes in it. Its kernels need a GPU;
its groups do not."""
import os

import torch
import torch.distributed as dist
from megatron.core import parallel_state as mpu
from report import report

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", rank=rank, world_size=world)
mpu.initialize_model_parallel(tensor_model_parallel_size=2)
mine = torch.full((3,), float(rank + 1))
dist.all_reduce(mine, group=mpu.get_tensor_model_parallel_group())
report(rank, world, int(os.environ["LOCAL_RANK"]), [mine],
       tensor=[mpu.get_tensor_model_parallel_rank(), mpu.get_tensor_model_parallel_world_size()],
       data=[mpu.get_data_parallel_rank(), mpu.get_data_parallel_world_size()])
mpu.destroy_model_parallel()
dist.destroy_process_group()
