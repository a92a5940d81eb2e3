# SPDX-License-Identifier: Apache-2.0
"""Signals to the launcher, and what survives it: nothing."""
import signal

import ctrun
import launch
import pytest

TRAP = """#!/bin/sh
for name in TERM INT HUP QUIT USR1; do trap "echo $RANK got $name; exit 0" $name; done
echo up > up.$RANK
while :; do sleep 0.02; done
"""


def start(box, *options, script=TRAP, count=2):
    box.write("trap.sh", script, 0o755)
    run = box.start_ctrun(f"--nproc-per-node={count}", *options, "trap.sh")
    launch_up = [box.path(f"up.{rank}") for rank in range(count)]
    ctrun.wait_until(lambda: all(path.exists() for path in launch_up), lambda: f"up\n{run}")
    return run


@pytest.mark.parametrize("name", ["TERM", "INT", "HUP", "QUIT"])
def test_torchrun_100_a_signal_reaches_the_workers_as_it_is(box, name):
    number = signal.Signals["SIG" + name]
    run = start(box)
    run.signal(number)
    assert run.wait() == 128 + number
    assert sorted(run.out.splitlines()) == [f"0 got {name}", f"1 got {name}"]
    assert f"SIG{name}" in run.err


def test_torchrun_100_exits_1_in_torchruns_style(box):
    run = start(box, "--exit-code=torchrun")
    run.signal(signal.SIGTERM)
    assert run.wait() == 1


def test_torchrun_101_other_signals_can_be_handled(box):
    run = start(box, "--signals-to-handle=SIGTERM,SIGUSR1")
    run.signal(signal.SIGUSR1)
    assert run.wait() == 128 + signal.SIGUSR1
    assert sorted(run.out.splitlines()) == ["0 got USR1", "1 got USR1"]


def test_torchrun_102_an_unknown_signal_is_only_warned_about(box):
    run = box.ctrun("--signals-to-handle=SIGTERM,SIGBOGUS", "true")
    assert run.code == 0 and "SIGBOGUS" in run.err


STUBBORN = """#!/bin/sh
trap '' TERM
echo up > up.$RANK
while :; do sleep 0.02; done
"""


@pytest.mark.parametrize("words, env", [(["--shutdown-timeout=1"], {}),
                                        ([], {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "1"})])
def test_torchrun_103_the_grace_time_ends_in_a_kill(box, words, env):
    box.write("trap.sh", STUBBORN, 0o755)
    run = box.start_ctrun(*words, "trap.sh", env=env)
    ctrun.wait_until(box.path("up.0").exists, "up")
    run.signal(signal.SIGTERM)
    assert run.wait(20) == 143
    box.wait_gone()


def test_torchrun_104_105_each_process_of_a_worker_gets_the_signal_once(box):
    script = ("#!/bin/sh\n(trap 'echo child; exit 0' TERM; echo up > up.$RANK; "
              "while :; do sleep 0.02; done) &\n"
              "trap 'echo parent; wait; exit 0' TERM\nwait\n")
    run = start(box, count=1, script=script)
    run.signal(signal.SIGTERM)
    assert run.wait() == 143
    assert sorted(run.out.splitlines()) == ["child", "parent"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGUSR2])
def test_torchrun_106_nothing_survives_the_launcher(box, number):
    run = start(box, script=STUBBORN)
    run.signal(number)
    assert run.wait() == 128 + number
    box.wait_gone()


def test_torchrun_106_repeated_signals_leave_nothing(box):
    run = start(box, "--shutdown-timeout=30", script=STUBBORN.replace("TERM", "TERM INT"))
    for _ in range(3):
        run.signal(signal.SIGINT)
        box.wait_event("worker_started")
    run.signal(signal.SIGKILL)
    run.wait()
    box.wait_gone()


def test_torchrun_107_154_a_signal_while_waiting_for_nodes_ends_promptly(box):
    run = box.start_ctrun("--nnodes=2", f"--rdzv-endpoint=localhost:{launch.free_port()}", "true")
    box.wait_event("agent_state", to="joining")
    run.signal(signal.SIGINT)
    assert run.wait(10) in (1, 130)
    box.wait_gone()
