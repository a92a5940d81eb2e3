# SPDX-License-Identifier: Apache-2.0
"""Fixture `node`: starts agents against a rendezvous of their own."""
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import ctrun  # noqa: E402
from rendezvous import Rendezvous  # noqa: E402


class Node:
    def __init__(self, box):
        self.box = box
        self.servers = []

    def serve(self, **how):
        server = Rendezvous(**how)
        server.__enter__()
        self.servers.append(server)
        return server

    def start(self, *words, server=None, options=(), workers=2, **how):
        """The harness with `victim words...` (or another program, given as program=...)."""
        program = how.pop("program", None)
        if server is None:
            server = self.serve(workers=workers)
        line = [ctrun.program("agent_harness"), "--server", server.address,
                "--workers", workers, *options, "--", *(program or [ctrun.program("victim")]),
                *words]
        run = self.box.start(*line, **how)
        run.server = server
        return run

    def run(self, *words, **how):
        run = self.start(*words, **how)
        run.wait()
        return run

    def result(self):
        return self.box.wait_event("harness_result")[0]

    def agent_pid(self):
        """The process that starts the workers; the run's own pid is the guard."""
        return self.box.wait_event("worker_started")[0]["pid"]

    def worker_pids(self, count=2):
        return [event["worker_pid"] for event in self.box.wait_event("worker_started", count)]

    def close(self):
        for server in self.servers:
            server.__exit__()


@pytest.fixture
def node(box):
    node = Node(box)
    yield node
    node.close()
