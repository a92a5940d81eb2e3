# SPDX-License-Identifier: Apache-2.0
"""Signals to the launcher, and that no process survives it."""
import itertools
import os
import re
import signal
import sys

import ctrun
import launch
import pytest
from clock import Clock

# Without sanitizers workers are started in another way (agent/process/child.c).
pytestmark = pytest.mark.both

TRAP = """#!/bin/sh
for name in TERM INT HUP QUIT USR1; do trap "echo $RANK got $name; exit 0" $name; done
echo up > up.$RANK
while :; do sleep 0.05; done
"""


def start(box, *options, script=TRAP, count=2, env=None):
    box.write("trap.sh", script, 0o755)
    run = box.start_ctrun(f"--nproc-per-node={count}", *options, "trap.sh", env=env)
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


BLOCKED = "import os, signal, sys; signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32)); os.execv(sys.argv[1], sys.argv[1:])"


def test_signals_that_the_parent_has_blocked_are_handled(box):
    run = box.start(ctrun.DEBIAN_PYTHON, "-c", BLOCKED, ctrun.program("ctrun"), "--nproc-per-node=2", "sleep", "600")
    box.wait_workers(2)
    run.signal(signal.SIGTERM)
    assert run.wait() == 143, run


def test_torchrun_102_an_unknown_signal_is_only_warned_about(box):
    run = box.ctrun("--signals-to-handle=SIGTERM,SIGBOGUS,TERM", "true")
    assert run.code == 0 and "'SIGBOGUS'" in run.err and "'TERM' is not the name of a signal" in run.err, run


FAMILY = f"""#!{sys.executable}
import os, signal, time

def become(name):
    signal.signal(signal.SIGTERM, lambda *_: os.write(1, name.encode() + b"\\n"))

def stay():
    while not os.path.exists("go"):
        time.sleep(0.01)
    os._exit(0)

become("parent")
for name in "child", "other group":
    ready = os.pipe()
    if os.fork() == 0:
        become(name)
        if name == "other group":
            os.setpgid(0, 0)
        os.write(ready[1], b"1")
        stay()
    os.read(ready[0], 1)
open("up." + os.environ["RANK"], "w").close()
stay()
"""


STUBBORN = """#!/bin/sh
trap '' TERM
echo up > up.$RANK
while :; do sleep 0.05; done
"""


@pytest.mark.parametrize("words, env", [(["--shutdown-timeout=1"], {}),
                                        ([], {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "1"})])
def test_torchrun_103_the_grace_time_ends_in_a_kill(box, words, env):
    box.write("trap.sh", STUBBORN, 0o755)
    run = box.start_ctrun(*words, "trap.sh", env=env)
    ctrun.wait_until(box.path("up.0").exists, "up")
    run.signal(signal.SIGTERM)
    assert run.wait(5) == 143
    box.wait_gone()


def test_torchrun_104_105_each_process_of_a_worker_gets_the_signal_once(box):
    run = start(box, count=1, script=FAMILY)
    run.signal(signal.SIGTERM)
    # The other group has the highest pid and is signalled last: each copy has arrived by now.
    ctrun.wait_until(lambda: "other group" in run.out, lambda: f"all were signalled\n{run}")
    box.write("go", "")
    assert run.wait() == 143
    assert sorted(run.out.splitlines()) == ["child", "other group", "parent"]


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


def own_lines(run):
    """The lines about signals, without those about the run or about what other tests have left."""
    return [line for line in run.err.splitlines()
            if line.startswith(("ctrun: SIG", "ctrun: stopp"))]


PATIENT = TRAP.replace("TERM INT HUP QUIT USR1;", "USR1 USR2;").replace("; exit 0", "")


def test_t23_usr1_and_usr2_reach_each_worker_once_and_are_one_line_each(box):
    run = start(box, script=PATIENT)
    for name in ("USR1", "USR2"):
        run.signal(signal.Signals["SIG" + name])
        ctrun.wait_until(lambda: run.out.count(f"got {name}") == 2, lambda: str(run))
    run.signal(signal.SIGTERM)
    assert run.wait() == 143
    assert sorted(run.out.splitlines()) == [f"{rank} got {name}" for rank in (0, 1)
                                            for name in ("USR1", "USR2")]
    sender = rf"from pid {os.getpid()} \(.+\)"
    for line, what in zip(own_lines(run), [rf"SIGUSR1 {sender}: passed on to the workers",
                                           rf"SIGUSR2 {sender}: passed on to the workers",
                                           rf"SIGTERM {sender}: stopping, up to 30 s for checkpoints",
                                           "stopped by .*"]):
        assert re.fullmatch("ctrun: " + what, line), run
    assert len(own_lines(run)) == 4, run


