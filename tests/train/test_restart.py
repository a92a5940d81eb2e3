# SPDX-License-Identifier: Apache-2.0
"""kill -9 of a worker in mid-epoch: with a restart the run goes on from its checkpoint, without
one it ends with the worker's fate."""
import os
import signal

import ctrun

# More steps than can pass before the kill: the run must end by what the test does.
ENDLESS = ["--epochs=1000", "--save-steps=5", "--log-interval=1", "--threads=1", "--json"]


def start(box, *options, mnist=()):
    return box.start_ctrun("--standalone", "--nproc-per-node=2", *options,
                           ctrun.program("ctrun-mnist"), "--save", box.path("ck"), "--resume",
                           *mnist)


def test_a_killed_worker_restarts_both_and_they_resume(box):
    run = start(box, "--max-restarts=1", mnist=["--limit-steps=60", *ENDLESS])
    workers = box.wait_workers(2)
    ctrun.wait_until(box.path("ck").exists, lambda: f"a checkpoint\n{run}", 120)
    seen = run.out.count('"step"')
    os.kill(workers[1], signal.SIGKILL)
    again = box.wait_workers(2, restart=1)
    assert again[0] != workers[0] and again[1] != workers[1]
    assert run.wait(240) == 0, run
    assert "rank 1" in run.err and "SIGKILL" in run.err, run
    # 60 steps in all over both lives, counted from the first start: nothing began anew.
    steps = [line for line in run.out.splitlines() if '"step"' in line]
    assert seen <= len(steps) < 120, run


def test_without_restarts_the_run_ends_with_137_and_says_who_died(box):
    run = start(box, mnist=ENDLESS)
    workers = box.wait_workers(2)
    os.kill(workers[1], signal.SIGKILL)
    assert run.wait(60) == 137, run
    box.wait_gone(1)
    assert "rank 1" in run.err and f"pid {workers[1]}" in run.err and "SIGKILL" in run.err, run
