# SPDX-License-Identifier: Apache-2.0
"""Each example does what its first lines say, with one worker and with several."""
import ctrun
import pytest

SAYS = {
    "01_hello": "hello from rank {last} of {n} (local {last} of {n}, node 0, restart 0)",
    "02_send_recv": "sum of all ranks: {sum}",
    "03_all_reduce": "1 + ... + {n} = {sum_plus}, on every rank",
    "04_average_gradients": "y = 3.0",
    "05_ddp": "y = 3.0",
}


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("name", SAYS)
def test_the_example_runs(box, name, n):
    run = box.ctrun("--standalone", f"--nproc-per-node={n}", ctrun.program(name))
    assert run.code == 0, run
    wanted = SAYS[name].format(n=n, last=n - 1, sum=n * (n - 1) // 2, sum_plus=n * (n + 1) // 2)
    assert wanted in run.out, run