def test_a_signal_at_each_moment_of_the_start_leaves_nothing():
    """The agent gets it before one of the calls that open, create or connect something."""
    for number in itertools.count(1):
        box = ctrun.Box()
        fault = {"LD_PRELOAD": str(ctrun.BUILD / "tests" / "lib" / "libfault.so"), "FAULT": f"signal:{number}",
                 "FAULT_FILE": str(box.path("fault")),
                 "ASAN_OPTIONS": f"{os.environ.get('ASAN_OPTIONS', '')}:verify_asan_link_order=0"}
        run = box.ctrun("--nproc-per-node=1", "--no-python", "true", env=fault)
        is_sent = box.path("fault").exists()
        left = sorted(str(path.relative_to(box.dir)) for path in box.dir.rglob("*")
                      if path.name not in ("fault", "events.ndjson", "ctl"))
        assert run.code in ((0, 143) if is_sent else (0,)), (number, str(run))
        assert left == [], (number, left, str(run))
        assert not box.close(), number
        if not is_sent:
            break
    assert number > 10


DEAF = "#!/bin/sh\ntrap '' INT TERM\necho up > up.$RANK\nwhile :; do sleep 0.05; done\n"


@pytest.mark.parametrize("presses, words", [
    (1, ["--shutdown-timeout=1"]), (2, []), (3, [])])
def test_t23_ctrl_c_once_twice_and_thrice(box, presses, words):
    clock = Clock(box)
    run = start(box, *words, script=DEAF, env=clock.env)
    clock.stand()  # the second press leaves two seconds for the third
    for count in range(1, presses + 1):
        run.signal(signal.SIGINT)
        box.wait_event("signal", count, signal=signal.SIGINT)
        clock.advance(0.25)  # two within 0.2 s count as one
    clock.go_on()
    assert run.wait(20) == 130
    lines = own_lines(run)
    assert "stopping (press again to kill)" in lines[0], run
    assert len(lines) == presses + 1 and "Traceback" not in run.err, run
    box.wait_gone()


def test_t23_behind_the_second_ctrl_c_no_time_is_left_for_checkpoints(box):
    """A line that tells how much is left comes every ten seconds behind the first."""
    clock = Clock(box)
    run = start(box, script=DEAF, env=clock.env)
    clock.stand()
    for count, seconds in (1, 9), (2, 1.5):
        run.signal(signal.SIGINT)
        box.wait_event("signal", count, signal=signal.SIGINT)
        box.run(ctrun.program("ctrunctl"), "status")  # whoever answers has handled it, and looked at the clock
        clock.advance(seconds)
    box.run(ctrun.program("ctrunctl"), "status")
    assert "left for checkpoints" not in run.err, run
    clock.go_on()
    assert run.wait() == 130


def test_t23_nohup_keeps_sighup_ignored_in_the_launcher_and_its_workers(box):
    box.write("trap.sh", PATIENT, 0o755)
    run = box.start("sh", "-c", 'trap "" HUP; exec "$@"', "sh", ctrun.program("ctrun"), "trap.sh")
    ctrun.wait_until(box.path("up.0").exists, "up")
    for pid in box.workers().values():
        os.kill(pid, signal.SIGHUP)
    run.signal(signal.SIGHUP)
    run.signal(signal.SIGUSR1)  # after SIGHUP
    ctrun.wait_until(lambda: "got USR1" in run.out, lambda: str(run))
    run.signal(signal.SIGTERM)
    assert run.wait() == 143 and "SIGHUP" not in run.err, run


def test_t23_a_background_job_of_a_script_hears_sigint_as_torchruns_does(box):
    box.write("trap.sh", TRAP, 0o755)
    run = box.start("sh", "-c", '"$@" & echo $! > pid.new; mv pid.new pid; wait $!', "sh", ctrun.program("ctrun"),
                    "trap.sh")
    ctrun.wait_until(lambda: box.path("up.0").exists() and box.path("pid").exists(), "up")
    pid = int(box.path("pid").read_text())
    os.kill(pid, signal.SIGINT)
    assert run.wait() == 130
    assert run.out == "0 got INT\n" and "SIGINT from pid" in run.err, run


@pytest.mark.parametrize("name, code", [("TERM", 143), ("INT", 130)])
def test_t23_as_pid_1_of_a_container_it_passes_signals_on_and_leaves_nothing(box, name, code):
    unshare = ["unshare", "--fork", "--pid", "--mount-proc"]
    if box.run(*unshare, "true").code != 0:
        pytest.skip("no namespaces here")
    script = TRAP.replace("while", "setsid sleep 600 & (sleep 600 &) ; while", 1)
    box.write("trap.sh", script, 0o755)
    run = box.start(*unshare, ctrun.program("ctrun"), "trap.sh")
    ctrun.wait_until(box.path("up.0").exists, lambda: f"up\n{run}")
    (guard,) = [pid for pid in box.pids() if ctrun.parent_of(pid) == run.pid]
    os.kill(guard, signal.Signals["SIG" + name])
    assert run.wait() == code
    assert run.out == f"0 got {name}\n", run
    assert f"ctrun: SIG{name} from outside of this container: stopping" in run.err, run
    assert box.events("signal")[0]["sender_pid"] == -1
    box.wait_gone()
