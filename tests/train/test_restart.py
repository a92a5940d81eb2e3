# SPDX-License-Identifier: Apache-2.0
"""kill -9 of a worker in mid-epoch: with a restart the run continues from its checkpoint, without
one it ends with the worker's exit code."""
import os
import signal

import ctrun
import mnist

# More steps than can be made before the kill: the run must end by what the test does.
ENDLESS = ("--epochs=1000", "--global-batch=32", "--save-steps=10", "--log-interval=1",
           "--threads=1", "--resume")


def start(box, *options, launcher=()):
    return mnist.start(box, 2, mnist.make_data(box), *ENDLESS, f"--save={box.path('ck')}",
                       *options, launcher=launcher)


# The first attempt is endless; the second one waits for the file with its limit.
LIVES = """if [ "$TORCHELASTIC_RESTART_COUNT" = 1 ]; then
    until [ -e limit ]; do sleep 0.02; done
    set -- "$@" --limit-steps=$(cat limit)
fi
exec "$@"
"""


def test_a_killed_worker_restarts_both_and_they_resume(box):
    run = box.start_ctrun("--standalone", "--nproc-per-node=2", "--max-restarts=1", "sh", "-c", LIVES, "sh",
                          *mnist.command(mnist.make_data(box), *ENDLESS, f"--save={box.path('ck')}"))
    ctrun.wait_until(lambda: run.out.count('"step"') >= 100, lambda: f"many steps\n{run}", 120)
    os.kill(box.events("worker_started", rank=1)[0]["worker_pid"], signal.SIGKILL)
    pids = [event["worker_pid"] for event in box.wait_event("worker_started", 4)]
    assert len(set(pids)) == 4
    seen = run.out.count('"step"')
    box.write("limit", str(seen + 20))
    assert run.wait(240) == 0, run
    assert "rank 1" in run.err and "SIGKILL" in run.err, run
    # Both attempts made so many steps, and those since the last checkpoint twice: it did not begin
    # again.
    assert seen + 20 <= run.out.count('"step"') < seen + 100, run


def test_without_restarts_the_run_ends_with_137_and_says_who_died(box):
    run = start(box)
    workers = box.wait_workers(2)
    os.kill(workers[1], signal.SIGKILL)
    assert run.wait(60) == 137, run
    box.wait_gone()
    assert "rank 1" in run.err and f"pid {workers[1]}" in run.err and "SIGKILL" in run.err, run
