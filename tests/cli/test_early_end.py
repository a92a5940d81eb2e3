# SPDX-License-Identifier: Apache-2.0
"""A rank that ends with 0 long before the others, which may wait for it."""
import ctrun
from clock import Clock

WORDS = ["@1", "exit", "0", "@0", "await", "go", "@2", "await", "go"]


def test_a_rank_that_ended_with_0_while_the_others_run_is_named_once(box):
    clock = Clock(box)
    run = box.start_ctrun("--nproc-per-node=3", "--rdzv-conf=keep_alive_interval=1000", "--no-python",
                          ctrun.program("victim"), *WORDS, env=clock.env)
    box.wait_event("worker_ended", rank=1)

    def look():  # whoever answers has looked at the clock
        assert box.run(ctrun.program("ctrunctl"), "status", f"--run={run.pid}").code == 0
    clock.stand()
    clock.advance(50)
    look()
    assert "ended with 0" not in run.err, run
    for _ in range(3):
        clock.advance(20)
        look()
    ctrun.wait_until(lambda: "ended with 0" in run.err, lambda: f"{run}")
    [line] = [line for line in run.err.splitlines() if "ended with 0" in line]
    assert line.startswith("ctrun: rank 1 ended with 0 ") and line.endswith(" s ago; 2 ranks of this node still run"), run
    clock.go_on()
    box.write("go", "")
    assert run.wait() == 0, run
