# SPDX-License-Identifier: Apache-2.0
"""The node of the embedded rendezvous dies: the others go on where two worlds cannot live, else they
end cleanly (user-pains.md T07)."""
import contextlib
import os
import signal

import ctrun
import launch
import pytest

WORK = ["sh", "-c", "while [ ! -e done ]; do sleep 0.05; done"]
# A lease of two seconds: a takeover takes some five.
QUICK = "--rdzv-conf=last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=2"


class Job:
    """Nodes of one job on this machine; the first one hosts the rendezvous."""

    def __init__(self, box, *options):
        self.box = box
        self.words = [f"--rdzv-endpoint=127.0.0.1:{launch.free_port()}", "--rdzv-id=takeover",
                      "--shutdown-timeout=1", *options, *WORK]
        self.nodes = []
        self.before = len(box.events("link_state", to="up"))

    def wait_up(self):
        self.box.wait_event("link_state", to="up", count=self.before + len(self.nodes))

    def start(self, count):
        for _ in range(count):
            self.nodes.append(self.box.start_ctrun(*self.words))
            self.wait_up()
        return self

    def rounds(self, size):
        return self.box.events("round_started", group_world_size=size)

    def wait_world(self, size, after=0, seconds=20):
        """The events of the first world of that many nodes that is newer than `after`, when each
        of them can do without the host."""
        def have():
            newest = max((e["generation"] for e in self.rounds(size)), default=0)
            events = [e for e in self.rounds(size) if e["generation"] == newest]
            ready = {e["pid"] for e in self.box.events("takeover_ready", generation=newest)}
            can = size == 2 or ready == {e["pid"] for e in events}  # one of two never can
            return events if newest > after and len(events) == size and can else None
        return ctrun.wait_until(
            have, lambda: f"a world of {size}\n" + "\n".join(map(str, self.nodes)), seconds)

    def agents(self):
        """{launcher's pid: its agent's pid}, of those that have started a round."""
        return {ctrun.parent_of(e["pid"]): e["pid"] for e in self.box.events("round_started")}

    def kill(self, node):
        """All of it, at once, as a power cut does."""
        agent = self.agents()[node.pid]
        workers = [pid for pid in self.box.workers().values() if ctrun.parent_of(pid) == agent]
        for pid in [node.pid, agent, *workers]:
            with contextlib.suppress(ProcessLookupError):  # it died with the one before
                os.kill(pid, signal.SIGKILL)
        node.wait()
        self.nodes.remove(node)

    def finish(self):
        self.box.write("done", "")
        for node in self.nodes:
            assert node.wait() == 0, node


@pytest.fixture
def job(box):
    return lambda *options: Job(box, *options)


def test_t07_the_others_go_on_when_the_node_of_the_rendezvous_is_killed(job):
    run = job("--nnodes=2:3", "--max-restarts=0").start(3)
    before = run.wait_world(3)[0]["generation"]
    run.kill(run.nodes[0])
    world = run.wait_world(2, after=before, seconds=15)
    # The loss of a node costs no restart, and the order of the nodes is kept.
    assert {e["restart_count"] for e in world} == {0}
    ranks = {e["pid"]: e["group_rank"] for e in world}
    old = {e["pid"]: e["group_rank"] for e in run.rounds(3)}
    assert sorted(ranks, key=ranks.get) == sorted(ranks, key=old.get)
    for node in run.nodes:
        assert "error[E_LEADER_LOST]: " in node.err and " takes over at " in node.err, node
        assert node.err.count("(this node)") == (ranks[run.agents()[node.pid]] == 0), node
    run.finish()


def test_without_enough_of_the_others_they_end_cleanly_and_say_how_not_to(job):
    """One of two may be alone, so the other one must not go on (MIN 1); of two that must be
    two nobody is left."""
    runs = [job(QUICK, "--max-restarts=0", words).start(2)
            for words in ("--nnodes=1:3", "--nnodes=2")]
    ctrun.wait_until(lambda: len(runs[0].rounds(2)) == 4, lambda: f"{runs[0].nodes}")
    for run in runs:
        run.kill(run.nodes[0])
    for run in runs:
        assert run.nodes[0].wait(15) == 75, run.nodes[0]
        err = run.nodes[0].err
        assert "error[E_LEADER_LOST]: " in err and "takes over" not in err, err
        assert "--rdzv-backend=etcd" in err and "--nnodes=MIN:MAX" in err, err


def test_a_second_host_may_be_lost_like_the_first(job):
    run = job(QUICK, "--nnodes=2:4").start(4)
    generation = run.wait_world(4)[0]["generation"]
    for size in (3, 2):
        run.kill(run.nodes[0])
        generation = run.wait_world(size, after=generation)[0]["generation"]
    run.finish()


def test_a_host_that_is_told_to_end_is_not_replaced(job):
    run = job(QUICK, "--nnodes=2:3").start(3)
    run.wait_world(3)
    run.nodes[0].signal(signal.SIGTERM)
    for node in run.nodes:
        assert node.wait(20) != 0, node
        assert "takes over" not in node.err, node


def test_a_token_is_asked_for_by_the_successor_too(box, job):
    box.write("token", "0123456789abcdef0123456789abcdef\n", 0o600)
    run = job(QUICK, "--nnodes=2:3", "--rdzv-token-file=token", "--encrypt").start(3)
    before = run.wait_world(3)[0]["generation"]
    run.kill(run.nodes[0])
    run.wait_world(2, after=before)
    run.finish()
