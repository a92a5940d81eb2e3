# SPDX-License-Identifier: Apache-2.0
"""Failures and restarts: exit codes, summaries, error files."""
import json
import re
import sys

import ctrun
import launch
import pytest

HINT = "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"


def test_torchrun_081_the_exit_code_is_the_workers(box):
    run = box.ctrun("sh", "-c", "exit 3")
    assert run.code == 3
    assert "ctrun: error[E_EXIT]: rank 0 (" in run.err and " exited with 3" in run.err
    assert re.search(r"^  exitcode  : 3 \(pid: \d+\) ?$", run.err, re.M)
    assert box.ctrun("--exit-code=torchrun", "sh", "-c", "exit 3").code == 1
    assert box.ctrun("sh", "-c", "exit 3", env={"CTRUN_EXIT_CODE": "torchrun"}).code == 1


def test_torchrun_082_140_a_death_by_signal_is_named(box):
    run = box.ctrun("sh", "-c", "kill -SEGV $$$$")
    assert run.code == 139
    assert "ctrun: error[E_SIGNAL]: rank 0 (" in run.err and "died of SIGSEGV (11)" in run.err
    assert re.search(r"^  exitcode  : -11 \(pid: \d+\)  \(SIGSEGV\)$", run.err, re.M)
    assert re.search(r"^  traceback : Signal 11 \(SIGSEGV\) received by PID \d+$", run.err, re.M)


def test_torchrun_083_the_first_failure_stops_the_others(box):
    run = box.ctrun("--nproc-per-node=3", "--shutdown-timeout=1", "sh", "-c",
                    "if [ $RANK = 1 ]; then exit 7; fi; trap '' TERM; while :; do sleep 60; done")
    assert run.code == 7
    assert "error[E_EXIT]: rank 1 (" in run.err, run
    box.wait_gone()


def test_torchrun_084_restarts_are_used_up(box):
    run = box.ctrun("--max-restarts=2", "--min-uptime=0", "sh", "-c", "echo try $TORCHELASTIC_RESTART_COUNT; exit 5")
    assert run.code == 5
    assert run.out.split("\n")[:3] == ["try 0", "try 1", "try 2"]
    assert "restarts   : 2 of 2 used" in run.err
    assert "restart 1/2: rank 0" in run.err and "restart 2/2: rank 0" in run.err


def test_torchrun_085_one_restart_is_enough(box):
    run = box.ctrun("--max-restarts=1", "--nproc-per-node=2", "sh", "-c",
                    "exit $((RANK * (1 - TORCHELASTIC_RESTART_COUNT)))")
    assert run.code == 0, run


def test_torchrun_088_089_090_the_summary_has_torchruns_form(box):
    run = box.ctrun("sh", "-c", "exit 3")
    lines = run.err.splitlines()
    start = lines.index("torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ")
    assert re.fullmatch(r"failed \(exitcode: 3\) local_rank: 0 \(pid: \d+\) of binary: sh", lines[start - 1]), run
    block = lines[start + 1:]
    assert block[0] == "=" * 60 == block[-1]
    assert block[1] == "sh FAILED"
    assert block[2] == "-" * 60
    assert block[3:5] == ["Failures:", "  <NO_OTHER_FAILURES>"]
    assert block[6:8] == ["Root Cause (first observed failure):", "[0]:"]
    assert [line[:14] for line in block[8:14]] == [
        "  time      : ", "  host      : ", "  rank      : ", "  exitcode  : ", "  error_file: ",
        "  traceback : "]


ERROR = {"message": {"message": "ValueError: boom", "extraInfo": {
    "py_callstack": "Traceback (most recent call last):\n  here\nValueError: boom\n",
    "timestamp": "1795255662"}}}


def fail_with(box, text, *options, **how):
    box.write("error.json", text)
    return box.ctrun(*options, "sh", "-c", 'cp error.json "$TORCHELASTIC_ERROR_FILE"; exit 4', **how)


def test_torchrun_091_the_traceback_of_the_error_file_appears(box):
    run = fail_with(box, json.dumps(ERROR))
    assert run.code == 4
    assert ("  traceback : Traceback (most recent call last):\n    here\n  ValueError: boom\n"
            in run.err)
    assert re.search(r"^  error_file: /.*/attempt_0/0/error.json$", run.err, re.M)


def test_torchrun_092_the_flat_form_is_accepted(box):
    assert "  traceback : just text\n" in fail_with(box, '{"message": "just text"}').err


def test_torchrun_093_without_error_file_there_is_a_hint(box):
    run = box.ctrun("sh", "-c", "exit 1")
    assert "  error_file: <N/A>\n" in run.err and f"  traceback : {HINT}\n" in run.err


@pytest.mark.parametrize("text", ["", "{", "[]", '{"message": 7}'])
def test_torchrun_094_148_a_broken_error_file_does_no_harm(box, text):
    run = fail_with(box, text)
    assert run.code == 4 and "  exitcode  : 4 " in run.err


