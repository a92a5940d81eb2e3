# SPDX-License-Identifier: Apache-2.0
"""Trainer of Transformers with ctrun's callback: trains until the run is stopped."""
import json
import pathlib

from transformers import TrainerCallback
from transformers_trainer import make_trainer, tell

from ctrun.transformers import Progress


class Ready(TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        if state.global_step == 5:
            pathlib.Path(f"ready.{args.process_index}").touch()


trainer = make_trainer("out", max_steps=10 ** 7, callbacks=[Progress(), Ready()])
trainer.train()
saved, = pathlib.Path("out").glob("checkpoint-*/trainer_state.json")
tell(trainer, saved=json.loads(saved.read_text())["global_step"])
