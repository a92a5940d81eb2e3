# SPDX-License-Identifier: Apache-2.0
"""JAX, unmodified: jax.distributed.initialize() without arguments under --jax, on the CPU, with the interpreter
that CTRUN_TEST_JAX names (python3 -m venv V && V/bin/pip install jax)."""
import os
import signal

import ctrun
from jax_job import SCRIPT, expected, interpreter, worlds

def test_one_host_is_one_world(box):
    run = box.ctrun("--standalone", "--nproc-per-node=3", "--jax", SCRIPT, seconds=200, env={"PYTHON_EXEC": interpreter()})
    assert run.code == 0 and worlds(run) == expected(3), run


def test_a_restarted_world_is_one_again(box):
    run = box.start_ctrun("--standalone", "--nproc-per-node=2", "--jax", "--max-restarts=1", SCRIPT, "hang",
                          env={"PYTHON_EXEC": interpreter()})
    ctrun.wait_until(lambda: len(worlds(run)) == 2, lambda: f"both have met\n{run}", 200)
    os.kill(box.workers(restart=0)[1], signal.SIGKILL)
    assert run.wait(200) == 0 and worlds(run) == sorted(2 * expected(2)), run


def test_the_variables_do_not_mislead_pytorch_in_the_same_worker(box):
    script = box.write("both.py", "import os, torch.distributed as d\nd.init_process_group('gloo')\n"
                                  "print('process', d.get_rank(), d.get_world_size(), flush=True)\n")
    run = box.ctrun("--standalone", "--nproc-per-node=2", "--jax", script, seconds=200,
                    env={"PYTHON_EXEC": ctrun.DEBIAN_PYTHON})
    assert run.code == 0 and worlds(run) == ["process 0 2", "process 1 2"], run