def test_torchrun_095_the_launchers_error_file_is_the_root_causes(box):
    run = fail_with(box, json.dumps(ERROR), env={"TORCHELASTIC_ERROR_FILE": str(box.path("own"))})
    assert run.code == 4
    own = json.loads(box.path("own").read_text())
    assert own["message"].pop("errorCode") == 4
    assert own == ERROR


def test_torchrun_096_the_launchers_error_file_names_the_signal(box):
    run = box.start_ctrun("sleep", "60", env={"TORCHELASTIC_ERROR_FILE": str(box.path("own"))})
    box.wait_event("worker_started")
    run.signal(15)
    assert run.wait() == 143
    assert "SIGTERM" in json.loads(box.path("own").read_text())["message"]["message"]


@pytest.mark.parametrize("option", ["--no-such-option", "--nnodes=0", "--nproc-per-node=many"])
def test_the_launchers_error_file_tells_of_a_wrong_option(box, option):
    run = box.ctrun(option, "true", env={"TORCHELASTIC_ERROR_FILE": str(box.path("own"))})
    assert run.code != 0, run
    assert json.loads(box.path("own").read_text())["message"]["message"] in run.err, run


def test_torchrun_097_an_early_zero_does_not_end_the_group(box):
    run = box.ctrun("--nproc-per-node=2", "sh", "-c",
                    "if [ $RANK = 0 ]; then touch done; exit 0; fi; "
                    "while [ ! -e done ]; do sleep 0.05; done; echo went on")
    assert run.code == 0 and run.out == "went on\n"


def test_torchrun_145_the_grace_time_holds_for_failures_and_restarts(box):
    run = box.ctrun("--nproc-per-node=2", "--shutdown-timeout=1", "--max-restarts=1", "sh", "-c",
                    "if [ $RANK = 1 ]; then exit 1; fi; trap '' TERM; while :; do sleep 60; done",
                    seconds=5)
    assert run.code == 1


def test_torchrun_146_a_grace_of_zero_kills_at_once(box):
    run = box.ctrun("--nproc-per-node=2", "--shutdown-timeout=0", "sh", "-c",
                    "if [ $RANK = 1 ]; then exit 1; fi; trap '' TERM; while :; do sleep 60; done",
                    seconds=5)
    assert run.code == 1 and "did not die" not in run.err and "UNKILLABLE" not in run.err


def test_a_rank_that_ends_by_itself_after_the_stop_keeps_its_exit_code(box):
    run = box.ctrun("--nproc-per-node=2", ctrun.program("victim"), "@1", "on", "TERM", "20",
                    "touch", "ready", "hang", "@0", "await", "ready", "exit", "3")
    assert run.code == 3
    assert re.search(r"rank      : 1 \(local_rank: 1\)\n  exitcode  : 20 \(pid: \d+\) \n", run.err), run


ZEROS = """
import sys
sys.stderr.buffer.write(b"Traceback (most recent call last):" + b"x" * 2013 + b"\\0\\n" + b" " * 2049 + b"\\nKeyError: \\0\\n")
sys.exit(1)
"""


def test_zeros_in_a_traceback_do_not_end_the_agent(box):
    run = box.ctrun("--nproc-per-node=2", sys.executable, "-c", ZEROS)
    assert run.code == 1, run
    assert "KeyError: ?\n" in run.err, run


def test_last_lines_of_the_output_are_shown(box):
    run = box.ctrun("--nproc-per-node=2", "sh", "-c",
                    "echo rank $RANK says why >&2; [ $RANK = 0 ] || exit 9; sleep 60")
    assert run.code == 9
    assert "  last lines : rank 1 says why\n" in run.err, run


@pytest.mark.parametrize("words", [["no-such-program"], ["--no-python", "no-such-program"],
                                   ["no/such/train.py"]])
def test_a_missing_program_is_refused_with_127_before_the_start(box, words):
    run = box.ctrun(*words)
    assert run.code == 127
    assert run.err.startswith(f"ctrun: error[E_EXEC]: {words[-1]}: no such file")
    assert len(run.err.splitlines()) == 1


def test_a_program_that_cannot_be_executed_ends_with_126(box):
    box.write("data", "no program")
    run = box.ctrun("--no-python", "./data")
    assert run.code == 126 and "error[E_EXEC]" in run.err, run


MANY = """
if [ $RANK = 5 ]; then
    until [ "$(grep -c '"worker_started"' "$CTRUN_EVENTS")" = 36 ]; do sleep 0.05; done
    exit 7
fi
exec sleep 600
"""


def test_failures_beyond_a_report_are_counted_over_all_nodes(box):
    """3 nodes of 12 ranks: one fails, the other 35 are stopped for it, and a report lists 16."""
    port = launch.free_port()
    runs = [box.start_ctrun("--nnodes=3", f"--rdzv-endpoint=localhost:{port}", "--nproc-per-node=12",
                            "--shutdown-timeout=5", "--no-python", "sh", "-c", MANY) for _ in range(3)]
    assert [run.wait(60) for run in runs] == [7, 7, 7], runs
    told = [re.search(r"  after it   : ranks ([0-9, -]+) and (\d+) more stopped by ctrun\n", run.err)
            for run in runs]
    found = [match for match in told if match]
    assert len(found) == 1 and found[0].group(2) == "20", runs
