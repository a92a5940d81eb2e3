# SPDX-License-Identifier: Apache-2.0
"""--survive over several nodes: a rank or a whole node is lost, and all other ranks continue in
their processes."""
import os
import re
import signal

import ctrun
import elastic
import pytest
import schema
from elastic import SLOW as ELASTIC
from elastic import pids, result, speed_up, wait_step

STEPS = 4000
CONF = "is_host=0,last_call_timeout=60,keep_alive_interval=1,keep_alive_max_attempt="


@pytest.fixture(scope="module")
def undisturbed():
    return elastic.undisturbed(STEPS)


class Nodes:
    """A ctrund with a journal, and nodes 127.0.0.N that meet there; the ranks are in the order of N."""

    def __init__(self, box):
        self.box, self.runs, self.port = box, [], ctrun.free_port()
        self.journal = box.path("journal")
        self.journal.mkdir()
        self.begin_server()

    def begin_server(self):
        self.daemon = self.box.start(ctrun.program("ctrund"), f"--listen=127.0.0.1:{self.port}",
                                     "--journal", self.journal)
        line = ctrun.wait_until(lambda: self.daemon.out if "\n" in self.daemon.out else None,
                                lambda: f"ctrund tells its port\n{self.daemon}")
        self.port = int(line.strip().rpartition(":")[2])

    def start(self, count, per_node, *options, pace_us=500, least=None, program=ELASTIC, lease=5):
        """`options` are for all nodes; a world has `least` nodes at least."""
        for number in range(1, count + 1):
            self.runs.append(self.box.start_ctrun(
                f"--nnodes={least or count}:{count}", f"--nproc-per-node={per_node}", "--rdzv-backend=c10d",
                f"--rdzv-endpoint=127.0.0.1:{self.port}", "--rdzv-id=J", f"--local-addr=127.0.0.{number}",
                f"--rdzv-conf={CONF}{lease}", "--shutdown-timeout=1", "--survive=sdk", *options, program, STEPS, pace_us))
            if number < count:
                self.box.wait_event("agent_state", number, to="joining")
        wait_step(self.runs[0], 1000)
        return self.runs

    def add(self, number, least, most, per_node, *options):
        """Starts one more node."""
        self.runs.append(self.box.start_ctrun(
            f"--nnodes={least}:{most}", f"--nproc-per-node={per_node}", "--rdzv-backend=c10d",
            f"--rdzv-endpoint=127.0.0.1:{self.port}", "--rdzv-id=J", f"--local-addr=127.0.0.{number}",
            f"--rdzv-conf={CONF}5", "--shutdown-timeout=1", "--survive=sdk", *options))

    def kill(self, *ranks, how=signal.SIGKILL):
        of = pids(self.box)
        for rank in ranks:
            os.kill(of[rank], how)


    def lose(self, node):
        """Kills all of a node at once, as when its power fails, except that the kernel closes its
        connections."""
        launcher = self.runs[node].process.pid

        def own():
            return [pid for pid in pids(self.box).values() if ctrun.parent_of(pid) == ctrun.below(launcher)[1]]
        workers = ctrun.wait_until(own, f"node {node} has started workers")
        ctrun.kill_at_once(launcher, *ctrun.below(launcher), *workers)


@pytest.fixture
def nodes(box):
    nodes = Nodes(box)
    yield nodes
    nodes.daemon.signal(signal.SIGTERM)


def check_result(run, undisturbed):
    steps, slope, offset = result(run)
    assert steps == STEPS
    assert abs(slope - undisturbed[1]) < 1e-11 and abs(offset - undisturbed[2]) < 1e-11, (run, undisturbed)


def test_ranks_of_both_nodes_go_on_and_come_to_the_same(box, nodes, undisturbed):
    """A rank of the second node is lost, then both ranks of the first one, whose agent keeps the
    worker store."""
    runs = nodes.start(2, 2)
    nodes.kill(3)
    told = box.wait_event("world_shrunk", 2)
    assert {(e["epoch"], e["losses"], e["left"]) for e in told} == {(1, 1, 3)}, told
    ctrun.wait_until(lambda: all("3 ranks continue, " in run.err for run in runs), lambda: str(runs))  # behind the event
    speed_up(box, 2000)
    wait_step(runs[0], 2000)
    nodes.kill(0, 1)
    speed_up(box)
    assert [run.wait(60) for run in runs] == [0, 0], runs
    check_result(runs[1], undisturbed)
    assert sorted(e["rank"] for e in box.events("rank_lost")) == [0, 1, 3]
    assert len(box.events("worker_started")) == 4 and len(box.events("round_started")) == 2
    last = box.events("world_shrunk")[-1]
    assert (last["losses"], last["left"]) == (3, 1), last
    for event in box.events():
        schema.check(event, "events")


