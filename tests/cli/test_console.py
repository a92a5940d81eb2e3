# SPDX-License-Identifier: Apache-2.0
"""Runs without a temporary directory, with a console that nobody reads or that is full, or with a
pipe for events that nobody reads."""
import json
import os
import re
import signal
import subprocess

import ctrun
import launch
import pytest
from clock import Clock
from terminal import Terminal


def test_events_for_a_pipe_that_nobody_reads_are_left_out(box):
    os.mkfifo(box.path("pipe"))
    run = box.ctrun("--nproc-per-node=2", "echo", "hello", env={"CTRUN_EVENTS": str(box.path("pipe"))})
    assert run.code == 0 and run.out == "hello\nhello\n", run
    assert run.err.count("ctrun: warning: CTRUN_EVENTS=") == 1, run
    assert "pipe: no process reads this pipe; events are not written\n" in run.err, run


def test_a_reader_of_events_that_goes_away_ends_nothing(box):
    os.mkfifo(box.path("pipe"))
    reader = os.open(box.path("pipe"), os.O_RDONLY | os.O_NONBLOCK)
    run = box.start_ctrun("--nproc-per-node=2", ctrun.program("victim"), "touch", "up%r", "await", "go",
                          "exit", "3", env={"CTRUN_EVENTS": str(box.path("pipe"))})
    ctrun.wait_until(lambda: len(list(box.dir.glob("up?"))) == 2, lambda: str(run))
    os.close(reader)
    box.path("go").touch()
    assert run.wait() == 3, run


def test_a_message_begins_a_line_after_the_unfinished_one_of_a_worker(box):
    run = box.ctrun("--nproc-per-node=2", "--max-restarts=1", "sh", "-c",
                    "[ $RANK = 1 ] && exec sleep 60; printf 'no end' >&2; exit 3")
    assert run.code == 3, run
    assert "no end\nctrun: restart 1/1: " in run.err and "no end\nctrun: error[E_EXIT]: " in run.err, run


@pytest.mark.parametrize("closed", ["2>&-", ">&-", "<&- >&- 2>&-"])
def test_without_standard_streams_no_other_file_gets_what_is_printed(box, closed):
    """The file of the events is opened next: it would get the number of the closed stream."""
    run = box.run("sh", "-c", f'exec "$@" {closed}', "sh", ctrun.program("ctrun"), "--nproc-per-node=2",
                  "sh", "-c", "echo out; echo err >&2; exit 3")
    assert run.code == 3 and box.events("verdict"), run


@pytest.mark.parametrize("program, words", [("ctrun", ["--help"]), ("ctrund", ["--help"]), ("ctrund", ["--version"]),
                                            ("ctrunctl", ["--version"]), ("ctrunctl", ["status", "--help"])])
def test_what_cannot_be_printed_is_an_error_with_its_reason(box, program, words):
    run = box.run("sh", "-c", 'exec "$@" >/dev/full', "sh", ctrun.program(program), *words)
    assert run.code == 1 and run.err == f"{program}: error[E_RESOURCES]: standard output: No space left on device\n", run


@pytest.mark.parametrize("is_ignored", [False, True])
@pytest.mark.parametrize("program, words", [
    ("ctrun", ["--help"]), ("ctrun", ["--version"]), ("ctrun", ["--dry-run", "true"]), ("ctrun", ["--print-config", "true"]),
    ("ctrund", ["--help"]), ("ctrunctl", ["--help"]), ("ctrunctl", ["status", "--help"])])
def test_what_nobody_reads_ends_quietly_by_sigpipe(program, words, is_ignored):
    """Python ignores SIGPIPE, and restores it for a child unless restore_signals is false."""
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as pipe:
        run = subprocess.run([ctrun.program(program), *words], stdout=pipe, stderr=subprocess.PIPE,
                             restore_signals=not is_ignored, env={"PATH": os.environ["PATH"]}, timeout=60, check=False)
    assert (run.returncode, run.stderr) == (-signal.SIGPIPE, b"")


@pytest.mark.parametrize("words", [[], ["--nproc-per-node=2"]])
def test_without_a_temporary_directory_workers_run_and_get_no_error_file(box, words):
    dump = launch.Dump(box)
    run = box.ctrun(*words, dump.program, env={**dump.env, "TMPDIR": "/proc"})
    assert run.code == 0, run
    assert {e["TORCHELASTIC_ERROR_FILE"] for e in dump.environments().values()} == {""}
    assert run.err.count("ctrun: warning: workers get no error file: log directory /proc/") == 1, run


