# SPDX-License-Identifier: Apache-2.0
"""Ranks that have not connected to the worker store while others have: the event ranks_absent, and the
message to the node of group rank 0."""
import socket

import ctrun
import pytest
import schema

# Rank 1 of the node never connects to the store; with `busy` it uses the CPU.
CONNECT = """
import os, signal, socket, sys
if os.environ["LOCAL_RANK"] != "1":
    store = socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
    store.send(b"rank")
while sys.argv[1] == "busy":
    pass
signal.pause()
"""


class Job:
    """Three workers of a node. The store of the round is a socket of the test; how many ranks have
    counted themselves there is in a file."""

    def __init__(self, node, name="job", group_rank=0, nodes=1, how="waits"):
        self.file = node.box.path(name)
        self.store = socket.create_server(("127.0.0.1", 0))
        self.server = node.serve(workers=3)
        self.server.master_port = self.store.getsockname()[1]
        self.server.nodes, self.server.group_rank = nodes, group_rank
        self.run = node.start(server=self.server, workers=3,
                              options=["--absent", 400, "--store-ranks", self.file],
                              program=["python3", node.box.write("train.py", CONNECT), how])
        self.clients = []
        while len(self.clients) < 2:  # the agent of another node connects, too, and sends nothing
            client, _ = self.store.accept()
            client.settimeout(20)
            if client.recv(4):
                self.clients.append(client)

    def count(self, ranks):
        self.file.write_text(str(ranks))

    def wait_sent(self, ranks):
        return ctrun.wait_until(lambda: [one for one in self.server.received("ABSENT") if one["ranks"] == ranks],
                                lambda: f"ABSENT of {ranks}: {self.server.received('ABSENT')}")

    def end(self):
        self.run.signal(15)
        self.run.wait()
        for one in (*self.clients, self.store):
            one.close()


def event_of(node):
    (event,) = node.box.wait_event("ranks_absent")
    schema.check(event, "events")
    return event["connected"], event["world_size"], event["ranks"]


def test_a_rank_without_a_connection_is_named_once_some_have_counted_themselves(node):
    job = Job(node)
    job.count(2)
    assert event_of(node) == (2, 3, "rank 1 (here)")
    job.end()
    assert len(node.box.events("ranks_absent")) == 1


def test_another_node_sends_its_own_to_the_first(node):
    job = Job(node, group_rank=1, nodes=2)
    sent = job.wait_sent("4")[0]
    assert (sent["generation"], sent["node"], sent["count"]) == (1, 1, 1), sent
    job.end()
    assert not node.box.events("ranks_absent")


def test_the_first_node_adds_those_of_another_and_counts_the_rest(node):
    job = Job(node, nodes=2)
    job.server.send("ABSENT", generation=1, node=1, host="n\n1", count=1, ranks="4")
    job.count(3)
    assert event_of(node) == (3, 6, "rank 1 (here), rank 4 (n?1) and 1 more")
    job.end()


@pytest.mark.parametrize("ranks", [0, 3])
def test_nothing_is_said_when_all_ranks_or_none_have_counted_themselves(node, ranks):
    job = Job(node)
    job.count(ranks)
    later = Job(node, name="later")  # is reported after as many looks
    later.count(2)
    node.box.wait_event("ranks_absent")
    later.end()
    job.end()
    assert len(node.box.events("ranks_absent")) == 1


def test_a_rank_that_uses_the_cpu_is_not_named_at_first(node):
    busy = Job(node, group_rank=1, nodes=2, how="busy")
    waits = Job(node, name="waits", group_rank=1, nodes=2)
    waits.wait_sent("4")
    assert "4" not in [one["ranks"] for one in busy.server.received("ABSENT")]
    busy.end()
    waits.end()