def test_lost_ranks_are_replaced_and_come_to_the_same(box, nodes, undisturbed):
    """A rank of the second node is lost, then both ranks of the first one, which has the worker
    store and no rank meanwhile."""
    runs = nodes.start(2, 2, "--survive-replace=3")
    for number, ranks in enumerate(((3,), (0, 1)), 1):
        nodes.kill(*ranks)
        ctrun.wait_until(lambda: [e["size"] for e in box.events("world_grown")][-2:] == [4, 4]
                         and len(box.events("worker_started")) == 4 + number * (number + 1) // 2,
                         lambda: f"all four again\n{runs}", 60)
    speed_up(box)
    assert [run.wait(100) for run in runs] == [0, 0], runs
    check_result(runs[0], undisturbed)
    assert sorted(e["rank"] for e in box.events("rank_replacing")) == [0, 1, 3]
    assert len(box.events("round_started")) == 2
    for event in box.events():
        schema.check(event, "events")


def test_one_that_waits_and_is_killed_is_replaced_once_more(box, nodes, undisturbed):
    """The other rank may wait by then, may not know of it yet, or may have it in its world: each is
    right."""
    runs = nodes.start(2, 1, "--survive-replace=2")
    nodes.kill(1)
    box.wait_event("rank_ready")
    nodes.kill(1)
    ctrun.wait_until(lambda: len(box.events("rank_ready")) == 2 and [e["size"] for e in box.events("world_grown")][-1:] == [2],
                     lambda: f"the second one is taken in\n{runs}", 60)
    speed_up(box)
    assert [run.wait(100) for run in runs] == [0, 0], runs
    check_result(runs[0], undisturbed)
    assert len(box.events("worker_started")) == 4 and len(box.events("round_started")) == 2


def test_a_new_one_whose_mates_have_all_ended_is_stopped(box, nodes, undisturbed):
    """It is alone on its node, and has not asked yet."""
    program = box.write("program", f'#!/bin/sh\n[ "$CTRUN_MAY_GROW" = new ] && exec sleep 1000\nexec {ELASTIC} "$@"\n', 0o755)
    runs = nodes.start(2, 1, "--survive-replace=1", program=program)
    nodes.kill(1)
    box.wait_event("worker_started", 3)
    speed_up(box)
    assert [run.wait(100) for run in runs] == [0, 0], runs
    check_result(runs[0], undisturbed)


def test_the_last_rank_of_all_is_a_failure(box, nodes):
    runs = nodes.start(2, 1)
    nodes.kill(0, 1)
    assert [run.wait(60) for run in runs] == [137, 137], runs


def test_a_rank_that_does_not_ask_ends_it_as_without(box, nodes):
    """It is on another node than the lost rank."""
    runs = nodes.start(2, 1, "--survive-timeout=1")
    nodes.kill(0, how=signal.SIGSTOP)
    nodes.kill(1)
    assert [run.wait(60) for run in runs] == [137, 137], runs
    assert "within 1 s it was not decided who continues: ranks of other nodes did not call ctrun_group_shrink()" in runs[1].err, runs
    assert not box.events("world_shrunk")


def test_a_server_that_begins_again_meanwhile_decides(box, nodes, undisturbed):
    """Its journal has the lost rank, and the nodes send again who waits."""
    runs = nodes.start(2, 2, lease=60)
    nodes.kill(0, how=signal.SIGSTOP)
    nodes.kill(3)
    box.wait_event("rank_lost")
    nodes.daemon.signal(signal.SIGKILL)
    nodes.daemon.wait()
    nodes.kill(0, how=signal.SIGCONT)
    nodes.begin_server()
    box.wait_event("link_state", 4, to="up")
    told = box.wait_event("world_shrunk", 2)
    assert {(e["epoch"], e["losses"], e["left"]) for e in told} == {(1, 1, 3)}, told
    speed_up(box)
    assert [run.wait(60) for run in runs] == [0, 0], runs
    check_result(runs[0], undisturbed)
    assert len(box.events("worker_started")) == 4


