# SPDX-License-Identifier: Apache-2.0
"""A callback for Transformers' Trainer: tells ctrun each step, and saves and ends the training when
ctrun asks.

    from ctrun.transformers import Progress
    Trainer(..., callbacks=[Progress()])"""
from typing import Any

from transformers import TrainerCallback

import ctrun

__all__ = ["Progress"]


class Progress(TrainerCallback):  # type: ignore[misc] # may be missing where types are checked
    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        ctrun.step(state.global_step)
        if ctrun.should_stop():
            control.should_save = True
            control.should_training_stop = True
        return control
