# SPDX-License-Identifier: Apache-2.0
"""examples/llm in PyTorch: the same parameters, order of samples, steps; prints each step's loss.

usage: llm_torch.py TEXT STEPS"""
import math
import sys

import torch
import torch.nn.functional as F
from torch.utils.data import DistributedSampler

VOCAB, CONTEXT, WIDTH, HEADS, LAYERS, BATCH = 256, 64, 64, 4, 2, 16


def initial_values():
    shapes = [(VOCAB, WIDTH), (CONTEXT, WIDTH)]
    shapes += LAYERS * [(3 * WIDTH, WIDTH), (WIDTH, WIDTH), (4 * WIDTH, WIDTH), (WIDTH, 4 * WIDTH)] + [(VOCAB, WIDTH)]
    seed = 1
    for shape in shapes:
        values = []
        for _ in range(math.prod(shape)):
            seed = (seed * 1664525 + 1013904223) % 2**32
            values.append((seed >> 8) / 16777216 - 0.5)  # a float32 holds it exactly
        yield torch.nn.Parameter(torch.tensor(values, dtype=torch.float32).reshape(shape) * 0.2)


def norm(x):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)


def forward(params, tokens):
    x = params[0][tokens] + params[1]
    for layer in range(LAYERS):
        qkv, merge, up, down = params[2 + 4 * layer:6 + 4 * layer]
        q, k, v = ((norm(x) @ qkv.T).reshape(*x.shape[:2], 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4))
        scores = q @ k.transpose(-1, -2) / math.sqrt(WIDTH // HEADS)
        scores = scores.masked_fill(torch.ones(CONTEXT, CONTEXT).triu(1).bool(), -math.inf)
        x = x + (scores.softmax(-1) @ v).transpose(1, 2).reshape(x.shape) @ merge.T
        x = x + (norm(x) @ up.T).relu().pow(2) @ down.T
    return norm(x) @ params[-1].T


def main():
    torch.set_num_threads(1)
    text = torch.tensor(list(open(sys.argv[1], "rb").read()))
    sequences = (len(text) - 1) // CONTEXT // BATCH * BATCH
    order = list(DistributedSampler(range(sequences), num_replicas=1, rank=0))
    params = list(initial_values())
    optimizer = torch.optim.AdamW(params, lr=3e-3, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.01)
    for step in range(int(sys.argv[2])):
        starts = [CONTEXT * index for index in order[BATCH * step:BATCH * (step + 1)]]
        batch = torch.stack([text[start:start + CONTEXT + 1] for start in starts])
        loss = F.cross_entropy(forward(params, batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        optimizer.step()
        print(loss.item())


main()
