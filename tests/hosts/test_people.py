# SPDX-License-Identifier: Apache-2.0
"""What users do by hand: they forget --nnodes on two hosts, or drain a node."""
import json
import signal

import ctrun

CTL = ctrun.program("ctrunctl")
HOLD = ["--no-python", "sh", "-c", "exec sleep 600"]


def start(hosts, node, *words):
    return hosts.start(node, ctrun.program("ctrun"), "--rdzv-endpoint=node1:29400", "--shutdown-timeout=5",
                       *words)


def test_nnodes_forgotten_on_two_hosts_is_refused_on_the_second(box, lab):
    """Otherwise two jobs of one node each would succeed: not what the user wanted."""
    hosts = lab(2)
    first = start(hosts, "node1", *HOLD)
    box.wait_event("worker_started")
    second = start(hosts, "node2", *HOLD)
    assert second.wait(30) == 77, second
    assert "error[E_OTHER_JOB]" in second.err and "--nnodes" in second.err, second
    assert len(box.events("worker_started")) == 1
    first.signal(signal.SIGTERM)
    assert first.wait(30) == 143, first


def test_drain_of_a_host_from_another_one_lets_the_rest_go_on(box, lab):
    hosts = lab(3)
    runs = [start(hosts, f"node{n}", "--nnodes=2:3", "--rdzv-id=d", "--rdzv-conf=last_call_timeout=60",
                  *HOLD) for n in (1, 2, 3)]
    box.wait_event("round_started", count=3)
    asked = hosts.start("node1", CTL, "drain", "--json", "node3", "--reason=a fan is loud")
    assert asked.wait(30) == 0 and json.loads(asked.out) == {"asked": True, "nodes": 1}, asked
    assert runs[2].wait(30) == 143, runs[2]
    assert "ctrun: stopped as asked: a fan is loud; all workers are gone\n" in runs[2].err, runs[2]
    box.wait_event("round_started", count=2, generation=2, group_world_size=2)
    for run in runs[:2]:
        ctrun.wait_until(lambda run=run: "new round: node3 leaves (asked to: a fan is loud)\n" in run.err,
                         lambda run=run: f"who leaves, and why\n{run}")
    for run in (runs[1], runs[0]):  # the one that serves the rendezvous is the last
        run.signal(signal.SIGTERM)
        assert run.wait(30) == 143, runs
