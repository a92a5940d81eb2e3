# SPDX-License-Identifier: Apache-2.0
"""Trainer of Hugging Face's Transformers, with a model that is made here: nothing is downloaded."""
import os

import torch
from report import report
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments


def make_trainer(folder, max_steps, callbacks=None):
    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig(
        vocab_size=32, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=16, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))
    random = torch.Generator().manual_seed(7)
    words = torch.randint(0, 32, (32, 8), generator=random)
    data = [{"input_ids": line, "attention_mask": torch.ones_like(line), "labels": line[0] % 2}
            for line in words]
    arguments = TrainingArguments(
        output_dir=folder, use_cpu=True, ddp_backend="gloo", max_steps=max_steps,
        per_device_train_batch_size=4, report_to=[], save_strategy="no", disable_tqdm=True, seed=0)
    return Trainer(model=model, args=arguments, train_dataset=data, callbacks=callbacks)


def tell(trainer, **more):
    report(trainer.args.process_index, trainer.args.world_size, trainer.args.local_process_index,
           trainer.model.parameters(), steps=trainer.state.global_step, **more)


if __name__ == "__main__":
    trainer = make_trainer(f"out.{os.environ['RANK']}", max_steps=3)
    trainer.train()
    tell(trainer, mode=str(trainer.args.parallel_mode))
