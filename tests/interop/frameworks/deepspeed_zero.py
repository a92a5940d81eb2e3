# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's ZeRO on the CPU, over gloo. It finds the launcher in the environment, not by MPI. The
first run on a machine compiles an operator, which takes a minute and more."""
import os

import deepspeed
import deepspeed.comm as dist
from report import batches, net, report

model = net()
engine, _, _, _ = deepspeed.initialize(
    model=model, model_parameters=model.parameters(), config={
        "train_micro_batch_size_per_gpu": 8, "zero_optimization": {"stage": 1},
        "zero_allow_untested_optimizer": True,
        "optimizer": {"type": "SGD", "params": {"lr": 0.05}}})
for x, y in batches(dist.get_rank()):
    engine.backward((engine(x) - y).square().mean())
    engine.step()
report(dist.get_rank(), dist.get_world_size(), int(os.environ["LOCAL_RANK"]), model.parameters(),
       local=engine.local_rank)
