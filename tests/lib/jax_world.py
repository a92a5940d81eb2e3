# SPDX-License-Identifier: Apache-2.0
"""Calls jax.distributed.initialize() without arguments, and sums the process numbers of all
processes.

usage: jax_world.py [hang]    hang: the processes of the first round do not end by themselves"""
import os
import signal
import sys

import jax

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize()

import jax.numpy as jnp  # noqa: E402
from jax.experimental import multihost_utils  # noqa: E402

total = int(multihost_utils.process_allgather(jnp.array([jax.process_index()])).sum())
print("process", jax.process_index(), "of", f"{jax.process_count()}, rank {os.environ['RANK']}, devices {len(jax.devices())},",
      "sum", total, flush=True)
while "hang" in sys.argv and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    signal.pause()
jax.distributed.shutdown()
