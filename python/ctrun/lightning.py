# SPDX-License-Identifier: Apache-2.0
"""A callback for Lightning's Trainer: tells ctrun each step, and ends the training when ctrun asks.

    from ctrun.lightning import Progress
    Trainer(callbacks=[Progress(checkpoint="last.ckpt")])"""
from typing import Any, Optional

try:
    from lightning.pytorch import Callback
except ImportError:
    from pytorch_lightning import Callback

import ctrun

__all__ = ["Progress"]


class Progress(Callback):  # type: ignore[misc] # Lightning may be missing where types are checked
    """checkpoint: where all ranks save when the run is to end; None: this callback does not save. The
    Trainer still trains until min_epochs and min_steps are reached."""

    def __init__(self, checkpoint: Optional[str] = None) -> None:
        super().__init__()
        self._checkpoint = checkpoint

    def on_train_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
        ctrun.step(trainer.global_step)
        if ctrun.should_stop() and not trainer.should_stop:
            if self._checkpoint is not None:
                trainer.save_checkpoint(self._checkpoint)  # returns when all ranks have saved
            trainer.should_stop = True
