# SPDX-License-Identifier: Apache-2.0
"""Where a program of the SDK crashed: the report has the frames, without a core file or a debugger.
The program ends as it does without the report."""
import json
import os
import re
import signal
import subprocess

import ctrun
import pytest
import schema

pytestmark = pytest.mark.plain("sanitizers handle these signals themselves")

PLACE = [r"place\+0x[0-9a-f]+ \({0}\)", r"outer\+0x[0-9a-f]+ \({0}\)"]


def crash(box, how, program="crasher", *options, **more):
    return box.ctrun(*options, "--no-python", ctrun.program(program), how, **more)


def frames(run):
    return re.findall(r"^  (?:at|called by) *: (.*)$", run.err, re.M)


def fault(run):
    found = re.search(r"^  fault *: (.*)$", run.err, re.M)
    assert found, run
    return found.group(1)


def has_frames(run, *patterns):
    """These frames come next to each other, in this order."""
    found = frames(run)
    return any(all(re.fullmatch(pattern, frame) for pattern, frame in zip(patterns, found[at:]))
               for at in range(len(found) - len(patterns) + 1))


@pytest.mark.parametrize("how, name, why", [
    ("segv", "SEGV", "address 0x0: nothing is mapped there; in the main thread"),
    ("fpe", "FPE", r"address 0x[0-9a-f]+: integer division by zero; in the main thread"),
    ("ill", "ILL", r"address 0x[0-9a-f]+: no instruction of this processor; in the main thread"),
    ("abort", "ABRT", "raised by itself; in the main thread"),
    ("sent", "SEGV", "raised by itself; in the main thread"),
])
def test_a_crash_is_told_with_its_place_and_its_callers(box, how, name, why):
    run = crash(box, how)
    number = int(getattr(signal, f"SIG{name}"))
    assert run.code == 128 + number
    assert re.fullmatch(why, fault(run)), run
    assert has_frames(run, *(p.format("crasher") for p in PLACE), r"main\+0x[0-9a-f]+ \(crasher\)"), run
    ended = box.events("worker_ended")[0]
    assert (ended["cause"], ended["code"]) == ("signal", number)


def test_a_mapping_without_a_file_behind_it_is_told_as_such(box):
    run = crash(box, "bus")
    assert run.code == 128 + signal.SIGBUS
    assert "beyond the end of the mapped file, or its file system is full" in fault(run)
    assert has_frames(run, r"outer\+0x[0-9a-f]+ \(crasher\)"), run


def test_a_call_of_no_function_is_told_with_who_called_it(box):
    run = crash(box, "null")
    assert run.code == 139
    assert has_frames(run, r"0x0 \(there is no code\)", *(p.format("crasher") for p in PLACE)), run


@pytest.mark.parametrize("program", ["crasher", "crasher_static"])
def test_an_overflow_of_the_stack_is_told(box, program):
    run = crash(box, "overflow", program)
    assert run.code == 139
    assert fault(run).endswith(": the stack has overflowed; in the main thread")
    assert has_frames(run, rf"overflow\+0x[0-9a-f]+ \({program}\)",
                      rf"overflow\+0x[0-9a-f]+ \({program}\), 31 times or more"), run


@pytest.mark.parametrize("how, function, why", [
    ("thread", "place", "nothing is mapped there"),
    ("thread_overflow", "overflow", "the stack has overflowed"),
    ("both", "place", "nothing is mapped there"),
])
def test_the_thread_that_crashed_is_the_one_that_is_told(box, how, function, why):
    run = crash(box, how)
    assert run.code == 139
    assert re.search(rf": {why}; in thread \d+ \(loader\)$", fault(run)), run
    assert has_frames(run, rf"{function}\+0x[0-9a-f]+ \(crasher\)"), run


@pytest.mark.parametrize("how, function", [("torn", "tear"), ("lost", "lose")])
def test_a_stack_that_nobody_can_follow_leaves_the_place_itself(box, how, function):
    # With "lost" the unwinder crashes; the handler still does what comes after it.
    run = crash(box, how)
    assert run.code == 139
    assert re.match(rf"{function}\+0x[0-9a-f]+ \(crasher\)$", frames(run)[0]), run


def test_a_static_program_has_frames(box):
    run = crash(box, "segv", "crasher_static")
    assert has_frames(run, *(p.format("crasher_static") for p in PLACE)), run


def test_a_stripped_program_has_addresses_that_addr2line_understands(box):
    run = crash(box, "segv", "crasher_stripped")
    found = re.fullmatch(r"crasher_stripped\+(0x[0-9a-f]+)", frames(run)[0])
    assert found, run
    symbols = subprocess.run(["nm", ctrun.program("crasher")], capture_output=True, text=True)
    if symbols.returncode:
        pytest.skip("no nm here")
    places = {name: int(value, 16) for value, _, name in
              (line.split() for line in symbols.stdout.splitlines() if len(line.split()) == 3)}
    # Both programs differ only in their symbols: the addresses are the same.
    assert places["place"] <= int(found.group(1), 16) < places["outer"]


