# SPDX-License-Identifier: Apache-2.0
"""The size of a live run: resize, drain and units; new rounds on demand: restart and reload."""
import json
import os
import re
import signal

import ctrun
import launch
import pytest
import schema

CTL = ctrun.program("ctrunctl")
HOLD = ["sh", "-c", "exec sleep 600"]


@pytest.fixture
def cluster(box):
    """start(count, nnodes, ...): so many nodes named n0, n1, ... of one run on this machine."""
    class Cluster:
        runs = []

        def start(self, count, nnodes, *words, program=HOLD, last_call=60):
            """last_call: how long a world waits for more nodes than the minimum."""
            self.words = [f"--rdzv-endpoint=localhost:{self.port}", f"--nnodes={nnodes}",
                          "--shutdown-timeout=1", "--rdzv-id=members", f"--rdzv-conf=last_call_timeout={last_call}",
                          *words, *program]
            for _ in range(count):
                self.add()
            return self

        port = launch.free_port()

        def add(self):
            self.runs.append(box.start_ctrun(*self.words))
            # The first one serves; the order of the others decides who is in the world.
            box.wait_event("link_state", to="up", count=len(self.runs))

        def world(self, generation, size, seconds=20):
            """Waits for START of that world on `size` nodes; their events."""
            events = box.wait_event("round_started", count=size, seconds=seconds,
                                    generation=generation)
            assert {e["group_world_size"] for e in events} == {size}, events
            return events

        def end(self):
            ctrun.stop(*self.runs)
    cluster = Cluster()
    cluster.runs = []
    yield cluster
    cluster.end()


def ctl(box, *words, run):
    return box.run(CTL, words[0], f"--run={run.pid}", *words[1:])


def test_resize_shrinks_and_grows_a_live_run(box, cluster):
    cluster.start(3, "1:3")
    cluster.world(1, 3)
    answer = ctl(box, "resize", "1:2", run=cluster.runs[1])
    assert answer.code == 0 and "1 to 2 nodes" in answer.out, answer
    cluster.world(2, 2)
    ctrun.wait_until(lambda: sum(f"ctrun: {os.uname().nodename}: run is full (2/2): spare #1" in run.err
                                 for run in cluster.runs) == 1, lambda: cluster.runs, 10)
    assert all("the run may have 1 to 2 nodes now" in run.err for run in cluster.runs)
    shown = [ctl(box, "status", run=run).out for run in cluster.runs]
    [spare] = [out for out in shown if ": spare, pid" in out.splitlines()[0]]
    assert "the run is full (2 of 2 nodes): this node is spare #1" in spare, shown
    assert "succeeded" not in spare and "waiting for" not in spare, spare
    status = ctl(box, "status", "--json", run=cluster.runs[0])
    assert '"max_nodes":2' in status.out.replace(" ", ""), status
    answer = ctl(box, "resize", "3", run=cluster.runs[0])
    assert answer.code == 0 and answer.out == "run members was asked to have 1 to 3 nodes\n", answer
    events = cluster.world(3, 3)
    assert {e["restart_count"] for e in events} == {0}  # none of it uses a restart


def test_a_node_that_joins_after_a_resize_knows_the_limits(box, cluster):
    """Else a bare N, asked there, would bring back the minimum that was typed."""
    cluster.start(2, "1:2")
    cluster.world(1, 2)
    assert ctl(box, "resize", "2:3", run=cluster.runs[0]).code == 0
    cluster.add()
    cluster.world(2, 3)
    said = f"ctrun: the run may have 2 to 3 nodes now (asked on {os.uname().nodename})\n"
    assert [run.err.count(said) for run in cluster.runs] == [1, 1, 1], cluster.runs
    answer = ctl(box, "resize", "4", run=cluster.runs[2])
    assert answer.out == "run members was asked to have 2 to 4 nodes\n", answer


def test_a_worker_that_ended_with_0_because_it_was_stopped_was_stopped(box, cluster):
    up = box.path("up")
    saves = ["sh", "-c", f"trap 'exit 0' TERM; touch {up}.$RANK; while :; do sleep 0.1; done"]
    cluster.start(2, "1:2", program=saves)
    cluster.world(1, 2)
    ctrun.wait_until(lambda: len(list(box.path(".").glob("up.*"))) == 2, "both handle SIGTERM")
    assert ctl(box, "resize", "1", run=cluster.runs[0]).code == 0
    cluster.world(2, 1)
    [spare] = [out for out in (ctl(box, "status", run=run).out for run in cluster.runs) if "spare" in out]
    assert re.search(r"^ +\d+ +0 +\d+  stopped ", spare, re.M), spare


