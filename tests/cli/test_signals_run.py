# SPDX-License-Identifier: Apache-2.0
"""Signals in a run of several nodes: each worker gets each one once; what the other nodes print of a
node that a signal ends; the exit code that asks for a requeue."""
import json
import os
import re
import signal

import ctrun
import launch
import pytest

COUNTING = """#!/bin/sh
# counts the signals it gets, one line each; `leave` ends it with 0
for name in USR1 USR2 TERM; do trap "echo $name >> got.$RANK" $name; done
echo up > up.$RANK
until [ -e leave ]; do sleep 0.05; done
"""


def start_nodes(box, nodes, *options, nproc=2):
    port = box.path("port")
    box.write("count.sh", COUNTING, 0o755)
    first = box.start_ctrun(f"--nnodes={nodes}", f"--nproc-per-node={nproc}",
                            "--rdzv-endpoint=127.0.0.1:0", "--rdzv-conf=is_host=1",
                            "--rdzv-id=r", *options, "count.sh",
                            env={"LOGLEVEL": "INFO"})
    port = ctrun.wait_until(lambda: [word for line in first.err.splitlines()
                                     if "serving the rendezvous" in line
                                     for word in line.split() if word.startswith("port=")],
                            lambda: f"the port\n{first}")[0].partition("=")[2]
    runs = [first] + [box.start_ctrun(f"--nnodes={nodes}", f"--nproc-per-node={nproc}",
                                      f"--rdzv-endpoint=127.0.0.1:{port}",
                                      "--rdzv-conf=is_host=0", "--rdzv-id=r", *options,
                                      "count.sh") for _ in range(nodes - 1)]
    ctrun.wait_until(lambda: all(box.path(f"up.{rank}").exists()
                                 for rank in range(nodes * nproc)),
                     lambda: "all up\n" + "\n".join(str(run) for run in runs))
    return runs


def got(box, rank):
    path = box.path(f"got.{rank}")
    return path.read_text().split() if path.exists() else []


def wait_all_got(box, ranks, what):
    ctrun.wait_until(lambda: all(what in got(box, rank) for rank in range(ranks)),
                     lambda: f"{what} everywhere: {[got(box, r) for r in range(ranks)]}")


def leave(box, runs, code=0):
    box.write("leave", "")
    assert [run.wait() for run in runs] == [code] * len(runs), runs


def test_a_signal_to_one_node_reaches_every_worker_once(box):
    runs = start_nodes(box, 3)
    runs[1].signal(signal.SIGUSR1)
    wait_all_got(box, 6, "USR1")
    runs[2].signal(signal.SIGUSR2)  # whoever has received it has received USR1 before
    wait_all_got(box, 6, "USR2")
    assert [got(box, rank) for rank in range(6)] == [["USR1", "USR2"]] * 6
    assert f"SIGUSR1 from " in runs[1].err and "all nodes" in runs[1].err, runs[1]
    assert "SIGUSR1" not in runs[0].err + runs[2].err, runs
    leave(box, runs)


def test_a_signal_to_every_node_is_one_signal(box):
    runs = start_nodes(box, 3)
    for run in runs:  # as srun does
        run.signal(signal.SIGUSR1)
    box.wait_event("signal_received", count=6)  # each of three sends it to the two others
    passed_on = box.events("signal_passed_on")
    assert sorted(event["group_rank"] for event in passed_on) == [0, 1, 2]
    wait_all_got(box, 6, "USR1")
    leave(box, runs)


def test_the_scope_of_a_signal_can_be_the_node(box):
    runs = start_nodes(box, 2, "--signal-scope=node")
    runs[0].signal(signal.SIGUSR1)
    ctrun.wait_until(lambda: got(box, 0) and got(box, 1), "the signal on one node")
    runs[1].signal(signal.SIGUSR2)
    ctrun.wait_until(lambda: got(box, 2) and got(box, 3), "the signal on the other")
    assert [got(box, rank) for rank in range(4)] == [["USR1"]] * 2 + [["USR2"]] * 2
    leave(box, runs)


def test_t22_the_others_hear_which_node_was_told_to_end_and_by_whom(box):
    runs = start_nodes(box, 2, "--shutdown-timeout=15")
    runs[1].signal(signal.SIGTERM)
    ctrun.wait_until(lambda: re.search(r"leaves \(SIGTERM from pid \d+ \(.+\)\)", runs[0].err), lambda: str(runs[0]))
    wait_all_got(box, 4, "TERM")
    runs[1].signal(signal.SIGTERM)  # a second one changes nothing
    assert "up to 15 s for checkpoints" in runs[1].err, runs[1]
    box.write("leave", "")
    assert runs[1].wait() == 128 + signal.SIGTERM, runs[1]
    assert [got(box, rank) for rank in range(4)] == [["TERM"]] * 4
    runs[0].signal(signal.SIGTERM)  # it waits for another node
    runs[0].wait()