def test_without_a_temporary_directory_a_failure_is_told(box):
    run = box.ctrun("--nproc-per-node=2", "sh", "-c", "echo last words >&2; exit 3",
                    env={"TMPDIR": "/proc"})
    assert run.code == 3 and "error[E_EXIT]: rank" in run.err and "last words" in run.err, run


def test_without_a_temporary_directory_files_that_were_asked_for_are_refused(box):
    run = box.ctrun("-t1", "true", env={"TMPDIR": "/proc"})
    assert run.code == 1 and "could not be started: log directory /proc/" in run.err, run


def test_a_temporary_directory_that_does_not_exist_is_replaced_by_tmp(box):
    run = box.ctrun("--nproc-per-node=2", "sh", "-c", "dirname $TORCHELASTIC_ERROR_FILE > base.$RANK",
                    env={"TMPDIR": "/nonexistent"})
    assert run.code == 0 and run.err.count("TMPDIR=/nonexistent does not exist on ") == 1, run
    assert {box.path(f"base.{rank}").read_text().split("_")[0] for rank in "01"} == {"/tmp/torchelastic"}


SECRETS = "echo before; echo HF_TOKEN=swordfish https://bob:hunter2@host/ key=3 >&2; exit 3"


def test_secrets_of_a_failed_worker_are_in_no_report(box):
    run = box.ctrun("--nproc-per-node=2", "--log-dir=D", "sh", "-c", SECRETS)
    report = run.err[run.err.index("ctrun: error["):]
    assert run.code == 3 and "HF_TOKEN=*** https://bob:***@host/ key=3" in report, run
    assert "swordfish" not in report and "hunter2" not in report, run
    assert "HF_TOKEN=swordfish https://bob:hunter2@host/" in run.err, "the worker's own output is kept"
    [path] = box.dir.glob("D/*/summary.json")
    assert "HF_TOKEN=***" in path.read_text() and "swordfish" not in path.read_text()


def test_secrets_of_an_error_file_are_in_no_report(box):
    words = "ValueError: no access with " + "x" * 3000 + " API_KEY=swordfish " + "y" * 3000
    box.write("fail.sh", "printf '%s' '" + json.dumps({"message": {"message": words, "extraInfo": {
        "py_callstack": words, "timestamp": "1"}}}) + "' > $TORCHELASTIC_ERROR_FILE; exit 3", 0o755)
    run = box.ctrun("--event-log-handler=console", "sh", "fail.sh", env={"TORCHELASTIC_ERROR_FILE": str(box.path("own"))})
    assert run.code == 3 and "API_KEY=***" in run.err and "swordfish" not in run.err, run
    assert "raw_error" in run.err and json.loads(box.path("own").read_text())["message"]["message"] == words.replace("swordfish", "***")


def test_secrets_are_shown_when_the_user_says_so(box):
    run = box.ctrun("--nproc-per-node=2", "--log-dir=D", "--redact=off", "sh", "-c", SECRETS)
    assert "swordfish" in run.err[run.err.index("ctrun: error["):], run


def test_settings_are_printed_without_secrets(box):
    words = ["--role=db=1:sh --password=hunter2", "--print-config"]
    run = box.ctrun(*words)
    assert run.code == 0 and "--password=***" in run.out and "hunter2" not in run.out, run
    assert "hunter2" in box.ctrun(*words, env={"CTRUN_REDACT": "off"}).out


TWO_NODES = ["--nnodes=2", "--nproc-per-node=1", "--rdzv-id=exp"]


def two_nodes(box, *words, env=None):
    """Runs two nodes on this machine; returns them when they have ended, first the one that named
    the run."""
    meet = [*TWO_NODES, f"--rdzv-endpoint=127.0.0.1:{launch.free_port()}", *words]
    runs = [box.start_ctrun(*meet, env=env) for _ in range(2)]
    for run in runs:
        run.wait()
    return sorted(runs, key=lambda run: "ctrun: run 'exp'" not in run.err)


def test_a_run_of_several_nodes_tells_once_how_to_see_it(box):
    first, other = two_nodes(box, "true")
    assert first.err.count("ctrun: run 'exp': 2 nodes, 1+1 = 2 workers; ctrunctl status shows it\n") == 1
    assert "ctrunctl status" not in other.err, other


def test_a_run_in_a_job_of_slurm_is_seen_by_srun(box):
    first, _ = two_nodes(box, "true", env={"SLURM_JOB_ID": "18", "SLURMD_NODENAME": "n7"})
    assert "; srun --jobid=18 --overlap -N1 -n1 -w n7 ctrunctl status shows it\n" in first.err, first


