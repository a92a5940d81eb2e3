# SPDX-License-Identifier: Apache-2.0
"""The test library itself: it finds what it must find."""
import os
import signal
import sys

import ctrun
import pytest

ORPHAN = ("import os, signal, time\n"
          "if os.fork() == 0:\n"
          "    os.setsid()\n"
          "    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
          "    if os.fork() == 0:\n"
          "        print('orphan', flush=True)\n"
          "        signal.pause()\n"
          "    os._exit(0)\n")


def test_a_double_forked_orphan_is_found_by_its_mark():
    box = ctrun.Box()
    run = box.run(ctrun.DEBIAN_PYTHON, "-c", ORPHAN)
    ctrun.wait_until(lambda: "orphan" in run.out, "the orphan runs")
    ctrun.wait_until(lambda: len(box.pids()) == 1, "its parent is gone")
    complaints = box.close()
    assert len(complaints) == 1 and "processes survive" in complaints[0]
    assert ctrun.pids_marked(box.mark) == []


def test_a_process_is_found_while_it_executes_another_program(box):
    box.write("again", '[ $1 -lt 500 ] && exec sh again $(($1 + 1))\nexec cat end\n')
    os.mkfifo(box.path("end"))
    run = box.start("sh", "again", "0")
    while "cat" not in ctrun.describe([run.pid]):
        assert run.pid in box.pids()
    box.path("end").write_text("")
    assert run.wait() == 0


def test_exit_codes_are_those_of_a_shell(box):
    assert box.run("sh", "-c", "exit 3").code == 3
    assert box.run("sh", "-c", "kill -9 $$").code == 128 + signal.SIGKILL


def test_a_deadline_that_passes_says_what_did_not_happen():
    with pytest.raises(AssertionError, match="not within .* pigs fly"):
        ctrun.wait_until(lambda: False, "pigs fly", 0.01)


def test_a_leftover_in_shared_memory_is_a_complaint(tmp_path):
    box = ctrun.Box(shm=str(tmp_path))  # other tests look at the real one
    (tmp_path / "ctrun-selftest").touch()
    complaints = box.close()
    assert complaints and "selftest" in complaints[0]


def test_what_is_started_ignores_no_signal_that_the_tests_were_started_to_ignore(box):
    """As by nohup, and in the background of a shell."""
    script = ctrun.ROOT / "tests/proc/test_worker.py"
    run = box.run("sh", "-c", "trap '' HUP INT; exec \"$@\"", "sh", sys.executable, "-B", "-m", "pytest", "-q", script,
                  "-k", "test_ignored_sighup", env={"CTRUN_BUILD": str(ctrun.BUILD)})
    assert run.code == 0 and "1 passed" in run.out, run


def test_half_written_events_are_not_read(box):
    box.events_path.write_text('{"event":"a","n":1}\n{"event":"b"')
    assert [event["event"] for event in box.events()] == ["a"]
    assert box.events("a", n=2) == []