def test_a_child_of_a_worker_may_crash_and_is_nobodys_record(box):
    run = crash(box, "child")
    assert run.code == 5  # the worker's own exit code
    assert not frames(run)


@pytest.mark.parametrize("how", ["handled", "later", "replaced"])
def test_a_handler_of_the_program_is_never_replaced(box, how):
    run = crash(box, how)
    assert run.code == 7
    assert not frames(run)


def test_after_the_session_signals_are_as_before(box):
    run = crash(box, "closed")
    assert run.code == 139
    assert not frames(run)


def test_it_can_be_turned_off(box):
    run = crash(box, "segv", env={"CTRUN_CRASH_REPORT": "0"})
    assert run.code == 139
    assert not frames(run)


def test_a_wrong_value_is_refused_with_the_right_ones(box):
    run = crash(box, "segv", env={"CTRUN_CRASH_REPORT": "yes"})
    assert run.code == 1
    assert "CTRUN_CRASH_REPORT=yes: must be 1 (report to the agent where this process crashed) or 0" in run.err


def test_a_worker_below_a_shell_is_told_too(box):
    run = box.start_ctrun("--no-python", "sh", "-c", f"{ctrun.program('crasher')} segv go; exit $?")
    # When the shell reaps a process before the agent sees its connection, the agent can not tell it
    # from a process outside of the run.
    ctrun.wait_until(lambda: '"step":1,' in box.run(ctrun.program("ctrunctl"), "status", "--json").out,
                     "the agent has heard of it")
    box.write("go", "")
    assert run.wait() == 139
    assert fault(run).endswith(" of a process that it started")
    assert has_frames(run, *(p.format("crasher") for p in PLACE)), run


def crash_records(pid):
    """How many crash records this process has open."""
    found = 0
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            found += "ctrun-crash" in os.readlink(f"/proc/{pid}/fd/{fd}")
        except FileNotFoundError:
            pass  # closed meanwhile
    return found


def test_of_many_crashes_below_one_worker_the_last_is_kept(box):
    crasher = ctrun.program("crasher")
    run = box.start_ctrun("--no-python", "sh", "-c", f"for i in 1 2 3; do {crasher} abort go$i; done;"
                          f" {crasher} segv go4; exit $?")
    agent = ctrun.parent_of(box.wait_workers(1)[0])

    def is_there(i):  # and has sent its record
        pids = [pid for pid in box.pids() if ctrun.cmdline(pid)[-1:] == [f"go{i}"]]
        return pids and crash_records(pids[0]) > 0 and crash_records(agent) == min(i, 2)

    for i in (1, 2, 3, 4):
        ctrun.wait_until(lambda: is_there(i), lambda: f"{i}: {crash_records(agent)} records\n{run}")
        box.write(f"go{i}", "")
    assert run.wait() == 139
    assert "address 0x0: nothing is mapped there" in fault(run)


def test_programs_find_the_frames_in_event_and_summary(box):
    folder = box.path("logs")
    run = box.ctrun("--log-dir", str(folder), "--nproc-per-node=2", "--no-python",
                    ctrun.program("crasher"), "segv")
    assert run.code == 139
    event = box.events("worker_crashed")[0]
    schema.check(event, "events")
    assert event["signal"] == signal.SIGSEGV and event["worker_pid"] == event["crashed_pid"]
    assert [frame.split("+")[0] for frame in event["frames"][:3]] == ["place", "outer", "main"]
    assert event["address"] == "0x0" and event["thread"] == event["crashed_pid"]
    summary = json.loads(next(folder.rglob("summary.json")).read_text())
    labels = [fact["label"] for fact in summary["failures"][0]["facts"]]
    assert labels.count("at") == 1 and labels.count("called by") >= 2


def test_a_crash_leaves_the_core_file_that_it_would_leave(box):
    pattern = open("/proc/sys/kernel/core_pattern").read().strip()
    if pattern.startswith(("|", "/")):
        pytest.skip(f"core files do not go to the working directory here: {pattern}")
    run = crash(box, "segv", "crasher", "--core")
    core = re.search(r"^  core *: (/.*)$", run.err, re.M)
    if not core:
        pytest.skip("core files are forbidden here (ulimit -Hc 0)")
    gdb = subprocess.run(["gdb", "-batch", "-ex", "bt", ctrun.program("crasher"), core.group(1)],
                         capture_output=True, text=True) if os.path.exists("/usr/bin/gdb") else None
    if gdb:  # the registers of the crash, not those of a handler
        assert re.search(r"#0 .* place ", gdb.stdout), gdb.stdout
    assert os.path.getsize(core.group(1)) > 0
