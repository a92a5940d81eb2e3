# SPDX-License-Identifier: Apache-2.0
"""Cut cables, hosts without a network and a killed rendezvous server: which nodes continue, which
stop and which join again; two worlds never run at the same time (T05, T06, T07)."""
import contextlib
import os
import re
import signal

import beacon
import ctrun
import pytest


@pytest.fixture
def cluster(box, lab):
    """boot(N, OPTION...) boots N hosts with a node of the run on each; node1 serves the
    rendezvous."""
    class Cluster:
        def boot(self, count, *words):
            self.lab = lab(count)
            self.beacon = beacon.Beacon(box)
            self.words = [ctrun.program("ctrun"), "--rdzv-endpoint=node1:29400", "--rdzv-id=cut",
                          "--shutdown-timeout=1", *words, *self.beacon.program]
            self.runs = {f"node{n}": self.lab.start(f"node{n}", *self.words)
                         for n in range(1, count + 1)}
            self.wait_world(*self.runs)
            return self

        def wait_world(self, *hosts, seconds=20):
            ctrun.wait_until(lambda: self.beacon.is_world(hosts),
                             lambda: f"a world on {hosts}: {self.beacon.now()}\n{self.runs}",
                             seconds)

        def end(self):
            ctrun.stop(*self.runs.values())
            self.beacon.check()
    return Cluster()


def said(run, *words):
    return all(word in run.err for word in words)


def test_t05_a_cut_cable_is_noticed_and_the_other_goes_on(cluster):
    cluster.boot(2, "--nnodes=1:2")
    cluster.lab.partition("node2")
    lost = (r"^ctrun: warning\[E_PEER_LOST\]: node2 \([0-9.]+, rank 1\) is gone: "
            r"nothing received for ([5-9]|\d\d+)\.\d s; the next round starts when enough nodes have joined$")
    ctrun.wait_until(lambda: re.search(lost, cluster.runs["node1"].err, re.M),
                     lambda: f"the loss\n{cluster.runs['node1']}")
    ctrun.wait_until(lambda: said(cluster.runs["node2"], "lost the rendezvous"),
                     lambda: f"the loss\n{cluster.runs['node2']}")
    cluster.wait_world("node1")
    cluster.lab.heal()
    cluster.end()


def test_t06_a_minority_stops_the_majority_goes_on_and_all_meet_after_the_heal(cluster):
    # A lease of two seconds: the partition need not be long.
    cluster.boot(3, "--nnodes=2:3",
                 "--rdzv-conf=keep_alive_interval=1,keep_alive_max_attempt=2")
    cluster.lab.partition("node3")
    cluster.wait_world("node1", "node2")
    ctrun.wait_until(lambda: said(cluster.runs["node3"], "lost the rendezvous",
                                  "workers stopped"), lambda: f"{cluster.runs['node3']}")
    cluster.beacon.check()
    cluster.lab.heal()
    cluster.wait_world("node1", "node2", "node3", seconds=40)
    ctrun.wait_until(lambda: said(cluster.runs["node3"], "rejoined as node 2 of 3"), lambda: f"{cluster.runs}")
    assert all(run.code is None for run in cluster.runs.values())
    cluster.end()


def test_t06_nodes_that_are_cut_off_from_the_rendezvous_wait_for_it(cluster):
    """No node continues without the server, and all join again after the heal."""
    cluster.boot(3, "--nnodes=2:3",
                 "--rdzv-conf=keep_alive_interval=1,keep_alive_max_attempt=2")
    cluster.lab.partition("node1")
    for name in ("node2", "node3"):
        ctrun.wait_until(lambda name=name: said(cluster.runs[name], "lost the rendezvous",
                                                "on node1", "workers stopped"),
                         lambda: f"{cluster.runs}")
    cluster.beacon.check()
    cluster.lab.heal()
    cluster.wait_world("node1", "node2", "node3", seconds=40)
    assert all(line.world >= 2 for line in cluster.beacon.lines())
    cluster.end()


def test_t07_without_the_node_of_the_rendezvous_the_others_end_cleanly(box, cluster):
    cluster.boot(3, "--nnodes=1:3", "--rdzv-conf=last_call_timeout=1")
    workers = {pid: ctrun.environment(pid)["GROUP_RANK"] for pid in box.workers().values()}
    agent = next(ctrun.parent_of(pid) for pid, node in workers.items() if node == "0")
    os.kill(ctrun.guards_of(agent)[1], signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):  # it ends with its guard, perhaps before this
        os.kill(agent, signal.SIGKILL)
    for name in ("node2", "node3"):
        run = cluster.runs[name]
        assert run.wait(20) == 75, run
        assert "ctrun: error[E_LEADER_LOST]: the rendezvous on node1" in run.err, run
        assert "--ha" in run.err and "--rdzv-backend=etcd" in run.err, run
    ctrun.wait_until(lambda: not [pid for pid in workers if ctrun.is_alive(pid)], "no worker lives")
    cluster.end()


def test_a_paused_node_whose_cable_is_cut_is_fenced_by_its_guard(box, cluster):
    """Its agent cannot end the workers, and the server cannot know whether they live."""
    cluster.boot(3, "--nnodes=2:3",
                 "--rdzv-conf=keep_alive_interval=1,keep_alive_max_attempt=2")
    victim = next(pid for pid in box.workers().values()
                  if ctrun.environment(pid)["GROUP_RANK"] == "2")
    agent = ctrun.parent_of(victim)
    host = next(line.host for line in cluster.beacon.lines() if line.group_rank == 2)
    os.kill(agent, signal.SIGSTOP)
    box.wait_event("member_paused")
    cluster.lab.partition(host)
    box.wait_event("guard_fenced")
    ctrun.wait_until(lambda: not ctrun.is_alive(victim), "its worker is dead")
    cluster.wait_world(*(name for name in cluster.runs if name != host))
    os.kill(agent, signal.SIGCONT)
    cluster.lab.heal()
    cluster.wait_world(*cluster.runs)
    cluster.end()
