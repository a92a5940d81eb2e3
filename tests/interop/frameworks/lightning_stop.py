# SPDX-License-Identifier: Apache-2.0
"""Lightning with ctrun's callback: trains until the run is stopped."""
import pathlib

import lightning
import torch
from report import net, report, samples

from ctrun.lightning import Progress


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = net()

    def training_step(self, batch, _):
        x, y = batch
        return (self.net(x) - y).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

    def on_train_batch_end(self, *_):
        if self.global_step == 5:
            pathlib.Path(f"ready.{self.trainer.global_rank}").touch()


module = Module()
trainer = lightning.Trainer(
    accelerator="cpu", devices=2, strategy="ddp", max_steps=10 ** 7, logger=False, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False, callbacks=[Progress(checkpoint="last.ckpt")])
trainer.fit(module, torch.utils.data.DataLoader(samples(), batch_size=8))
saved = torch.load("last.ckpt", weights_only=False)
report(trainer.global_rank, trainer.world_size, trainer.local_rank, module.parameters(),
       steps=trainer.global_step, saved=saved["global_step"])