def test_ranks_of_other_nodes_go_on_when_a_node_is_lost(box, nodes, undisturbed):
    """They continue when the ranks of that node must have ended; later a rank of another node is
    lost."""
    runs = nodes.start(3, 2, least=1)
    nodes.lose(1)
    told = box.wait_event("ranks_lost", 2)
    assert {(e["generation"], e["count"], e["left"]) for e in told} == {(1, 2, 4)}, told
    told = box.wait_event("world_shrunk", 2)
    assert {(e["epoch"], e["losses"], e["left"]) for e in told} == {(1, 2, 4)}, told
    left = [runs[0], runs[2]]
    for run in left:
        assert re.search(r"node \S+ \(2 ranks\) is lost: .*: 4 ranks may continue \(--survive\), within 30 s of the end "
                         "of its workers", run.err), run
    speed_up(box, 2000)
    wait_step(runs[0], 2000)
    nodes.kill(5)
    speed_up(box)
    assert [run.wait(60) for run in left] == [0, 0], runs
    check_result(runs[0], undisturbed)
    assert len(box.events("worker_started")) == 6 and len(box.events("round_started")) == 3
    assert box.events("world_shrunk")[-1]["left"] == 3
    for event in box.events():
        schema.check(event, "events")


def test_the_worker_store_moves_when_its_node_is_lost(box, nodes, undisturbed):
    """It moves again when the next node is lost; a worker in the place of a lost one finds it."""
    runs = nodes.start(4, 1, "--survive-replace=1", least=1)
    nodes.lose(0)
    told = box.wait_event("worker_store_moved", 3, seconds=60)
    assert {(e["generation"], e["epoch"], e["master_addr"]) for e in told} == {(1, 1, "127.0.0.2")}, told
    assert len({e["master_port"] for e in told}) == 1, told
    nodes.kill(3)
    assert box.wait_event("world_grown", 3, seconds=60)[-1]["size"] == 3
    nodes.lose(1)
    told = box.wait_event("worker_store_moved", 5, seconds=60)[3:]
    assert {e["master_addr"] for e in told} == {"127.0.0.3"}, told
    speed_up(box)
    assert [run.wait(60) for run in runs[2:]] == [0, 0], runs
    check_result(runs[2], undisturbed)
    assert len(box.events("round_started")) == 4 and len(box.events("worker_started")) == 5
    for event in box.events():
        schema.check(event, "events")


def test_another_node_takes_the_place_of_a_lost_one(box, nodes, undisturbed):
    """The others continue meanwhile; then the first node is lost, and a waiting node takes its place."""
    runs = nodes.start(3, 2, "--survive-replace=1", least=1)
    again = ("--survive-replace=1", ELASTIC, STEPS, 500)
    nodes.lose(1)
    box.wait_event("world_shrunk", 2, seconds=60)
    nodes.add(4, 1, 3, 2, *again)
    ctrun.wait_until(lambda: [e["size"] for e in box.events("world_grown")][-3:] == [6, 6, 6],
                     lambda: f"all six again\n{runs}", 60)
    nodes.add(5, 1, 3, 2, *again)
    nodes.lose(0)
    box.wait_event("worker_store_moved", 2, seconds=60)
    grown = len(box.events("world_grown"))
    ctrun.wait_until(lambda: len(box.events("world_grown")) >= grown + 3 and box.events("world_grown")[-1]["size"] == 6,
                     lambda: f"all six once more\n{runs}", 60)
    speed_up(box)
    assert [run.wait(100) for run in runs[2:]] == [0, 0, 0], runs
    found = [run for run in runs[2:] if elastic.END.search(run.out)]
    assert len(found) == 1, runs
    check_result(found[0], undisturbed)
    assert {e["generation"] for e in box.events("round_started")} == {1} and len(box.events("round_started")) == 5
    for event in box.events():
        schema.check(event, "events")


def test_a_node_whose_workers_fail_before_they_are_taken_in_leaves_the_others_alone(box, nodes, undisturbed):
    """It ends; the others continue, and the place stays free."""
    program = box.write("program", f'#!/bin/sh\n[ "$CTRUN_MAY_GROW" = new ] && exit 7\nexec {ELASTIC} "$@"\n', 0o755)
    runs = nodes.start(2, 1, "--survive-replace=1", least=1, program=program)
    nodes.lose(1)
    box.wait_event("world_shrunk", 1, seconds=60)
    nodes.add(3, 1, 2, 1, "--survive-replace=1", program, STEPS)
    assert runs[2].wait(60) != 0 and "before the other ranks accepted them" in runs[2].err, runs
    speed_up(box)
    assert runs[0].wait(100) == 0, runs
    check_result(runs[0], undisturbed)
    assert len(box.events("worker_started")) == 3 and {e["generation"] for e in box.events("round_started")} == {1}


