# SPDX-License-Identifier: Apache-2.0
"""Hugging Face Accelerate: its state comes from the launcher's environment."""
import torch
from accelerate import Accelerator
from report import net, report, samples

accelerator = Accelerator(cpu=True)
model = net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
loader = torch.utils.data.DataLoader(samples(), batch_size=8)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for x, y in loader:
    optimizer.zero_grad()
    accelerator.backward((model(x) - y).square().mean())
    optimizer.step()
report(accelerator.process_index, accelerator.num_processes, accelerator.local_process_index,
       model.parameters(), type=str(accelerator.distributed_type), batches=len(loader))
accelerator.end_training()
