# SPDX-License-Identifier: Apache-2.0
"""A job whose nodes are launchers on this machine, which elect their rendezvous server in etcd."""
import os
import signal

import ctrun
import pytest

WORK = ["sh", "-c", "while [ ! -e done ]; do sleep 0.05; done"]
# The same, but rank 0 exits with 3 when there is a file `fail`, which it removes first.
FAILS = ["sh", "-c", "while [ ! -e fail ] && [ ! -e done ]; do sleep 0.05; done; "
         "if [ -e fail ] && [ $RANK = 0 ]; then rm fail; exit 3; fi; "
         "while [ ! -e done ]; do sleep 0.05; done"]


class Job:
    """Nodes of one job, as launchers on this machine."""

    def __init__(self, box, server, nnodes, *options, program=WORK, **conf):
        self.box = box
        self.etcd = server
        self.words = [*server.options("job", **conf), f"--nnodes={nnodes}", *options, *program]
        self.nodes = []

    def start(self, count):
        for _ in range(count):
            self.nodes.append(self.box.start_ctrun(*self.words))

    def host(self):
        """The node whose agent was elected last, and that agent's pid."""
        pid = self.box.events("election", to="leading")[-1]["pid"]
        return next(node for node in self.nodes if ctrun.guards_of(pid)[1] == node.pid), pid

    def kill_host(self):
        """Kills the agent of that node and waits until its guard has ended. Unlike on a machine
        that is lost, its connections are reset."""
        node, pid = self.host()
        os.kill(pid, signal.SIGKILL)
        node.wait()
        self.nodes.remove(node)

    def wait_world(self, size, after=0, seconds=20):
        """Waits until a world of that many nodes runs, newer than that generation; returns its
        generation."""
        def have():
            started = self.box.events("round_started", group_world_size=size)
            newest = max((event["generation"] for event in started), default=0)
            count = sum(event["generation"] == newest for event in started)
            return newest if newest > after and count == size else None

        def what():
            return "\n".join(str(node) for node in self.nodes)

        return ctrun.wait_until(have, lambda: f"a world of {size} after {after}\n{what()}", seconds)

    def finish(self):
        self.box.write("done", "")
        for node in self.nodes:
            assert node.wait() == 0, node


@pytest.fixture
def job(box, etcd):
    """job(NNODES, nodes, members=1) starts that many nodes and waits for their first world."""
    def begin(nnodes, nodes, *options, members=1, conf=None, program=WORK):
        made = Job(box, etcd(members=members), nnodes, *options, program=program, **(conf or {}))
        made.start(nodes)
        made.wait_world(nodes)
        return made

    return begin
