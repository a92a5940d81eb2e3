# SPDX-License-Identifier: Apache-2.0
"""Trainer of Hugging Face's Transformers, with a model that is made here: nothing is fetched."""
import os

import torch
from report import report
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

torch.manual_seed(0)
model = BertForSequenceClassification(BertConfig(
    vocab_size=32, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
    max_position_embeddings=16, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))
random = torch.Generator().manual_seed(7)
words = torch.randint(0, 32, (32, 8), generator=random)
data = [{"input_ids": line, "attention_mask": torch.ones_like(line), "labels": line[0] % 2}
        for line in words]
arguments = TrainingArguments(
    output_dir=f"out.{os.environ['RANK']}", use_cpu=True, ddp_backend="gloo", max_steps=3,
    per_device_train_batch_size=4, report_to=[], save_strategy="no", disable_tqdm=True, seed=0)
trainer = Trainer(model=model, args=arguments, train_dataset=data)
trainer.train()
report(arguments.process_index, arguments.world_size, arguments.local_process_index,
       model.parameters(), mode=str(arguments.parallel_mode), steps=trainer.state.global_step)