def test_quiet_leaves_warnings_and_errors_only(box):
    for run in two_nodes(box, "--quiet", "sh", "-c", "exit 3"):
        assert run.code == 3 and "ctrun: error[E_EXIT]: " in run.err, run
        assert "ctrunctl status" not in run.err and "waiting" not in run.err, run
    run = box.ctrun("-q", "true", env={"TMPDIR": "/nonexistent"})
    assert run.err.startswith("ctrun: warning: "), run


def test_a_run_on_a_terminal_tells_how_to_see_it_and_one_in_a_pipe_is_quiet(box):
    line = f"{ctrun.program('ctrun')} --nproc-per-node=2 --rdzv-id=exp --standalone true"
    assert "2 workers; ctrunctl status shows it" in box.run("script", "-qec", line, "/dev/null").out
    assert box.run(*line.split()).err == ""


def test_own_lines_have_the_time_when_asked_and_workers_lines_have_not(box):
    run = box.ctrun("--timestamps", "--nproc-per-node=2", "sh", "-c", "echo hello; exit 3")
    stamp = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d{4} ctrun: error\[E_EXIT\]: "
    assert run.code == 3 and re.search(stamp, run.err, re.M), run
    assert re.search("^torch.distributed.elastic", run.err, re.M), run
    assert set(run.out.splitlines()) == {"hello"}, run


def test_a_line_without_end_is_shown_and_goes_on_with_its_prefix(box):
    run = box.start_ctrun("--nproc-per-node=2", "-t3", "--log-dir=D", "--duplicate-stdout-filters=name", ctrun.program("victim"),
                          "@0", "write", "name? ", "await", "go", "write", "bob\\n",
                          "@1", "await", "other", "write", "hello\\n", "await", "go")
    ctrun.wait_until(lambda: run.out == "[default0]:name? ", lambda: str(run))
    box.path("other").touch()
    ctrun.wait_until(lambda: run.out == "[default0]:name? \n[default1]:hello\n", lambda: str(run))
    box.path("go").touch()
    assert run.wait() == 0
    assert run.out == "[default0]:name? \n[default1]:hello\n[default0]:bob\n", run
    [path] = box.dir.glob("D/*/attempt_0/0/stdout.log")
    assert path.read_text() == "name? bob\n"
    [path] = box.dir.glob("D/*/attempt_0/filtered_stdout.log")
    assert path.read_text() == "[default0]:name? bob\n", "of whole lines"


def test_a_line_that_nobody_interrupts_goes_on_where_it_was(box):
    run = box.start_ctrun("--nproc-per-node=2", ctrun.program("victim"), "@0", "write", "Loading... ",
                          "await", "go", "write", "done\\n", "@1", "await", "go")
    ctrun.wait_until(lambda: run.out == "Loading... ", lambda: str(run))
    box.path("go").touch()
    assert run.wait() == 0 and run.out == "Loading... done\n", run


FAIL = ["sh", "-c", "[ $RANK = 1 ] && { echo last words >&2; exit 3; }; exec sleep 60"]


def test_one_node_reports_a_failure_and_the_others_name_it(box):
    runs = two_nodes(box, *FAIL)
    assert [run.code for run in runs] == [3, 3], runs
    [other] = [run for run in runs if "Root Cause" not in run.err]
    [reporter] = [run for run in runs if "Root Cause" in run.err]
    assert "last words" in reporter.err, reporter
    line = re.search(r"^ctrun: error\[E_EXIT\]: rank 1 .*\n", reporter.err, re.M)[0]
    assert other.err.endswith(line) and other.err.count("\n  ") == 0, other


def test_a_report_in_a_pipe_ends_with_torchruns_table(box):
    run = box.ctrun("--nproc-per-node=8", *FAIL)
    assert run.err.endswith("=\n") and "SIGTERM" not in run.err, run
    assert "\n  7 other ranks were stopped by ctrun: 0, 2-7\n" in run.err, run
    whole = box.ctrun("--nproc-per-node=8", "--summary=torchrun", *FAIL)
    assert whole.err.count("  exitcode  : -15 ") == 7, whole
    short = box.ctrun("--nproc-per-node=8", "--summary=short", *FAIL)
    assert "ChildFailedError" not in short.err and "stopped by ctrun" in short.err, short


TRACEBACK = "import os\n" + "".join(f"def f{i}(): f{i + 1}()\n" for i in range(5)) + """
def f5():
    raise ValueError("boom")
if os.environ["RANK"] == "1": f0()
__import__("signal").pause()
"""