def test_t22_the_time_that_is_left_to_save_is_told(box):
    run = box.start_ctrun("--shutdown-timeout=60", "--no-python", "sh", "-c",
                          "trap '' TERM; touch up; until [ -e leave ]; do sleep 0.05; done")
    ctrun.wait_until(lambda: box.path("up").exists(), "up")
    run.signal(signal.SIGTERM)
    ctrun.wait_until(lambda: "s left for checkpoints" in run.err, lambda: str(run), 30)
    leave(box, [run], 128 + signal.SIGTERM)


@pytest.mark.parametrize("name, code", [("TERM", 75), ("USR1", 75)])
def test_workers_that_saved_and_left_end_in_the_code_that_asks_for_a_requeue(box, name, code):
    box.write("count.sh", COUNTING, 0o755)
    run = box.start_ctrun("--nproc-per-node=2", "--requeue-exit=75", "count.sh")
    ctrun.wait_until(lambda: box.path("up.0").exists() and box.path("up.1").exists(), "up")
    run.signal(signal.Signals["SIG" + name])
    wait_all_got(box, 2, name)
    leave(box, [run], code)


def test_signals_that_come_while_the_end_is_written_change_nothing_of_it(box):
    box.write("count.sh", COUNTING, 0o755)
    error = box.path("error.json")
    run = box.start_ctrun("--requeue-exit=75", "--log-dir=logs", "count.sh",
                          env={"TORCHELASTIC_ERROR_FILE": str(error)})
    ctrun.wait_until(box.path("up.0").exists, lambda: f"up\n{run}")
    agent = ctrun.parent_of(box.workers()[0])
    [folder] = box.path("logs").iterdir()
    slow = folder / "summary.json.new"  # the agent writes here first, and the FIFO makes it wait for a reader
    os.mkfifo(slow)
    run.signal(signal.SIGTERM)
    wait_all_got(box, 1, "TERM")
    box.write("leave", "")
    ctrun.wait_until(lambda: "stopped by SIGTERM" in run.err, lambda: str(run))
    for name in ("TERM", "INT", "USR1") * 5:
        run.signal(signal.Signals["SIG" + name])
        os.kill(agent, signal.Signals["SIG" + name])
        assert run.code is None, run
    assert json.loads(slow.read_text())["exit_code"] == 75
    assert run.wait() == 75, run
    assert "SignalException" in error.read_text()


def test_a_signal_behind_the_end_of_the_agent_leaves_the_exit_code_as_it_is(box):
    run = box.start_ctrun("--no-python", "sh", "-c", "until [ -e leave ]; do sleep 0.05; done; exit 3")
    agent = ctrun.parent_of(box.wait_workers(1)[0])
    run.signal(signal.SIGSTOP)  # the guard: both signals are pending when it continues, and SIGCHLD comes first
    box.write("leave", "")
    ctrun.wait_until(lambda: not ctrun.is_alive(agent), "the agent ended")
    run.signal(signal.SIGXCPU)
    run.signal(signal.SIGCONT)
    assert run.wait() == 3, run


def test_a_worker_that_had_to_be_killed_asks_for_no_requeue(box):
    run = box.start_ctrun("--requeue-exit=75", "--shutdown-timeout=0", "--no-python",
                          "sh", "-c", "trap '' TERM; touch up; while :; do sleep 0.05; done")
    ctrun.wait_until(lambda: box.path("up").exists(), "up")
    run.signal(signal.SIGTERM)
    assert run.wait() == 128 + signal.SIGTERM


@pytest.mark.parametrize("name", ["TERM", "INT"])
def test_a_node_without_workers_that_is_asked_to_end_asks_for_a_requeue_too(box, name):
    daemon, endpoint = box.start_ctrund()

    def start(endpoint, nodes, run_id, command):
        return box.start_ctrun("--requeue-exit=85", "--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}",
                               "--rdzv-conf=is_host=0", f"--nnodes={nodes}", f"--rdzv-id={run_id}", "--no-python",
                               "sh", "-c", command)

    full = start(endpoint, 1, "full", "until [ -e leave ]; do sleep 0.05; done")
    box.wait_event("worker_started")
    runs = [start(endpoint, 1, "full", "exit 9"), start(endpoint, 2, "r", "exit 9")]  # a spare; in the first join
    box.wait_event("agent_state", 3, to="joining")
    runs.append(start(f"127.0.0.1:{launch.free_port()}", 2, "r", "exit 9"))  # nobody answers
    box.wait_event("link_state", 4, to="connecting")
    for run in runs:
        run.signal(signal.Signals["SIG" + name])
    assert [run.wait() for run in runs] == [85] * 3, runs
    for run in runs:
        assert "exit code 85 asks for a requeue" in run.err, run
    leave(box, [full])
    daemon.signal(signal.SIGTERM)
    assert daemon.wait() == 0


def test_without_a_signal_success_is_success(box):
    assert box.ctrun("--requeue-exit=75", "--no-python", "true").code == 0
    run = box.ctrun("--requeue-exit=0", "--no-python", "true")
    assert run.code == 2 and "--requeue-exit=0" in run.err
