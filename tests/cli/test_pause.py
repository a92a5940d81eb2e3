# SPDX-License-Identifier: Apache-2.0
"""An agent or server that is stopped is paused, not lost, as long as its host answers."""
import os
import signal
import socket

import ctrun
import launch
import pytest

HOLD = ["sh", "-c", "exec sleep 600"]
SHORT = "keep_alive_interval=1,keep_alive_max_attempt=2,last_call_timeout=60"  # a lease of 2 s


@pytest.fixture
def pair(box):
    """Two nodes of 1:2 on this machine; the first one serves the rendezvous."""
    def start(conf):
        words = [f"--rdzv-endpoint=localhost:{launch.free_port()}", "--nnodes=1:2",
                 "--shutdown-timeout=1", f"--rdzv-conf={conf}"]
        host = box.start_ctrun(*words, *HOLD)
        box.wait_event("link_state", to="up")
        other = box.start_ctrun(*words, "--rdzv-conf=is_host=0," + conf, *HOLD)
        box.wait_workers(2)
        return host, other
    return start


def agent_of(run, workers):
    return next(ctrun.parent_of(pid) for pid in workers.values()
                if ctrun.guards_of(ctrun.parent_of(pid))[1] == run.pid)


def clock(box, seconds):
    """Waits so many seconds, in a process that sleeps."""
    run = box.start("sleep", str(seconds))
    run.wait(seconds + 30)


@pytest.mark.parametrize("which", [0, 1])
def test_an_agent_that_is_stopped_for_five_seconds_costs_no_node(box, pair, which):
    runs = pair("last_call_timeout=60")
    before = box.workers()
    agent = agent_of(runs[which], before)
    os.kill(agent, signal.SIGSTOP)
    clock(box, 5.2)
    os.kill(agent, signal.SIGCONT)
    clock(box, 2)  # what was decided meanwhile has arrived by now
    assert box.workers() == before, runs
    assert not box.events("round_stopped") and not box.events("guard_fenced"), runs
    if which == 1:
        assert box.events("member_paused"), box.events()
    ctrun.stop(*runs)


def test_an_agent_that_stays_stopped_is_fenced_by_its_guard_and_lost(box, pair):
    host, other = pair(SHORT)
    workers = box.workers()
    agent = agent_of(other, workers)
    mine = next(pid for pid in workers.values() if ctrun.parent_of(pid) == agent)
    os.kill(agent, signal.SIGSTOP)
    box.wait_event("guard_fenced", seconds=20)
    ctrun.wait_until(lambda: not ctrun.is_alive(mine), "its worker is dead", 5)
    ctrun.wait_until(lambda: [e for e in box.events("round_started", generation=2)
                              if e["group_world_size"] == 1], "the host alone", 20)
    fenced = box.events("guard_fenced")[0]["time_ns"]
    assert box.events("round_started", generation=2)[0]["time_ns"] > fenced  # never two worlds
    os.kill(agent, signal.SIGCONT)
    ctrun.stop(host, other)


def test_a_process_that_dies_while_paused_nodes_are_waited_for_is_lost_at_once(box, pair):
    host, other = pair("last_call_timeout=60")
    agent = agent_of(other, box.workers())
    os.kill(agent, signal.SIGSTOP)
    os.kill(agent, signal.SIGKILL)
    box.wait_event("round_started", generation=2, seconds=10)
    ctrun.stop(host, other)


def test_who_serves_anew_waits_for_workers_that_the_last_server_has_left_on_other_nodes(box):
    """The first server ends normally. The stopped agent of the other node reports nothing of its
    worker; its guards kill the worker when the lease ends. Before that, the same command starts on
    as many nodes as a world may have."""
    words = [f"--rdzv-endpoint=localhost:{launch.free_port()}", "--rdzv-id=job", "--nnodes=1:2",
             "--rdzv-conf=last_call_timeout=60", *HOLD]
    host = box.start_ctrun(*words)
    box.wait_event("link_state", to="up")
    other = box.start_ctrun(*words)
    box.wait_workers(2)
    agent = agent_of(other, box.workers())
    os.kill(agent, signal.SIGSTOP)
    host.signal(signal.SIGTERM)
    host.wait(30)
    new = [box.start_ctrun(*words) for _ in range(2)]
    started = box.wait_event("round_started", count=4)[2:]
    [fenced] = box.events("guard_fenced")
    assert fenced["time_ns"] < min(event["time_ns"] for event in started), (fenced, started)
    assert any("workers start in up to " in run.err for run in new), new
    os.kill(agent, signal.SIGCONT)
    ctrun.stop(other, *new)


def test_who_serves_anew_waits_for_nobody_when_the_run_is_over(box):
    words = [f"--rdzv-endpoint=localhost:{launch.free_port()}", "--rdzv-id=job", "--nnodes=2", "true"]
    for _ in range(2):
        runs = [box.start_ctrun(*words) for _ in range(2)]
        assert [run.wait() for run in runs] == [0, 0], runs
        assert not any("workers start in up to" in run.err for run in runs), runs
    assert not list(box.path("ctl").glob("*.left"))


def plant_killed(box, name):
    """Leaves what a killed launcher leaves."""
    box.path("ctl").mkdir(0o700, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(box.path("ctl") / name))


@pytest.mark.parametrize("who", ["ctrunctl", "another run", "a start that fails"])
def test_who_serves_anew_waits_though_others_have_noticed_that_the_last_server_was_killed(box, who):
    plant_killed(box, "job-1.sock")
    if who == "ctrunctl":
        box.run(ctrun.program("ctrunctl"), "status")
    elif who == "another run":
        assert box.ctrun("true").code == 0
    else:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            failed = box.ctrun(f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-conf=is_host=1", "--rdzv-id=job",
                               "--nnodes=2", "true")
            assert failed.code != 0, failed
    words = [f"--rdzv-endpoint=localhost:{launch.free_port()}", "--rdzv-id=job", "--nnodes=2",
             "--rdzv-conf=" + SHORT, "true"]
    runs = [box.start_ctrun(*words) for _ in range(2)]
    assert [run.wait() for run in runs] == [0, 0], runs
    assert any("workers start in up to" in run.err for run in runs), runs
