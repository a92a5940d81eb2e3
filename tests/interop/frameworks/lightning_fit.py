# SPDX-License-Identifier: Apache-2.0
"""Lightning: it must detect that it was launched, and start no processes of its own."""
import os

import lightning
import torch
from lightning.fabric.plugins.environments import TorchElasticEnvironment
from report import net, report, samples


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = net()

    def training_step(self, batch, _):
        x, y = batch
        return (self.net(x) - y).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)


assert TorchElasticEnvironment.detect()
module = Module()
trainer = lightning.Trainer(
    accelerator="cpu", devices=int(os.environ["LOCAL_WORLD_SIZE"]), strategy="ddp", max_epochs=1,
    num_nodes=int(os.environ["GROUP_WORLD_SIZE"]), logger=False, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False)
trainer.fit(module, torch.utils.data.DataLoader(samples(), batch_size=8))
report(trainer.global_rank, trainer.world_size, trainer.local_rank, module.parameters(),
       steps=trainer.global_step, node=trainer.node_rank)
