# SPDX-License-Identifier: Apache-2.0
"""JAX jobs of the tests, with the interpreter that CTRUN_TEST_JAX names."""
import os
import subprocess

import ctrun
import pytest

SCRIPT = ctrun.ROOT / "tests" / "lib" / "jax_world.py"


def interpreter():
    python = os.environ.get("CTRUN_TEST_JAX")
    if not python:
        pytest.skip("CTRUN_TEST_JAX names no python with JAX")
    if subprocess.run([python, "-c", "import jax"], capture_output=True).returncode:
        pytest.skip(f"{python} has no jax")
    return python


def worlds(*runs):
    return sorted(line for run in runs for line in run.out.splitlines() if line.startswith("process "))


def expected(size):
    return sorted(f"process {rank} of {size}, rank {rank}, devices {size}, sum {size * (size - 1) // 2}" for rank in range(size))