def test_on_a_terminal_the_cause_comes_last_and_whole(box):
    box.write("fail.py", TRACEBACK)
    run = Terminal(box, "--nproc-per-node=8", f"{box.dir}/fail.py")
    assert run.wait() == 1
    report = run.text[run.text.index("ctrun: error[E_EXIT]: rank 1 "):]
    assert "ChildFailedError" not in run.text and len(report.splitlines()) < 30, run.text
    assert all(f"in f{i}" in report for i in range(6)) and "ValueError: boom" in report, report


def test_a_single_workers_exception_is_in_the_report_where_stderr_is_a_file_of_its_own(box):
    box.write("fail.py", TRACEBACK.replace('"1"', '"0"'))
    run = box.ctrun("--log-dir=D", box.path("fail.py"))
    report = run.err[run.err.index("ctrun: error[E_EXIT]: rank 0 "):]
    assert "ValueError: boom" in report.splitlines()[0] and "\n  raised " in report, run
    [path] = box.path("D").rglob("summary.json")
    assert "ValueError: boom" in path.read_text()


def test_a_single_worker_has_one_file_for_both_streams_itself_so_that_their_order_stays(box):
    words = [ctrun.program("ctrun"), "--no-python", "readlink", "/proc/self/fd/1", "/proc/self/fd/2"]
    out, err = box.run("sh", "-c", '"$@" 2>&1 | cat', "sh", *words).out.splitlines()
    assert out == err
    out, err = box.run(*words).out.splitlines()  # files of their own
    assert not out.startswith("pipe:") and err.startswith("pipe:")
    reader, writer = os.pipe()  # whoever reads it may read stdout, too
    own = os.readlink(f"/proc/self/fd/{writer}")
    run = box.run("sh", "-c", f'exec "$@" 2>/dev/fd/{writer}', "sh", *words, fds=(writer,))
    os.close(reader)
    os.close(writer)
    assert run.out.splitlines()[1] == own, run


TURNS = """import os, sys
rank = os.environ["RANK"]
for i in range(0, 3000, 2):
    print(rank, i)
    print(rank, i + 1, file=sys.stderr)
"""


def test_the_streams_of_one_python_worker_of_several_keep_their_order_in_one_file(box):
    run = box.run("sh", "-c", '"$@" 2>&1 | cat', "sh", ctrun.program("ctrun"), "--nproc-per-node=2",
                  box.write("turns.py", TURNS))
    lines = [line.split() for line in run.out.splitlines()]
    for rank in "01":
        assert [int(number) for of, number in lines if of == rank] == list(range(3000)), f"rank {rank}"


HANDLES = """import os, sys, traceback
if os.environ["RANK"] == "1":
    try:
        raise ValueError("bad mesh")
    except ValueError:
        traceback.print_exc()
    print("cleaning up")
    sys.exit(3)
"""


def test_the_exception_of_a_python_worker_is_reported_though_a_line_to_the_same_pipe_follows(box):
    run = box.run("sh", "-c", '"$@" 2>&1 | cat', "sh", ctrun.program("ctrun"), "--nproc-per-node=2", "--summary=short",
                  box.write("handles.py", HANDLES))
    assert "rank 1 " in run.out and ": ValueError: bad mesh" in run.out, run


def test_the_error_of_a_native_worker_is_reported_though_it_writes_other_output_after_it(box):
    """As a C program does whose standard output is buffered until it ends."""
    run = box.run("sh", "-c", '"$@" 2>&1 | cat', "sh", ctrun.program("ctrun"), "--nproc-per-node=2", "--summary=short",
                  "--no-python", "sh", "-c", "echo 'fatal: no such mesh' >&2; seq 100; exit 3")
    assert "last lines : fatal: no such mesh" in run.out, run


def stop_unread(box):
    """A run below a console that nobody reads, all of whose workers have ended by SIGTERM, and what reads it."""
    reader, writer = ctrun.full_pipe()
    box.write("job.sh", "trap 'touch saved$RANK; exit 0' TERM; touch up$RANK; while :; do sleep 0.02; done")
    process = subprocess.Popen([ctrun.program("ctrun"), "--nproc-per-node=2", "sh", "job.sh"], stdout=writer, stderr=writer,
                               stdin=subprocess.DEVNULL, env=box.env, cwd=box.dir)
    os.close(writer)
    ctrun.wait_until(lambda: len(list(box.dir.glob("up?"))) == 2, "the workers")
    process.send_signal(signal.SIGTERM)
    ctrun.wait_until(lambda: len(list(box.dir.glob("saved?"))) == 2, "their end")
    return process, reader