def test_more_nodes_than_the_batch_system_has_given(box):
    step = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "localhost",
            "SLURM_STEP_TASKS_PER_NODE": "2", "SLURM_NODEID": "0"}
    runs = [box.start_ctrun("--no-python", *HOLD, env={**step, "SLURM_LOCALID": task}) for task in "01"]
    box.wait_event("round_started", count=2)
    answer = ctl(box, "resize", "2:3", run=runs[0])
    assert answer.code == 0 and answer.out.endswith(
        "to have 2 to 3 nodes\n  the batch system has given 2: more can only come from outside of it\n"), answer
    answer = ctl(box, "resize", "3:3", run=runs[0])
    assert "given 2: the next round cannot begin without nodes from outside of it" in answer.out, answer
    assert "given" not in ctl(box, "resize", "2", run=runs[0]).out
    ctrun.wait_until(lambda: "the run may have 3 to 3 tasks now" in runs[1].err, lambda: f"it is told\n{runs}")
    ctrun.stop(*runs)


@pytest.mark.parametrize("words", [["resize"], ["resize", "0"], ["resize", "3:2"],
                                   ["resize", "many"], ["drain"], ["drain", "a", "--all"]])
def test_wrong_words_are_refused(box, words):
    assert box.run(CTL, *words).code == 2


def test_a_run_that_no_other_node_can_find_does_not_wait_for_one(box):
    run = box.start_ctrun(*HOLD)
    box.wait_workers(1)
    answer = ctl(box, "resize", "2", run=run)
    assert answer.code == 1 and "[E_NOT_FOUND]" in answer.err, answer
    assert "--nnodes=MIN:MAX and --rdzv-endpoint" in answer.err, answer
    run.signal(signal.SIGTERM)
    assert run.wait() == 143


def test_drain_of_a_name_that_no_node_has_is_an_error(box, cluster):
    cluster.start(2, "2")
    cluster.world(1, 2)
    answer = ctl(box, "drain", "nowhere", run=cluster.runs[1])
    assert answer.code == 1 and "the run has no node 'nowhere': its nodes are " in answer.err, answer
    host = os.uname().nodename
    assert f"its nodes are {host}\n" in answer.err, answer  # both nodes, named once
    answer = ctl(box, "drain", "--json", host, run=cluster.runs[1])
    assert answer.code == 0 and json.loads(answer.out) == {"asked": True, "nodes": 2}, answer
    assert [run.wait(20) for run in cluster.runs] == [143, 143]


def test_drain_of_all_ends_the_run_on_every_node(box, cluster):
    cluster.start(2, "2")
    cluster.world(1, 2)
    answer = ctl(box, "drain", "--all", "--reason=maintenance", run=cluster.runs[1])
    assert answer.code == 0, answer
    assert [run.wait(20) for run in cluster.runs] == [143, 143]


@pytest.mark.parametrize("words", [["drain", "--all"], ["stop"]])
def test_all_ranks_stop_after_the_same_step(box, cluster, words):
    cluster.start(2, "2", "--nproc-per-node=2", "--shutdown-timeout=20",
                  program=[ctrun.program("stopper"), box.path("ready")])
    ctrun.wait_until(lambda: all(box.path(f"ready.{r}").exists() for r in range(4)),
                     lambda: cluster.runs, 20)
    assert ctl(box, *words, run=cluster.runs[1]).code == 0  # "stop" asks the ranks of one node

    def steps():
        return re.findall(r"stopped after (\d+)", "".join(run.out for run in cluster.runs))
    ctrun.wait_until(lambda: len(steps()) == 4, lambda: cluster.runs, 20)
    assert len(set(steps())) == 1, cluster.runs


def test_worlds_have_whole_units_and_the_rest_waits(box, cluster):
    cluster.start(3, "2:4", "--node-unit=2", last_call=1)
    cluster.world(1, 2)
    answer = ctl(box, "resize", "1", run=cluster.runs[0])
    assert answer.code == 2 and "[E_USAGE]" in answer.err and "--node-unit=2" in answer.err, answer
    cluster.add()
    cluster.world(2, 4)


