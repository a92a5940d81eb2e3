# SPDX-License-Identifier: Apache-2.0
"""A rank has died, and another one waits for a third: it gets an error at once and can save."""
import os
import signal
import socket
import subprocess
import sys

import ctrun
import pytest
from clock import Clock

RING = ctrun.ROOT / "tests" / "lib" / "ring.py"


def start(box, world, *options, words=(), command=(), script=RING):
    return box.start(*command, ctrun.program("ctrun"), "--standalone", f"--nproc-per-node={world}",
                     *options, script, box.dir, "127.0.0.1", *words, env={"PYTHON_EXEC": sys.executable})


def kill_last(box, world, restarts=0, gone=None):
    folder = box.path(str(restarts))
    for rank in range(world):
        ctrun.wait_until((folder / f"ready.{rank}").exists, f"rank {rank} waits for the next one")
    (folder / "gone").write_text(f"{world - 1 if gone is None else gone}\n")
    os.kill(int((folder / f"ready.{world - 1}").read_text()), signal.SIGKILL)


def raised(box, rank):
    """The connections that were open when the rank got its error."""
    return (box.path("0") / f"raised.{rank}").read_text().split()[1:]


@pytest.mark.parametrize("world", [2, 3])
def test_survivors_raise_and_save_before_they_are_asked_to_end(box, world):
    run = start(box, world, "--survivor-grace=100")
    kill_last(box, world)
    assert run.wait(60) == 128 + signal.SIGKILL, run
    assert [raised(box, rank) for rank in range(world - 1)] == [["store"]] * (world - 1)
    ends = {e["rank"]: e for e in box.events("worker_ended")}
    assert ends[world - 1]["cause"] == "signal", ends
    # The only survivor waits for no other one: it may have ended before the agent has looked.
    assert {ends[rank]["cause"] for rank in range(world - 1)} <= {"stopped", *(["exit"] if world == 2 else [])}, ends
    for event in box.events("survivors_freed"):
        assert (event["grace_ms"], event["refused"]) == (100000, ""), event
    assert world == 2 or box.events("survivors_freed")[0]["connections"] > 0
    assert f"rank {world - 1} (" in run.err.splitlines()[0] and "E_SIGNAL" in run.err.splitlines()[0]


def test_a_handler_for_sigterm_is_not_held_up_by_a_collective(box):
    run = start(box, 3, "--shutdown-timeout=100", words=["handle"])
    kill_last(box, 3)
    assert run.wait(60) == 128 + signal.SIGKILL, run
    assert [raised(box, rank) for rank in (0, 1)] == [["store"], ["store"]]
    assert box.events("survivors_freed")[0]["grace_ms"] == 0


def test_who_has_no_handler_is_ended_at_once_by_default(box):
    run = start(box, 3)
    kill_last(box, 3)
    assert run.wait(60) == 128 + signal.SIGKILL, run
    assert not box.events("survivors_freed")


def test_connections_to_other_programs_are_left_alone(box):
    with socket.create_server(("127.0.0.1", 0)) as other:
        box.write("other", str(other.getsockname()[1]))
        run = start(box, 3, "--survivor-grace=100")
        kill_last(box, 3)
        assert run.wait(60) == 128 + signal.SIGKILL, run
    assert [raised(box, rank) for rank in (0, 1)] == [["store", "other"]] * 2


def test_without_connections_nobody_is_waited_for(box):
    run = box.ctrun("--standalone", "--nproc-per-node=2", "--survivor-grace=1000", "--no-python", "sh", "-c",
                    'test $RANK = 0 && exec sleep 1000; exit 7', seconds=60)
    assert run.code == 7, run
    assert not box.events("survivors_freed")


def test_a_restart_follows_as_soon_as_the_survivors_have_ended(box):
    script = box.write("again.py", f"""
import os, runpy, sys
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    runpy.run_path({str(RING)!r}, run_name="__main__")
""")
    run = start(box, 3, "--survivor-grace=1000", "--max-restarts=1", script=script)
    kill_last(box, 3)
    assert run.wait(60) == 0, run


def test_a_second_interrupt_does_not_wait_for_survivors(box):
    clock = Clock(box)
    box.env.update(clock.env)
    run = start(box, 3, "--survivor-grace=1000", "--shutdown-timeout=1000", words=["handle"])
    kill_last(box, 3, gone="")  # rank 2 never writes: the survivors never end
    box.wait_event("survivors_freed")
    run.signal(signal.SIGINT)
    box.wait_event("signal", signal=signal.SIGINT)
    clock.advance(0.25)  # two within 0.2 s count as one
    run.signal(signal.SIGINT)
    assert run.wait(60) == 128 + signal.SIGINT, run
    assert box.events("worker_ended", rank=0)[0]["code"] == signal.SIGKILL, run


# Forbids the system call, as a container's profile does.
FORBID = """
import ctypes, os, struct, sys
rules = b"".join(struct.pack("HBBI", *rule) for rule in (
    (0x20, 0, 0, 0), (0x15, 0, 1, 438), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7fff0000)))
code = ctypes.create_string_buffer(rules)
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", 4, ctypes.addressof(code)))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0, ctypes.get_errno()
os.execv(sys.argv[1], sys.argv[1:])
"""
# A worker that nobody may trace.
HIDE = f"import ctypes, runpy; ctypes.CDLL(None).prctl(4, 0); runpy.run_path({str(RING)!r}, run_name='__main__')\n"


@pytest.mark.parametrize("how", ["seccomp", "dumpable"])
def test_a_kernel_that_refuses_is_named_once_and_all_is_as_without(box, how):
    command, script = [sys.executable, "-c", FORBID], RING
    if how == "dumpable":
        command = ["setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"]
        script = box.write("hide.py", HIDE)
        if subprocess.run([*command, "true"], capture_output=True).returncode:
            pytest.skip("setpriv may not take CAP_SYS_PTRACE here")
    run = start(box, 3, "--survivor-grace=1000", "--max-restarts=1", command=command, script=script)
    for restarts in range(2):
        kill_last(box, 3, restarts)
    assert run.wait(60) == 128 + signal.SIGKILL, run
    assert run.err.count("--survivor-grace: ranks that wait") == 1, run
    assert all(e["refused"] and e["connections"] == 0 for e in box.events("survivors_freed"))
    assert all(e["code"] == signal.SIGTERM for e in box.events("worker_ended", rank=0))


def test_a_negative_grace_is_refused(box):
    run = box.ctrun("--survivor-grace=-1", "true")
    assert run.code == 2 and "--survivor-grace=-1: 0 to" in run.err
