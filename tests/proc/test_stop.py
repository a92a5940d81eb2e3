# SPDX-License-Identifier: Apache-2.0
"""Signals, grace, escalation, and what workers leave behind."""
import os
import re
import signal

import pytest

import ctrun
from clock import Clock

# Without sanitizers workers are started in another way (agent/process/child.c).
pytestmark = pytest.mark.both


def start_hanging(node, *words, **how):
    """Starts workers, and waits until each has done all its words and hangs."""
    run = node.start(*words, "touch", str(node.box.path("ready%r")), "hang", **how)
    for rank in range(how.get("workers", 2)):
        ctrun.wait_until(node.box.path(f"ready{rank}").exists,
                         lambda: f"worker is ready\n{run}")
    return run


@pytest.mark.parametrize("name", ["TERM", "INT", "HUP", "QUIT"])
def test_a_signal_goes_to_all_workers_and_ends_the_run(node, name):
    run = start_hanging(node, "on", name, "3")
    run.signal(getattr(signal, "SIG" + name))
    assert run.wait() == 128 + getattr(signal, "SIG" + name), run
    assert node.result()["signal"] == getattr(signal, "SIG" + name)
    causes = {event["cause"] for event in node.box.events("worker_ended")}
    assert causes == {"stopped"}
    assert len(run.server.wait_for("LEAVE")) == 1


def test_workers_may_use_the_grace_to_save(node):
    go = node.box.path("go")
    run = start_hanging(node,
                        program=["sh", "-c", f"trap 'while [ ! -e {go} ]; do sleep 0.05; done;"
                                 f" echo saved; exit 0' TERM; touch {node.box.path('ready')}"
                                 "$LOCAL_RANK; while :; do sleep 0.05; done"],
                        options=["--grace", "60000"])
    run.signal(signal.SIGTERM)
    node.box.wait_event("signal")
    node.box.write("go", "")
    assert run.wait(20) == 143
    assert run.out == "saved\nsaved\n"


def test_a_worker_that_ignores_the_signal_is_killed_after_the_grace(node):
    run = start_hanging(node, "ignore", "TERM", options=["--grace", "100"])
    run.signal(signal.SIGTERM)
    assert run.wait() == 143
    codes = [event["code"] for event in node.box.events("worker_ended")]
    assert codes == [signal.SIGKILL] * 2


def test_grace_0_kills_at_once(node):
    run = start_hanging(node, "on", "TERM", f"touch:{node.box.path('asked%r')}",
                        options=["--grace", "0"])
    run.signal(signal.SIGTERM)
    assert run.wait() == 143
    assert not node.box.path("asked0").exists()


def test_a_second_interrupt_asks_with_sigterm(node):
    clock = Clock(node.box)
    run = start_hanging(node, "on", "INT", f"touch:{node.box.path('int%r')}", env=clock.env)
    run.signal(signal.SIGINT)
    ctrun.wait_until(node.box.path("int0").exists, "the first one arrived")
    clock.stand()  # two seconds later SIGKILL comes
    run.signal(signal.SIGINT)
    node.box.wait_event("worker_ended", 2)
    clock.go_on()
    assert run.wait(20) == 130
    assert {e["code"] for e in node.box.events("worker_ended")} == {signal.SIGTERM}


def test_a_third_interrupt_kills(node):
    clock = Clock(node.box)
    run = start_hanging(node, "ignore", "INT", "ignore", "TERM",
                        options=["--grace", "600000"], env=clock.env)
    clock.stand()
    for count in range(3):
        run.signal(signal.SIGINT)
        node.box.wait_event("signal", count + 1, signal=signal.SIGINT)
        clock.advance(0.25)
    clock.go_on()
    assert run.wait(20) == 130
    assert {e["code"] for e in node.box.events("worker_ended")} == {signal.SIGKILL}


def test_a_signal_before_the_first_round_ends_the_run(node):
    server = node.serve()
    server.starts_rounds = False
    run = node.start("hang", server=server)
    server.wait_for("JOIN")
    run.signal(signal.SIGTERM)
    assert run.wait() == 143
    assert node.result()["signal"] == signal.SIGTERM
    assert server.wait_for("LEAVE")


def test_a_signal_while_nobody_answers_ends_the_run(node):
    server = node.serve()
    server.is_silent = True
    run = node.start("hang", server=server)
    server.wait_for("HELLO")
    run.signal(signal.SIGINT)
    assert run.wait() == 130


def test_usr1_reaches_the_workers_and_nothing_ends(node):
    run = start_hanging(node, "on", "USR1", f"touch:{node.box.path('usr1%r')}")
    run.signal(signal.SIGUSR1)
    for rank in "01":
        ctrun.wait_until(node.box.path("usr1" + rank).exists, "USR1 arrived")
    assert run.code is None
    run.signal(signal.SIGTERM)
    assert run.wait() == 143


