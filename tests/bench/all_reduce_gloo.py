# SPDX-License-Identifier: Apache-2.0
"""The same measurement with torch.distributed's gloo, or with its NCCL.

usage: all_reduce_gloo.py RANKS ROUNDS [GPUS]     GPUS: NCCL on so many; more ranks share them"""
import os
import sys
import tempfile
import time

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402

REPEATS = {0: 200, 4: 200, 8: 200, 1024: 200, 65536: 100, 1 << 20: 40, 4799528: 20, 25 << 20: 4, 100 << 20: 4}


def use_gpu(rank, ranks, gpus):
    torch.cuda.set_device(rank % gpus)
    if ranks > gpus:  # NCCL refuses two ranks of one host on one GPU
        os.environ.update(NCCL_HOSTID=f"rank-{rank}", NCCL_SOCKET_IFNAME="lo", NCCL_MULTI_RANK_GPU_ENABLE="1")


def work(rank, ranks, path, rounds, gpus):
    torch.set_num_threads(1)
    if gpus:
        use_gpu(rank, ranks, gpus)
    wait = torch.cuda.synchronize if gpus else lambda: None
    dist.init_process_group("nccl" if gpus else "gloo", init_method="file://" + path, rank=rank, world_size=ranks)
    for _ in range(rounds):
        for size, repeats in REPEATS.items():
            data = torch.empty(size // 4, device="cuda" if gpus else "cpu")
            for i in range(repeats):
                data.fill_(1e-3 * i)
                dist.barrier()
                wait()
                start = time.perf_counter()
                if size:
                    dist.all_reduce(data)
                else:
                    dist.barrier()
                wait()
                if rank == 0:
                    print(size, f"{(time.perf_counter() - start) * 1e6:.3f}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        ranks, rounds, gpus = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0
        mp.spawn(work, args=(ranks, folder + "/store", rounds, gpus), nprocs=ranks)
