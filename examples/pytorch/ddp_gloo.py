# SPDX-License-Identifier: Apache-2.0
"""What PyTorch users run today, unmodified: DistributedDataParallel over gloo, env:// rendezvous,
a checkpoint for restarts. Nothing here knows of ctrun.

    torchrun --standalone --nproc-per-node=2 --max-restarts=1 ddp_gloo.py
    ctrun    --standalone --nproc-per-node=2 --max-restarts=1 ddp_gloo.py
"""
import argparse
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def load(path, model, optimizer):
    """Loads the checkpoint; returns the step to continue with, 0 without a checkpoint."""
    if not path or not os.path.exists(path):
        return 0
    state = torch.load(path)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["step"]


def save(path, model, optimizer, step):
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
    torch.save(state, path + ".tmp")
    os.replace(path + ".tmp", path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--checkpoint", help="written by rank 0 every 10 steps, read at the start")
    parser.add_argument("--fail-at", type=int, help="rank 1 kills itself here in its first life")
    args = parser.parse_args()

    dist.init_process_group("gloo")  # init_method="env://"
    rank, world = dist.get_rank(), dist.get_world_size()
    restarts = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Sequential(
        torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    first = load(args.checkpoint, model, optimizer)
    for step in range(first, args.steps):
        if step == args.fail_at and rank == 1 and restarts == 0:
            os.kill(os.getpid(), 9)
        torch.manual_seed(step * world + rank)  # this rank's samples of this step
        x = torch.randn(16, 8)
        loss = (model(x) - x.sum(dim=1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if args.checkpoint and rank == 0 and (step + 1) % 10 == 0:
            save(args.checkpoint, model, optimizer, step + 1)

    flat = torch.cat([p.detach().flatten() for p in model.parameters()])
    everyone = [torch.empty_like(flat) for _ in range(world)]
    dist.all_gather(everyone, flat)
    same = all(torch.equal(flat, other) for other in everyone)
    dist.destroy_process_group()
    print(f"rank {rank} of {world}: torch {torch.__version__}, restart {restarts}, steps {first} to "
          f"{args.steps}, loss {loss.item():.4f}, parameters {'equal' if same else 'DIFFER'}", flush=True)
    return 0 if same else 1


if __name__ == "__main__":
    raise SystemExit(main())
