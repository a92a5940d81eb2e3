# SPDX-License-Identifier: Apache-2.0
"""Agents had workers of a run that this server does not know: it starts no world beside them."""
import time

import fake_agent as wire
import pytest
from clock import Clock

LEASE_MS, KILL_MS = 60000, 2000


@pytest.mark.parametrize("runs", [("job",), ("job", "another")])
def test_nothing_is_founded_while_workers_of_an_unknown_instance_may_live(box, start_daemon, runs):
    clock = Clock(box)
    daemon, began = start_daemon(env=clock.env), time.monotonic()
    for run in runs:
        old = daemon.agent("old").hello(run=run, instance=5, generation=7)
        refuse = old.expect(wire.REFUSE)
        assert refuse["code"] == wire.E_LEADER_LOST and "it was restarted" in refuse["text"]
    new = [daemon.agent("new").hello(run=run, min_nodes=1, max_nodes=1, lost_after=LEASE_MS).join()
           for run in runs]
    for start in wire.live_until_start(*new, clock=clock):
        assert start["generation"] == 8  # generations never decrease
    assert time.monotonic() - began + clock.ahead_ns / 10**9 >= (LEASE_MS + KILL_MS) / 1000


def test_a_node_of_another_instance_holds_back_a_run_that_is_being_founded(box, start_daemon):
    clock = Clock(box)
    daemon = start_daemon(env=clock.env)
    first = daemon.agent("first").hello(min_nodes=2, max_nodes=2, lost_after=LEASE_MS)
    first.expect(wire.WELCOME)
    old = daemon.agent("old").hello(min_nodes=2, max_nodes=2, instance=5, generation=7)
    assert old.expect(wire.REFUSE)["code"] == wire.E_LEADER_LOST
    second = daemon.agent("second").hello(min_nodes=2, max_nodes=2)
    first.join()
    second.join(port=4001)
    assert {start["generation"] for start in wire.live_until_start(first, second, clock=clock)} == {8}


def test_a_node_comes_back_to_its_own_instance(daemon):
    agents, _ = daemon.world(2, min_nodes=1, max_nodes=2, lost_after=LEASE_MS)
    mine = daemon.agent("probe").hello(min_nodes=1, max_nodes=2)
    instance = mine.expect(wire.WELCOME)["instance"]
    assert instance != 0
    back = daemon.agent("back").hello(min_nodes=1, max_nodes=2, instance=instance, generation=1)
    assert back.expect(wire.WELCOME)["instance"] == instance
    assert all(agent.sock for agent in agents)
