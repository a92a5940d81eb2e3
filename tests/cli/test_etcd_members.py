# SPDX-License-Identifier: Apache-2.0
"""--rdzv-backend=etcd: an etcd that loses members, and watches that are cut."""
import signal

import ctrun
import etcd_job
from etcd_job import job  # noqa: F401


def test_an_etcd_member_that_dies_and_a_change_of_its_leader_cost_nothing(box, job):
    """The leases are long: how soon etcd has a new leader depends on the disk that it writes to."""
    run = job("2", 2, members=3, conf={"lease_ttl": 20, "keep_alive_interval": 20})
    for _ in range(2):
        leader = run.etcd.leader()
        run.etcd.kill(leader)
        ctrun.wait_until(lambda: run.etcd.leader() is not None, "a new leader of etcd")
        run.etcd.start(leader)
        ctrun.wait_until(lambda: len(run.etcd.keys()) == 2, "etcd answers")
    assert len(box.events("election", to="leading")) == 1
    assert {event["generation"] for event in box.events("round_started")} == {1}
    run.finish()


def test_an_etcd_member_that_hangs_costs_a_second(box, job):
    """The server writes the restart to the next member."""
    run = job("2", 2, "--max-restarts=1", members=3, program=etcd_job.FAILS)
    run.etcd.freeze(0)
    box.write("fail", "")
    run.wait_world(2, after=1)
    run.etcd.thaw(0)
    assert len(box.events("election", to="leading")) == 1
    run.finish()


def test_a_watch_that_is_cut_goes_on_from_the_revision_that_was_seen(box, job):
    """With a long lease there is a long watch, which the kill cuts."""
    run = job("1:2", 2, members=3, conf={"lease_ttl": 20})
    box.wait_event("election_watch", what="began")
    run.etcd.kill(0)  # all nodes use the first member first
    cut = box.wait_event("election_watch", what="cut")[0]
    box.wait_event("election_watch", what="began", revision=cut["revision"], count=1)
    assert {event["generation"] for event in box.events("round_started")} == {1}
    run.etcd.start(0)
    run.finish()


def test_a_watch_whose_past_was_compacted_begins_with_a_new_look(box, job):
    run = job("1:2", 2, members=3, conf={"lease_ttl": 20})
    box.wait_event("election_watch", what="began")
    for number in range(3):
        run.etcd.put("/ctrun/other", str(number))
    run.etcd.compact()
    run.etcd.kill(0)
    box.wait_event("election_watch", what="compacted")
    node, _ = run.host()
    node.signal(signal.SIGTERM)
    node.wait()
    run.nodes.remove(node)
    box.wait_event("election", count=2, to="leading")
    run.finish()
