# SPDX-License-Identifier: Apache-2.0
"""ctrun_should_stop(): whatever ends the run or the round, a program that asks at each step, and has
no handler for signals, has the grace time to save on all ranks after the same step."""
import re
import signal

import ctrun
import launch
import pytest
import test_allocation
import test_signals

CTL = ctrun.program("ctrunctl")
RANKS = 4


def start(box, count, nodes, *words, env=None):
    """`count` nodes with two ranks each of one run that has places for `nodes`."""
    port = launch.free_port()
    runs = []
    for _ in range(count):
        runs.append(box.start_ctrun(f"--rdzv-endpoint=localhost:{port}", f"--nnodes={nodes}", "--rdzv-id=r",
                                    "--nproc-per-node=2", "--shutdown-timeout=60", *words,
                                    ctrun.program("stopper"), box.path("ready"), env=env))
        box.wait_event("link_state", to="up", count=len(runs))
    return runs


def wait_ready(box, runs, ranks=RANKS):
    ctrun.wait_until(lambda: all(box.path(f"ready.{r}").exists() for r in range(ranks)), lambda: f"{runs}", 30)


def wait_saved(runs, ranks=RANKS):
    """Each rank saves once, all after the same step."""
    def steps():
        return re.findall(r"stopped after (\d+)", "".join(run.out for run in runs))
    ctrun.wait_until(lambda: len(steps()) >= ranks, lambda: f"{runs}", 30)
    assert len(steps()) == ranks and len(set(steps())) == 1, runs


def test_a_signal_to_one_node(box):
    runs = start(box, 2, 2, "--requeue-exit=75")
    wait_ready(box, runs)
    runs[1].signal(signal.SIGTERM)
    wait_saved(runs)
    assert runs[1].wait() == 75, runs
    ctrun.stop(runs[0])  # it waits for another node


def test_a_signal_to_all_nodes(box):
    runs = start(box, 2, 2, "--requeue-exit=75")
    wait_ready(box, runs)
    for run in runs:
        run.signal(signal.SIGTERM)
    wait_saved(runs)
    assert [run.wait() for run in runs] == [75, 75], runs


def test_one_that_saves_and_leaves_with_a_code_of_its_own_was_stopped(box):
    run = box.start_ctrun("--nproc-per-node=2", ctrun.program("victim"), "step", "41", "stopped", "write", "saved",
                          "exit", "9")
    ctrun.wait_until(lambda: '"step":41' in box.run(CTL, "status", "--json").out, lambda: str(run))
    run.signal(signal.SIGTERM)
    assert run.wait() == 128 + signal.SIGTERM and "error[E_EXIT]" not in run.err, run
    assert {event["cause"] for event in box.events("worker_ended")} == {"stopped"}, run


def test_the_end_of_the_allocation(box):
    runs = start(box, 2, 2, test_allocation.before(), "--requeue-exit=75", env=test_allocation.end())
    wait_saved(runs)
    assert [run.wait() for run in runs] == [75, 75], runs


def test_a_restart_that_was_asked_for(box):
    runs = start(box, 2, 2)
    wait_ready(box, runs)
    assert box.run(CTL, "restart", f"--run={runs[0].pid}").code == 0
    wait_saved(runs)
    box.wait_event("round_started", generation=2, count=2)
    assert not box.events("round_started", restart_count=1)
    ctrun.stop(*runs)


def test_a_smaller_run(box):
    runs = start(box, 2, "1:2", "--rdzv-conf=last_call_timeout=60")
    wait_ready(box, runs)
    assert box.run(CTL, "resize", f"--run={runs[0].pid}", "1").code == 0
    wait_saved(runs)
    ctrun.stop(*runs)


def test_a_newcomer(box):
    runs = start(box, 1, "1:2", "--rdzv-conf=last_call_timeout=1")
    wait_ready(box, runs, 2)
    port = next(word for word in runs[0].argv if word.startswith("--rdzv-endpoint="))
    runs.append(box.start_ctrun(port, "--nnodes=1:2", "--rdzv-id=r", "--nproc-per-node=2",
                                "--shutdown-timeout=60", ctrun.program("stopper"), box.path("ready")))
    wait_saved(runs, 2)
    box.wait_event("round_started", group_world_size=2, count=2)
    ctrun.stop(*runs)


@pytest.mark.parametrize("interrupts, grace", [(1, 2), (2, 600)])
def test_a_rank_that_does_not_stop_gets_the_signal_in_the_grace_or_at_once_when_the_user_cannot_wait(
        box, interrupts, grace):
    clock = test_signals.Clock(box)
    run = box.start_ctrun(f"--shutdown-timeout={grace}", ctrun.program("victim"), "poll", "touch", box.path("up"), "hang",
                          env=clock.env)
    ctrun.wait_until(box.path("up").exists, lambda: f"{run}")
    clock.stand()
    for count in range(1, interrupts + 1):
        run.signal(signal.SIGINT)
        box.wait_event("signal", count, signal=signal.SIGINT)
        clock.advance(0.25)  # two within 0.2 s count as one
    clock.go_on()
    assert run.wait(30) == 130, run
    [event] = box.events("worker_ended")
    assert (event["cause"], event["code"]) == ("stopped", signal.SIGINT if interrupts == 1 else signal.SIGTERM)
