# SPDX-License-Identifier: Apache-2.0
"""A ctrund on a free port, and agents that close with the test."""
import json
import urllib.request

import pytest

import ctrun
import fake_agent


class Daemon:
    def __init__(self, box, *arguments, env=None):
        self.run = box.start(ctrun.program("ctrund"), "--listen", "127.0.0.1:0", *arguments,
                             env=env)
        line = ctrun.wait_until(lambda: self.run.out if "\n" in self.run.out else None,
                                lambda: f"ctrund listens: {self.run}")
        assert line.startswith("listening on 127.0.0.1:")
        self.port = int(line.strip().rpartition(":")[2])
        self.agents = []

    def status(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/status", timeout=60) as reply:
            return json.loads(reply.read())

    def agent(self, host="n", source=""):
        agent = fake_agent.Agent(self.port, host, source=source)
        self.agents.append(agent)
        return agent

    def world(self, count=2, **settings):
        """`count` agents that have received START."""
        agents = [self.agent(f"n{i}") for i in range(count)]
        settings = {"min_nodes": count, "max_nodes": count, **settings}
        for i, agent in enumerate(agents):
            agent.hello(**settings).join(port=4000 + i)
        return agents, [agent.expect(fake_agent.START) for agent in agents]


def serve(box, *arguments, env=None):
    """Yields one Daemon and ends it."""
    daemon = Daemon(box, *arguments, env=env)
    yield daemon
    for agent in daemon.agents:
        agent.close()
    daemon.run.signal(15)
    assert daemon.run.wait() == 0, daemon.run


@pytest.fixture
def daemon(box):
    yield from serve(box)


@pytest.fixture
def start_daemon(box):
    """start_daemon("--option", ..., env=None) starts a Daemon that ends with the test."""
    open_ones = []

    def start(*arguments, env=None):
        open_ones.append(serve(box, *arguments, env=env))
        return next(open_ones[-1])
    yield start
    for one in open_ones:
        assert next(one, None) is None
