# SPDX-License-Identifier: Apache-2.0
"""--rdzv-backend=etcd: rendezvous servers that end or are killed."""
import os
import signal
import time

import ctrun
import etcd_job
from etcd_job import job  # noqa: F401

KILLS = int(os.environ.get("CTRUN_TEST_HOST_KILLS", "2"))  # in a row


def test_the_run_goes_on_each_time_its_host_is_killed(job):
    """The acceptance list requires CTRUN_TEST_HOST_KILLS=20."""
    run = job("1:3", 3)
    for kill in range(KILLS):
        before = run.wait_world(3)
        began = time.monotonic()
        run.kill_host()
        generation = run.wait_world(2, after=before, seconds=10)
        print(f"kill {kill + 1}: {time.monotonic() - began:.1f} s")
        run.start(1)
        assert run.wait_world(3, after=generation) > generation
    run.finish()


def test_a_host_that_is_told_to_end_hands_the_run_over_at_once(box, job):
    run = job("1:3", 3)
    node, _ = run.host()
    node.signal(signal.SIGTERM)
    assert node.wait() == 128 + signal.SIGTERM
    run.nodes.remove(node)
    box.wait_event("election", count=2, to="leading")
    run.wait_world(2, after=1)
    run.finish()


def test_failures_count_over_hosts(box, job):
    """The first server uses the one restart; the second server knows that."""
    run = job("1:3", 3, "--max-restarts=1", program=etcd_job.FAILS)
    box.write("fail", "")
    run.wait_world(3, after=1)
    run.kill_host()
    run.wait_world(2, after=2)
    box.write("fail", "")
    assert [node.wait() for node in run.nodes] == [3, 3], run.nodes


def test_a_key_that_somebody_deletes_deposes_the_host_and_the_run_goes_on(box, job):
    run = job("1:2", 2)
    run.etcd.delete("/ctrun/job/host")
    box.wait_event("election", **{"from": "leading"})
    box.wait_event("election", count=2, to="leading")
    ctrun.wait_until(lambda: "/ctrun/job/host" in run.etcd.keys(), "a host again")
    run.finish()
