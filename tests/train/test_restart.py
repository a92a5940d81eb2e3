# SPDX-License-Identifier: Apache-2.0
"""kill -9 of a worker in mid-epoch: with a restart the run goes on from its checkpoint, without
one it ends with the worker's fate."""
import os
import signal

import ctrun
import mnist

# More steps than can pass before the kill: the run must end by what the test does.
ENDLESS = ("--epochs=1000", "--global-batch=32", "--save-steps=10", "--log-interval=1",
           "--threads=1", "--resume")


def start(box, *options, launcher=()):
    return mnist.start(box, 2, mnist.make_data(box), *ENDLESS, f"--save={box.path('ck')}",
                       *options, launcher=launcher)


def test_a_killed_worker_restarts_both_and_they_resume(box):
    run = start(box, "--limit-steps=100", launcher=("--max-restarts=1",))
    workers = box.wait_workers(2)
    ctrun.wait_until(box.path("ck").exists, lambda: f"a checkpoint\n{run}", 120)
    seen = run.out.count('"step"')
    os.kill(workers[1], signal.SIGKILL)
    again = box.wait_workers(2, restart=1)
    assert again[0] != workers[0] and again[1] != workers[1]
    assert run.wait(240) == 0, run
    assert "rank 1" in run.err and "SIGKILL" in run.err, run
    # 100 steps in all over both lives, counted from the first start: nothing began anew.
    steps = [line for line in run.out.splitlines() if '"step"' in line]
    assert seen <= len(steps) < 200, run


def test_without_restarts_the_run_ends_with_137_and_says_who_died(box):
    run = start(box)
    workers = box.wait_workers(2)
    os.kill(workers[1], signal.SIGKILL)
    assert run.wait(60) == 137, run
    box.wait_gone(1)
    assert "rank 1" in run.err and f"pid {workers[1]}" in run.err and "SIGKILL" in run.err, run