def test_a_signal_to_guard_and_agent_is_one(node):
    """A scheduler may signal every process of a step."""
    clock = Clock(node.box)
    run = start_hanging(node, "on", "USR1", f"touch:{node.box.path('usr1')}",
                        "on", "USR2", f"touch:{node.box.path('usr2')}", env=clock.env)
    agent = node.agent_pid()
    clock.stand()
    for pairs in range(3):
        before = len(node.box.events("signal"))
        run.signal(signal.SIGUSR1)
        node.box.wait_event("signal", before + 1)
        os.kill(agent, signal.SIGUSR1)
        os.kill(agent, signal.SIGUSR2)  # delivered after SIGUSR1
        node.box.wait_event("signal", 1 + pairs, signal=signal.SIGUSR2)
        heard = [e for e in node.box.events("signal")[before:] if e["signal"] == signal.SIGUSR1]
        assert len(heard) == 1
        clock.advance(0.25)  # the next pair is another signal
    clock.go_on()
    run.signal(signal.SIGTERM)
    assert run.wait() == 143


def test_a_listed_usr1_ends_the_run(node):
    run = start_hanging(node, "on", "USR1", "0", options=["--signals", "USR1"])
    run.signal(signal.SIGUSR1)
    assert run.wait() == 128 + signal.SIGUSR1


def test_an_unlisted_sigterm_kills_the_agent_and_leaves_nothing(node):
    run = start_hanging(node, "orphan", options=["--signals", "USR1"])
    run.signal(signal.SIGTERM)
    assert run.wait() == 143
    node.box.wait_gone()


def test_a_stop_reaches_process_groups_inside_the_session(node):
    run = start_hanging(node, "group", options=["--grace", "600000"], workers=1,
                        program=None)
    run.signal(signal.SIGTERM)
    assert run.wait(20) == 143


# Where the kernel permits it, a run has a cgroup, and the agent kills all processes in it.
# Elsewhere, and in a step of Slurm, the agent has to find each process: each way must work alone.
@pytest.fixture(params=[{}, {"SLURM_STEP_ID": "0"}], ids=["", "without_cgroup"])
def way(request):
    return request.param


@pytest.mark.parametrize("kind", ["child", "group", "orphan", "holder"])
def test_what_a_failed_worker_leaves_behind_is_killed(node, kind, way):
    run = node.run("@1", kind, "exit", "5", "@all", "hang", options=["--grace", "600000"],
                   env=way)
    assert run.code == 5
    node.box.wait_gone()
    for event in node.box.events("orphans_killed"):  # no process that ended with its worker
        assert re.fullmatch(r"pid \d+ \(victim\)(, pid \d+ \(victim\))*", event["processes"]), event
    if kind == "orphan":  # it has a session of its own
        assert [event["count"] for event in node.box.events("orphans_killed")] == [1]


@pytest.mark.parametrize("kind", ["child", "orphan", "holder"])
def test_what_a_successful_worker_leaves_behind_is_killed(node, kind, way):
    run = node.run(kind, "exit", "0", env=way)
    assert run.code == 0
    node.box.wait_gone()


def test_an_orphan_is_gone_before_the_next_round_starts(node, way):
    """The worker of the first round leaves an orphan that keeps its files open; that of the second
    looks for it."""
    script = node.box.write("worker.sh", "#!/bin/sh\n"
                            "if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then\n"
                            "  (trap '' TERM HUP INT; setsid sleep 600 & echo $! > orphan)\n"
                            "  exit 1\n"
                            "fi\n"
                            "! kill -0 $(cat orphan)\n", 0o755)
    run = node.run(program=[script], workers=1, server=node.serve(max_restarts=1, workers=1), env=way)
    assert run.code == 0 and len(node.box.events("worker_started")) == 2, run
    node.box.wait_gone()


def test_a_helper_that_ignores_the_stop_is_killed_soon_after_its_worker_has_ended(node, way):
    """If it had the whole grace time of ten minutes, the run would not end in time."""
    helper = f"trap '' TERM; touch {node.box.path('ready')}$LOCAL_RANK; while :; do sleep 0.1; done"
    run = start_hanging(node, program=["sh", "-c", f"trap 'exit 0' TERM; ({helper}) & "
                                       "while :; do sleep 0.05; done"],
                        options=["--grace", "600000"], env=way)
    run.signal(signal.SIGTERM)
    assert run.wait() == 143
    (killed,) = node.box.events("orphans_killed")
    assert killed["count"] >= 2 and "(sh)" in killed["processes"], killed


