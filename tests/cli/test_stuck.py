# SPDX-License-Identifier: Apache-2.0
"""A worker in uninterruptible sleep: posix_spawn() is a vfork, whose parent sleeps so (state D)
until the child has called exec; the child never does, because it opens a pipe that nobody
writes."""
import os

import ctrun
import pytest
from clock import Clock

STUCK = """import os, sys
os.mkfifo("pipe")
os.posix_spawn("/bin/true", ["true"], os.environ,
               file_actions=[(os.POSIX_SPAWN_OPEN, 0, "pipe", os.O_RDONLY, 0)])
"""
LIMIT = "TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT"


@pytest.mark.parametrize("limit", ["0.5", "1e0"])
def test_torchrun_141_a_worker_stuck_in_the_kernel_ends_the_node(box, limit):
    box.write("stuck.py", STUCK)
    worker = box.write("worker.sh", """#!/bin/sh
if [ "$RANK" = 1 ]; then exec %s stuck.py; fi
sleep 60
""" % ctrun.DEBIAN_PYTHON, 0o755)
    run = box.ctrun("--max-restarts=3", "--nproc-per-node=2", "--shutdown-timeout=1", worker,
                    env={LIMIT: limit})
    assert run.code == 76, run
    assert "error[E_UNKILLABLE]: rank 1: pid " in run.err
    assert "uninterruptible sleep (state D)" in run.err
    assert len(box.events("round_started")) == 1


def test_the_other_nodes_do_not_wait_for_the_lease_of_a_node_whose_stuck_worker_has_ended(box):
    """No wait of this test is as long as the lease."""
    clock = Clock(box)
    clock.advance(10**5)  # after a boot runs of several nodes are held back for a lease
    daemon, endpoint = box.start_ctrund(env=clock.env)
    box.write("stuck.py", STUCK)
    worker = box.write("worker.sh", """#!/bin/sh
if [ "$RANK" = 1 ]; then exec %s stuck.py; fi
while [ ! -e done ]; do sleep 0.05; done
""" % ctrun.DEBIAN_PYTHON, 0o755)
    runs = []
    for n in range(2):
        runs.append(box.start_ctrun("--nnodes=1:2", f"--rdzv-endpoint={endpoint}", "--shutdown-timeout=1",
                                    "--rdzv-conf=keep_alive_interval=1000,keep_alive_max_attempt=3", worker,
                                    env={LIMIT: "0.5", **clock.env}))
        box.wait_event("agent_state", n + 1, to="joining")  # the order of the ranks
    assert runs[1].wait() == 76, runs[1]
    box.wait_event("round_started", generation=2)
    box.write("done", "")
    assert runs[0].wait() == 0, runs[0]
    daemon.signal(15)
    assert daemon.wait() == 0


def test_torchrun_141_the_exit_code_of_torchrun_on_demand(box):
    box.write("stuck.py", STUCK)
    run = box.ctrun("--exit-code=torchrun", "--shutdown-timeout=0", "--no-python",
                    ctrun.DEBIAN_PYTHON, "stuck.py", env={LIMIT: "0.2"})
    assert run.code == 1, run


@pytest.mark.parametrize("value", ["", "0", "-1", "abc", "1x"])
def test_torchrun_142_no_limit_no_check_no_word(box, value):
    run = box.ctrun("true", env={LIMIT: value})
    assert run.code == 0 and run.err == "", run


def test_torchrun_142_a_worker_that_sleeps_as_usual_is_not_stuck(box):
    os.mkfifo(box.path("go"))
    run = box.start_ctrun("sh", "-c", "read _ < go", env={LIMIT: "0.1"})  # a shell that starts a program waits in D
    box.wait_event("worker_started")
    for number in range(100):  # time in which ctrun looks at the worker
        box.run("true")
    box.path("go").write_text("\n")
    assert run.wait() == 0