def test_a_node_whose_program_cannot_be_started_leaves_the_others_alone(box, nodes, undisturbed):
    """No worker of it runs, so none can fail, and no other node has a connection to one."""
    program = box.write("program", f'#!/bin/sh\nexec {ELASTIC} "$@"\n', 0o755)
    runs = nodes.start(2, 1, "--survive-replace=1", least=1, program=program)
    nodes.add(3, 1, 2, 1, "--survive-replace=1", program, STEPS)
    box.wait_event("agent_state", 3, to="joining")
    os.unlink(program)
    nodes.lose(1)
    assert runs[2].wait(60) != 0 and "before the other ranks accepted them" in runs[2].err, runs
    speed_up(box)
    assert runs[0].wait(100) == 0, runs
    check_result(runs[0], undisturbed)
    assert len(box.events("worker_started")) == 2 and {e["generation"] for e in box.events("round_started")} == {1}


def test_a_lost_node_starts_all_again_where_too_few_are_left(box, nodes, undisturbed):
    runs = nodes.start(2, 1, least=2)
    nodes.lose(1)
    box.wait_event("agent_state", to="stopping")
    nodes.runs.append(box.start_ctrun(
        "--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{nodes.port}",
        "--rdzv-id=J", "--local-addr=127.0.0.3", f"--rdzv-conf={CONF}5", "--shutdown-timeout=1", "--survive=sdk",
        ELASTIC, STEPS, 500))
    left = [run for number, run in enumerate(runs) if number != 1]
    speed_up(box)
    assert [run.wait(60) for run in left] == [0] * len(left), runs
    check_result(left[0], undisturbed)
    assert not box.events("ranks_lost") and not box.events("world_shrunk")
    assert max(e["generation"] for e in box.events("round_started")) == 2


@pytest.mark.parametrize("who, own", [("sdk", False), ("torch", False), ("sdk", True)])
def test_a_lost_node_starts_all_again_where_no_rank_can_ask(box, nodes, who, own):
    """At once, not after --survive-timeout. Where worker 0 has the worker store, ranks are not
    asked to continue."""
    marks = box.path("marks")
    marks.mkdir()
    script = box.write("worker.py", "import os, pathlib, sys, time\n"
                       "folder, restart = pathlib.Path(sys.argv[1]), os.environ['CTRUN_GENERATION']\n"
                       "(folder / f'{restart}.{os.environ[\"RANK\"]}').touch()\n"
                       "while restart == '1':\n    time.sleep(0.01)\n")
    for number in (1, 2):
        nodes.runs.append(box.start_ctrun(
            "--nnodes=1:2", "--nproc-per-node=1", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{nodes.port}",
            "--rdzv-id=J", f"--local-addr=127.0.0.{number}", f"--rdzv-conf={CONF}5", f"--survive={who}",
            "--survive-timeout=3600", script, marks, env={"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": str(int(own))}))
        if number == 1:
            box.wait_event("agent_state", to="joining")
    ctrun.wait_until((marks / "1.1").exists, lambda: f"rank 1\n{nodes.runs}", 60)
    nodes.lose(1)
    assert nodes.runs[0].wait(60) == 0, nodes.runs
    assert bool(box.events("ranks_lost")) != own and not box.events("world_shrunk")
    assert ("after the loss of a node all workers restart" in nodes.runs[0].err) == own, nodes.runs


def test_all_nodes_have_to_be_started_with_it(box, nodes):
    words = ("--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{nodes.port}",
             "--rdzv-id=J", f"--rdzv-conf={CONF}5")
    first = box.start_ctrun(*words, "--survive=sdk", ELASTIC)
    box.wait_event("agent_state", to="joining")
    for other in ((), ("--survive=torch",), ("--survive=sdk", "--survive-replace=1")):
        second = box.ctrun(*words, *other, ELASTIC)
        assert second.code == 77 and "--survive" in second.err and "E_FINGERPRINT" in second.err, second
    first.signal(signal.SIGTERM)
    first.wait(60)