def test_a_program_in_a_shell_keeps_the_grace_when_the_shell_is_gone(node, way):
    """The shell dies of SIGTERM at once; the program saves for longer than helpers may live."""
    save = "trap 'sleep 3; echo saved; exit 0' TERM; touch %s$LOCAL_RANK; while :; do sleep 0.05; done"
    script = node.box.write("program.sh", save % node.box.path("ready"))
    run = start_hanging(node, program=["sh", "-c", f"sh {script}; true"],
                        options=["--grace", "600000"], env=way)
    run.signal(signal.SIGTERM)
    assert run.wait() == 143
    assert run.out == "saved\nsaved\n"


def test_a_failure_while_others_ignore_the_stop_waits_for_the_grace_only(node):
    run = node.run("@1", "await", str(node.box.path("ready0")), "exit", "5", "@0", "ignore", "TERM",
                   "touch", str(node.box.path("ready0")), "hang", options=["--grace", "100"])
    assert run.code == 5
    ended = {e["rank"]: (e["cause"], e["code"]) for e in node.box.events("worker_ended")}
    assert ended == {1: ("exit", 5), 0: ("stopped", signal.SIGKILL)}


def test_a_stopped_worker_can_act_on_the_signal(node):
    run = start_hanging(node, "on", "TERM", f"touch:{node.box.path('woke%r')}", workers=1,
                        options=["--grace", "600000"])
    os.kill(node.worker_pids(1)[0], signal.SIGSTOP)
    run.signal(signal.SIGTERM)
    ctrun.wait_until(node.box.path("woke0").exists, "it was continued")
    run.signal(signal.SIGKILL)
    node.box.wait_gone()


def test_a_stop_of_another_generation_is_ignored(node):
    server = node.serve(heartbeat_ms=50)
    run = start_hanging(node, "on", "TERM", "0", server=server)
    server.stop_round(generation=7)
    server.wait_for("HEARTBEAT", len(server.received("HEARTBEAT")) + 3)  # an answer would be there by now
    assert server.received("STOPPING") == [] and not node.box.events("worker_ended")
    server.stop_round(generation=1, reason=3)
    run.server.wait_for("STOPPED")
    run.server.wait_for("JOIN", 2)
    assert run.server.received("STOPPED")[0]["generation"] == 1
    run.signal(signal.SIGTERM)
    assert run.wait() == 143


def test_a_membership_change_restarts_without_a_failure(node):
    run = start_hanging(node, "on", "TERM", "0")
    run.server.stop_round(reason=3)
    node.box.wait_event("worker_started", 4)
    assert run.server.received("FAILURE") == []
    assert run.server.received("STOPPED")[0]["failures"] == []
    run.signal(signal.SIGTERM)
    assert run.wait() == 143


def test_a_round_that_succeeded_here_may_start_again(node):
    server = node.serve()
    server._on_succeeded = lambda fields: server.stop_round() if fields["generation"] == 1 \
        else server.give_verdict(1, 0)
    run = node.run("exit", "0", server=server)
    assert run.code == 0
    assert len(node.box.events("worker_started")) == 4


def test_workers_have_the_whole_grace_when_another_node_is_lost(node):
    """Each worker saves for 3 s, and the next round waits for that."""
    save = f"sleep 3; echo $LOCAL_RANK >> {node.box.path('saved')}; exit 0"
    run = start_hanging(node, program=["sh", "-c", f"[ $TORCHELASTIC_RESTART_COUNT = 0 ] && "
                                       f"[ ! -e {node.box.path('saved')} ] || exit 0;"
                                       f"trap '{save}' TERM; touch {node.box.path('ready')}"
                                       "$LOCAL_RANK; while :; do sleep 0.05; done"],
                        options=["--grace", "60000"])
    run.server.stop_round(reason=2)
    node.box.wait_event("worker_started", 4)
    assert sorted(node.box.path("saved").read_text().split()) == ["0", "1"]
    assert run.wait() == 0


def test_words_that_a_running_node_cannot_take_end_it_behind_its_workers(node):
    """The node can not run the new command line: it leaves before the next round, as when it is
    drained."""
    run = node.start("hang")
    node.box.wait_event("worker_started", 2)
    run.server.send("RELOAD", number=1, step=4, ticket=0, program=0, by="n1", text="", command="true")
    assert run.wait() not in (0, 134), run
    [leave] = run.server.wait_for("LEAVE")
    assert "mistake in ctrun" not in run.err and "new command line (ctrunctl reload on n1)" in leave["reason"], run
    assert [event["code"] for event in node.box.events("worker_ended")] == [15, 15], run
    assert [event["to"] for event in node.box.events("agent_state")][-2:] == ["stopping", "ended"], run