def test_a_unit_that_fits_no_world_is_refused(box):
    run = box.ctrun("--nnodes=3", "--node-unit=2", "--rdzv-endpoint=localhost:1", "true")
    assert run.code == 2 and "--node-unit=2" in run.err, run



def test_restart_from_any_node_begins_a_new_round_at_no_cost(box, cluster):
    cluster.start(2, "2", "--max-restarts=0")
    cluster.world(1, 2)
    answer = ctl(box, "restart", "--json", "--reason=new data", run=cluster.runs[1])
    assert answer.code == 0 and json.loads(answer.out) == {"asked": True, "generation": 1}, answer
    events = cluster.world(2, 2)
    assert {e["restart_count"] for e in events} == {0}
    host = os.uname().nodename
    asked = box.events("restart_asked")
    assert [(e["generation"], e["by"], e["reason"]) for e in asked] == [(1, host, "new data")] * 2
    assert all(f"new round: asked for on {host} (new data)" in run.err for run in cluster.runs)
    [request] = box.events("control_request")
    assert request["verb"] == "restart"
    assert [e["why"] for e in box.events("round_changed", to="stopping")] == ["asked for"]
    answer = ctl(box, "restart", "--reason=a\nctrun: b\x1b[31m", run=cluster.runs[0])
    assert answer.code == 0 and "run members was asked to start a new round" in answer.out, answer
    cluster.world(3, 2)
    assert f"asked for on {host} (a ctrun: b [31m)\n" in cluster.runs[1].err  # one line
    for event in box.events():
        schema.check(event, "events")


def test_restart_of_a_run_of_one_node(box):
    run = box.start_ctrun(*HOLD)
    box.wait_workers(1)
    assert ctl(box, "restart", run=run).code == 0
    box.wait_event("round_started", generation=2)
    run.signal(signal.SIGTERM)
    assert run.wait() == 143


def test_a_node_that_was_asked_to_save_and_end_takes_no_part_in_the_new_round(box, cluster):
    cluster.start(2, "1:2", "--shutdown-timeout=60",
                  program=[ctrun.program("victim"), "step", "41", "hang"])
    cluster.world(1, 2)
    for run in cluster.runs:
        ctrun.wait_until(lambda run=run: " 41 " in ctl(box, "status", run=run).out, "a step")
    assert ctl(box, "stop", run=cluster.runs[1]).code == 0
    assert ctl(box, "restart", run=cluster.runs[0]).code == 0
    cluster.world(2, 1)
    assert cluster.runs[1].wait(20) == 143, cluster.runs[1]


def test_restart_and_resize_are_refused_when_nothing_runs_or_the_run_ends(box, cluster):
    cluster.start(1, "2")
    box.wait_event("agent_state", to="joining")
    answer = ctl(box, "restart", run=cluster.runs[0])
    assert answer.code == 1 and "no worker runs yet: the run waits for nodes" in answer.err, answer
    assert box.run(CTL, "restart", "now").code == 2
    assert box.run(CTL, "restart", f"--run={cluster.runs[0].pid}", "--reason=" + 200 * "x").code == 2
    deaf = box.start_ctrun("--nnodes=1:2", f"--rdzv-endpoint=localhost:{launch.free_port()}", "--rdzv-conf=last_call_timeout=1",
                           "--shutdown-timeout=60", "sh", "-c",
                           "trap '' TERM; touch up; until [ -e leave ]; do sleep 0.05; done")
    ctrun.wait_until(lambda: box.path("up").exists(), "up")
    deaf.signal(signal.SIGTERM)
    box.wait_event("agent_state", to="stopping")
    for words in (["restart"], ["resize", "1"]):
        answer = ctl(box, *words, run=deaf)
        assert answer.code == 1 and "the run is ending" in answer.err, answer
    box.write("leave", "")
    assert deaf.wait() == 143


# ---- reload ----

def loops(box, name, word):
    """A program that writes its arguments to a file of its generation and rank, and waits."""
    return box.write(name, "#!/bin/sh\n"
                     f"echo {word} \"$@\" > {box.path('ran')}.$CTRUN_GENERATION.$RANK\n"
                     "exec sleep 600\n", 0o755)


def ran(box, generation, rank):
    path = box.path(f"ran.{generation}.{rank}")
    ctrun.wait_until(lambda: path.exists() and path.read_text(), lambda: path, 20)
    return path.read_text().split()