def test_messages_that_nobody_reads_yet_hold_up_nothing_and_are_shown_later(box):
    process, reader = stop_unread(box)
    with open(reader) as file:
        text = file.read().replace("x\n", "")
    assert process.wait() == 143
    assert text.startswith("ctrun: SIGTERM from pid ") and text.endswith("all workers are gone\n"), text


def test_a_signal_ends_a_run_whose_messages_nobody_reads(box):
    process, reader = stop_unread(box)
    ctrun.wait_until(lambda: process.poll() is not None, "the end", 60)
    os.close(reader)
    assert process.returncode == 143


def test_who_presses_ctrl_c_again_does_not_wait_long_for_a_reader_that_reads_nothing(box):
    clock = Clock(box)
    box.env.update(clock.env)
    reader, writer = ctrun.full_pipe()
    box.write("job.sh", "trap 'touch got$RANK' INT; trap 'exit 0' TERM; echo x; touch up$RANK; while :; do sleep 0.02; done")
    process, err = start_to(box, writer, "--nproc-per-node=2", "sh", "job.sh")
    os.close(writer)
    for sign in ("up", "got"):
        ctrun.wait_until(lambda: len(list(box.dir.glob(f"{sign}?"))) == 2, lambda: f"{sign}: {err.read_text()}")
        clock.advance(0.25)  # two within 0.2 s count as one
        process.send_signal(signal.SIGINT)
    code, text = end_of(process, err)
    os.close(reader)
    assert code == 130 and re.search(LOST + r"nobody has read it for [2-9] s\n", text), text


LOST = "ctrun: warning: standard output cannot be written any more: "
WRITE = "import os, sys\nwhile True:\n    os.write(1, b'a line\\n')\n"


def start_to(box, out, *words):
    """ctrun with this standard output, and the file of its standard error."""
    box.write("write.py", WRITE)
    with open(box.path("err"), "wb") as err:
        return subprocess.Popen([ctrun.program("ctrun"), *words], stdout=out, stderr=err,
                                stdin=subprocess.DEVNULL, env=box.env, cwd=box.dir), box.path("err")


def end_of(process, err):
    ctrun.wait_until(lambda: process.poll() is not None, lambda: f"the end after {err.read_text()}")
    return process.returncode, err.read_text()


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("program, code", [(["sh", "-c", "while :; do echo x; done"], 141),
                                           (["python3", "write.py"], 1)])
def test_a_reader_that_goes_away_ends_workers_as_it_would_without_ctrun(box, workers, program, code):
    process, err = start_to(box, subprocess.PIPE, f"--nproc-per-node={workers}", *program)
    process.stdout.readline()
    process.stdout.close()
    found, text = end_of(process, err)
    assert found == code and text.count(LOST + "Broken pipe\n") == 1, text
    assert "SIGPIPE" in text or "BrokenPipeError" in text, text


@pytest.mark.parametrize("workers", [1, 2])
def test_a_full_disk_below_standard_output_ends_workers_with_an_error(box, workers):
    with open("/dev/full", "wb") as full:
        process, err = start_to(box, full, f"--nproc-per-node={workers}", "python3", "write.py")
    found, text = end_of(process, err)
    assert found == 1 and "ctrun: error[E_EXIT]: rank " in text, text
    assert workers == 1 or text.count(LOST + "No space left on device\n") == 1, text


def test_with_log_files_a_run_goes_on_when_nobody_reads_the_console(box):
    process, err = start_to(box, subprocess.PIPE, "--nproc-per-node=2", "-t3", "--log-dir=D", ctrun.program("victim"),
                            "write", "one\\n", "await", "go", "write", "two\\n")
    process.stdout.readline()
    process.stdout.close()
    box.path("go").touch()
    found, text = end_of(process, err)
    assert found == 0 and text.count(LOST) == 1, text
    assert [path.read_text() for path in box.dir.glob("D/*/attempt_0/*/stdout.log")] == ["one\ntwo\n"] * 2


def test_a_report_that_nobody_reads_changes_neither_exit_code_nor_summary(box):
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.Popen([ctrun.program("ctrun"), "--nproc-per-node=2", "--log-dir=D", "sh", "-c", "exit 3"],
                               stdout=writer, stderr=writer, stdin=subprocess.DEVNULL, env=box.env, cwd=box.dir)
    os.close(writer)
    ctrun.wait_until(lambda: process.poll() is not None, "the end")
    assert process.returncode == 3
    [path] = box.dir.glob("D/*/summary.json")
    assert json.loads(path.read_text())["exit_code"] == 3