def test_a_reload_counts_from_the_next_round_on_for_all_nodes(box, cluster):
    old, new = loops(box, "old.sh", "old"), loops(box, "new.sh", "new")
    cluster.start(2, "2", "--auth=none", "--max-restarts=1", program=[old, "--lr=1"])
    cluster.world(1, 2)
    assert ran(box, 1, 0) == ran(box, 1, 1) == ["old", "--lr=1"]
    answer = ctl(box, "reload", "--json", "--", str(new), "--lr=2", "it's", run=cluster.runs[1])
    assert answer.code == 0 and json.loads(answer.out) == {"taken": True, "number": 1}, answer
    events = box.wait_event("reloaded", count=2)
    assert {(e["number"], e["generation"], e["command"]) for e in events} == {
        (1, 1, f"{new} --lr=2 'it'\\''s'")}
    shown = ctl(box, "status", run=cluster.runs[0]).out
    assert f"reloaded, from the next round on: {new} --lr=2" in shown, shown
    assert not box.events("round_stopped")  # workers keep running
    # A failure starts the next round, which has the new command line.
    [first] = [w["worker_pid"] for w in box.wait_event("worker_started", rank=0)]
    os.kill(first, signal.SIGKILL)
    cluster.world(2, 2)
    assert ran(box, 2, 0) == ran(box, 2, 1) == ["new", "--lr=2", "it's"]
    status = json.loads(ctl(box, "status", "--json", run=cluster.runs[0]).out)
    assert status["runs"][0]["reload"]["is_used"] is True, status
    answer = ctl(box, "reload", "--now", str(old), run=cluster.runs[0])
    assert answer.code == 0, answer
    cluster.world(3, 2)
    assert ran(box, 3, 0) == ran(box, 3, 1) == ["old"]
    for event in box.events():
        schema.check(event, "events")


UNPROVEN = "without a token any program that reaches the rendezvous could have asked for this"


def test_without_a_token_a_node_takes_the_reload_of_its_own_ctrunctl_alone(box, cluster):
    """The second node is a spare, as any program could be that reaches the rendezvous."""
    cluster.start(2, "1", "--rdzv-backend=c10d", program=[loops(box, "old.sh", "old")])
    cluster.world(1, 1)
    new = loops(box, "new.sh", "new")
    answer = ctl(box, "reload", "--now", str(new), run=cluster.runs[1])
    assert answer.code == 1 and UNPROVEN in answer.err, answer
    assert not box.events("reloaded")
    ctrun.stop(cluster.runs.pop())
    assert ctl(box, "reload", "--now", str(new), run=cluster.runs[0]).code == 0
    cluster.world(2, 1)
    assert ran(box, 2, 0) == ["new"]


def test_a_reload_that_cannot_be_changes_nothing(box, cluster):
    cluster.start(1, "1", program=[loops(box, "old.sh", "old")])
    cluster.world(1, 1)
    [run] = cluster.runs
    host = os.uname().nodename
    for words, why in [((box.path("none.py"),), f"{host}: {box.path('none.py')}: no such file"),
                       (("sh", "-c", "x" * 4096), "the command is longer than"),
                       (("sh", "-c", "\x1b[31m"), "control characters")]:
        answer = ctl(box, "reload", "--", *map(str, words), run=run)
        assert why in answer.err and answer.err.count("\n") == 1, answer
        assert answer.code == (2 if "[E_USAGE]" in answer.err else 1), answer
    assert ctl(box, "restart", run=run).code == 0
    cluster.world(2, 1)
    assert ran(box, 2, 0) == ["old"]
    assert not box.events("reloaded")


def test_a_node_that_joins_later_runs_what_was_reloaded(box, cluster):
    old, new = loops(box, "old.sh", "old"), loops(box, "new.sh", "new")
    cluster.start(1, "1:2", "--auth=none", program=[old], last_call=1)
    cluster.world(1, 1)
    assert ctl(box, "reload", str(new), run=cluster.runs[0]).code == 0
    cluster.add()
    cluster.world(2, 2)
    assert ran(box, 2, 0) == ran(box, 2, 1) == ["new"]


def test_several_programs_are_not_reloaded(box):
    run = box.start_ctrun("--role=a=1:sleep 600", "--role=b=1:sleep 600")
    box.wait_workers(2)
    answer = ctl(box, "reload", "true", run=run)
    assert answer.code == 1 and "[E_NOT_FOUND]" in answer.err and "--role" in answer.err, answer
    run.signal(signal.SIGTERM)
    assert run.wait(30) == 143
