# SPDX-License-Identifier: Apache-2.0
"""Why a worker ended, with the proof: memory, signals, crashes, programs that never really started,
and failures that are not worth a restart. T01 to T03 and T24 are the numbers of fault tests."""
import json
import os
import pathlib
import re
import resource
import signal
import sys
import time
import urllib.request

import ctrun
import launch
import pytest
import schema

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "proc"))

from test_memory import LIMIT_BYTES, small_group  # noqa: E402,F401  (a fixture)

# A node that is paused for some seconds is not lost.
TWO = ["--nnodes=2", "--rdzv-conf=keep_alive_interval=20"]
# Failures that are closer together have no certain order: 0.1 s and a round trip, which a busy machine makes long.
IN_DOUBT_S = 3
CRASHES = {
    "SEGV": "import ctypes; ctypes.string_at(0)",
    "ABRT": "import os; os.abort()",
    "FPE": "import signal; signal.raise_signal(signal.SIGFPE)",
    "BUS": "import mmap, os\n"
           "file = open('mapped', 'w+b'); file.truncate(4096)\n"
           "memory = mmap.mmap(file.fileno(), 4096); file.truncate(0); memory[0]",
}


def fact(run, label):
    """The text after a label of our report."""
    found = re.search(rf"^  {label} *: (.*)$", run.err, re.M)
    assert found, f"no '{label}' in\n{run}"
    return found.group(1)


def head(run):
    return next(line for line in run.err.splitlines() if line.startswith("ctrun: error["))


def test_of_workers_that_end_while_the_agent_has_no_time_the_first_is_the_cause(box):
    def state(pid):
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]

    run = box.start_ctrun("--nproc-per-node=2", "sh", "-c",
                          "touch up$RANK; while [ ! -e go$RANK ]; do sleep 0.05; done; exit $((5 + RANK))")
    for rank in (0, 1):
        ctrun.wait_until(box.path(f"up{rank}").exists, f"rank {rank} is up")
    started = box.wait_event("worker_started", count=2)
    agent = started[0]["pid"]
    os.kill(agent, signal.SIGSTOP)
    ctrun.wait_until(lambda: state(agent) == "T", "the agent is stopped")
    workers = {e["rank"]: e["worker_pid"] for e in started}
    for rank in (1, 0):
        box.path(f"go{rank}").touch()
        ctrun.wait_until(lambda: state(workers[rank]) == "Z", f"rank {rank} has ended")
    os.kill(agent, signal.SIGCONT)
    assert run.wait() == 6 and "E_EXIT]: rank 1 (" in head(run), run


def test_t01_the_oom_killers_victim_is_told_with_limit_and_proof(box, small_group):  # noqa: F811
    run = box.run("sh", "-c", f'echo $$ > {small_group}/cgroup.procs; exec "$@"', "sh",
                  ctrun.program("ctrun"), "--nproc-per-node=2", ctrun.program("victim"),
                  "@1", "eat", str(LIMIT_BYTES * 3), "@all", "hang")
    assert run.code == 137, run
    assert re.match(r"ctrun: error\[E_OOM\]: rank 1 \(.*, pid \d+\) was killed by the kernel's OOM "
                    r"killer \(host memory\)", head(run)), run
    assert re.match(rf"64 MiB of cgroup .*{small_group.name}, used 6\d MiB, hit \d+ times; rank 1 held [1-9]\d* MiB$",
                    fact(run, "limit"))
    assert fact(run, "proof").startswith("oom_kill 0 -> 1 in ")
    assert "more memory" in fact(run, "do")


def test_t01_an_agent_that_the_oom_killer_ended_is_told_as_such(box, small_group):  # noqa: F811
    run = box.start("sh", "-c", f'echo $$ > {small_group}/cgroup.procs; exec "$@"', "sh", ctrun.program("ctrun"),
                    ctrun.program("victim"), "await", "go", "eat", str(LIMIT_BYTES * 3), "hang")
    pathlib.Path(f"/proc/{box.wait_event('worker_started')[0]['pid']}/oom_score_adj").write_text("1000")
    box.write("go", "")
    assert run.wait() == 137 and "the agent died of SIGKILL (9)" in run.err, run
    assert fact(run, "likely").startswith("the kernel's OOM killer: oom_kill 0 -> 1 in "), run


def test_t01_the_kernels_own_words_are_quoted_where_they_can_be_read(box, small_group):  # noqa: F811
    if (os.readlink("/proc/self/ns/pid") != "pid:[4026531836]"
            or not os.access("/dev/kmsg", os.R_OK)):
        pytest.skip("the kernel log cannot be read here, or numbers processes differently")
    run = box.run("sh", "-c", f'echo $$ > {small_group}/cgroup.procs; exec "$@"', "sh",
                  ctrun.program("ctrun"), ctrun.program("victim"), "eat", str(LIMIT_BYTES * 3))
    pid = re.search(r", pid (\d+)\)", head(run)).group(1)
    assert f'kernel: "Memory cgroup out of memory: Killed process {pid} (' in fact(run, "proof")


def held(box, rank):
    """What the agent has seen of a rank's memory in the last minute, in KiB."""
    answer = box.run(ctrun.program("ctrunctl"), "status", "--json")
    runs = json.loads(answer.out)["runs"] if answer.code == 0 else []
    return [kib for run in runs for worker in run["workers"] if worker["rank"] == rank
            for kib in worker["memory_kb"]]


def test_t01_the_victims_last_minute_is_told_with_the_limit(box, small_group):  # noqa: F811
    run = box.start("sh", "-c", f'echo $$ > {small_group}/cgroup.procs; exec "$@"', "sh",
                    ctrun.program("ctrun"), "--nproc-per-node=2", ctrun.program("victim"),
                    "@1", "await", "go", "eat", str(LIMIT_BYTES * 3), "@all", "hang")
    ctrun.wait_until(lambda: held(box, 1), "the agent has seen the memory of rank 1")
    box.write("go", "")
    assert run.wait() == 137
    assert re.match(r"rank 1 in the last \d+ s: \d+ -> (.* -> )?[456]\d MiB \(limit 64 MiB\)$",
                    fact(run, "memory")), run
    event = box.events("worker_memory")[0]
    schema.check(event, "events")
    assert event["rank"] == 1 and event["limit_kib"] == LIMIT_BYTES // 1024
    assert 0 < event["kib"][0] < event["peak_kib"] <= LIMIT_BYTES // 1024
    assert "larger" not in run.err


def test_t01_who_held_more_than_the_victim_is_told(box, small_group):  # noqa: F811
    chosen = "echo 1000 > /proc/self/oom_score_adj; exec \"$@\""
    run = box.run("sh", "-c", f'echo $$ > {small_group}/cgroup.procs; exec "$@"', "sh",
                  ctrun.program("ctrun"), "--nproc-per-node=2", "--no-python", "sh", "-c",
                  f"[ $RANK = 0 ] || {{ {chosen}; }}; exec \"$@\"", "sh", ctrun.program("victim"),
                  "@0", "eat", str(LIMIT_BYTES // 8 * 5), "touch", "eaten",
                  "@1", "await", "eaten", "eat", str(LIMIT_BYTES), "@all", "hang")
    assert run.code == 137, run
    assert re.match(r"rank 0 holds 4\d MiB: the kernel does not always kill the largest$",
                    fact(run, "larger")), run


def test_t02_a_kill_from_outside_is_not_taken_for_the_oom_killer(box):
    run = box.start_ctrun("--nproc-per-node=2", "sleep", "60")
    os.kill(box.wait_workers(2)[1], signal.SIGKILL)
    assert run.wait() == 137
    assert "error[E_SIGNAL]: rank 1 (" in head(run) and "SIGKILL" in head(run)
    assert re.fullmatch(r"not the OOM killer \(oom_kill of cgroup /\S* has not grown\); it is unknown which process sent the signal|"
                        r"it is unknown whether it was the OOM killer \((the worker's own cgroup is not visible here, only /\S* above it|"
                        r"no memory cgroup is visible)\) and which process sent the signal", fact(run, "because")), run
    assert fact(run, "after it") == "rank 0 stopped by ctrun"


def test_t02_a_kill_from_outside_in_a_cgroup_that_is_seen_is_not_the_oom_killer_s(box, small_group):  # noqa: F811
    run = box.start("sh", "-c", f'echo $$ > {small_group}/cgroup.procs; exec "$@"', "sh", ctrun.program("ctrun"), "sleep", "60")
    os.kill(box.wait_workers(1)[0], signal.SIGKILL)
    assert run.wait() == 137, run
    group = str(small_group).removeprefix("/sys/fs/cgroup").removeprefix("/memory")
    assert fact(run, "because") == (f"not the OOM killer (oom_kill of cgroup {group[:100]} has not grown); "
                                    "it is unknown which process sent the signal"), run


def test_a_kill_by_the_limit_of_processor_time_is_told_as_such(box):
    run = box.run("sh", "-c", 'ulimit -t 1; exec "$@"', "sh", ctrun.program("ctrun"), "--no-python",
                  "sh", "-c", "while :; do :; done")
    assert run.code == 137 and "(ulimit -t 1): " in fact(run, "likely"), run
    assert "because" not in run.err, run


def test_the_processor_time_of_children_is_not_taken_for_a_worker_s_own(box):
    """The limit is for each process alone: a child reaches it, and another SIGKILL ends the
    worker."""
    run = box.run("sh", "-c", 'ulimit -t 1; exec "$@"', "sh", ctrun.program("ctrun"), "--no-python",
                  "sh", "-c", "(while :; do :; done); kill -KILL $$$$")
    assert run.code == 137 and "ulimit -t" not in run.err and "unknown" in fact(run, "because"), run


@pytest.mark.parametrize("name", CRASHES)
def test_t03_a_crash_is_told_with_its_core_and_its_last_unfinished_line(box, name):
    box.write("crash.py", "import sys; sys.stderr.write('first\\nno end'); sys.stderr.flush()\n"
              + CRASHES[name])
    run = box.start("sh", "-c", 'ulimit -S -c 0; exec "$@"', "sh", ctrun.program("ctrun"),
                    "--nproc-per-node=2", "--no-python", ctrun.DEBIAN_PYTHON, "crash.py",
                    env={"PYTHONFAULTHANDLER": ""})
    number = getattr(signal, f"SIG{name}")
    assert run.wait() == 128 + number
    assert f"died of SIG{name} ({int(number)})" in head(run)
    assert f"exit code {128 + number}" in head(run)
    assert re.search(r"^  last lines : first\n {15}no end$", run.err, re.M), run
    if pathlib.Path("/proc/sys/kernel/core_pattern").read_text().startswith("|"):
        assert fact(run, "core")
    else:
        assert fact(run, "core").startswith("none (ulimit -")


@pytest.mark.parametrize("name, options", [*((name, ["--no-python"]) for name in CRASHES), ("SEGV", ["--warm=json"])])
def test_a_crash_of_an_unchanged_python_script_is_told_with_its_line(box, name, options):
    indented = CRASHES[name].replace("\n", "\n    ")
    box.write("crash.py", "import sys; sys.stderr.write('no end'); sys.stderr.flush()\n"
                       f"def step():\n    {indented}\nstep()\n")
    words = [ctrun.DEBIAN_PYTHON] if "--no-python" in options else []
    run = box.start(ctrun.program("ctrun"), "--nproc-per-node=2", *options, *words, "crash.py", env={"PYTHON_EXEC": ctrun.DEBIAN_PYTHON})
    number = getattr(signal, f"SIG{name}")
    assert run.wait() == 128 + number
    assert {e["start"] for e in box.events("worker_started")} == {"exec" if words else "fork"}, run
    assert re.search(r"died of SIG\w+ \(\d+\), .*: Fatal Python error: ", head(run)), run
    assert re.search(r"in (a library, called in )?.*crash.py, line \d, in step$", fact(run, "raised")), run


def test_what_cxx_wrote_before_it_aborted_is_the_cause_with_the_line_of_python(box):
    modules = "Extension modules: " + ", ".join(f"a.b{n}" for n in range(400))
    box.write("crash.py", "import os\ndef step():\n"
              "    os.write(2, b\"terminate called after throwing an instance of 'c10::Error'\\n"
              "  what():  NCCL error: the real one\\n\")\n    os.abort()\nstep()\n")
    run = box.ctrun("--nproc-per-node=2", "crash.py", env={"PYTHON_EXEC": ctrun.DEBIAN_PYTHON})
    assert run.code == 134 and head(run).endswith(": c10::Error: NCCL error: the real one"), run
    assert re.search(r"in .*crash.py, line 4, in step$", fact(run, "raised")), run
    assert "NCCL" in fact(run, "likely") or "uncaught C++ exception: c10::Error" in fact(run, "likely"), run
    box.write("native", f"#!/bin/sh\nprintf 'first\\nlast\\n\\nFatal Python error: Aborted\\n\\n{modules}\\n' >&2\nkill -ABRT $$\n", 0o755)
    run = box.ctrun("--nproc-per-node=2", "--no-python", "./native")
    assert run.code == 134 and re.search(r"^  last lines : first\n {15}last\n {15}Fatal Python error: Aborted$", run.err, re.M), run


def test_t03_with_core_files_on_the_path_is_told(box):
    pattern = pathlib.Path("/proc/sys/kernel/core_pattern").read_text().strip()
    if pattern.startswith(("|", "/")):
        pytest.skip(f"core files do not go to the working directory here: {pattern}")
    if resource.getrlimit(resource.RLIMIT_CORE)[1] == 0:
        pytest.skip("core files are forbidden here (ulimit -Hc 0)")
    run = box.ctrun("--core", "sh", "-c", "kill -SEGV $$$$")
    assert run.code == 139
    path = pathlib.Path(fact(run, "core"))
    assert path.parent == box.dir and path.is_file(), run


def test_a_missing_shared_library_is_named(box):
    box.write("lib.c", "int answer(void) { return 42; }\n")
    box.write("main.c", "int answer(void); int main(void) { return answer(); }\n")
    build = box.run("sh", "-ec", "cc -shared -fPIC -o libgone.so lib.c; cc -o prog main.c -L. -lgone")
    if build.code:
        pytest.skip(f"no C compiler here: {build.err}")
    run = box.ctrun("--nproc-per-node=2", "./prog")
    assert run.code == 127
    assert "the program could not be loaded: shared library libgone.so is missing" in fact(run, "likely")


@pytest.mark.parametrize("script, name", [
    ("import no_such_module_here", "Python finds no module no_such_module_here on this node"),
    ("from os import no_such_name", "a Python module has no no_such_name"),
    ("def :", "Python cannot parse the code"),
])
def test_a_python_program_that_cannot_be_imported_is_told_as_such(box, script, name):
    box.write("train.py", script)
    run = box.ctrun("--nproc-per-node=2", "train.py", env={"PYTHON_EXEC": ctrun.DEBIAN_PYTHON})
    assert run.code == 1
    assert name in fact(run, "likely")


@pytest.mark.parametrize("script, code, likely, remedy", [
    ("kill -ILL $$$$", 132, "an instruction that this processor does not have", "lscpu"),
    ("ulimit -f 0; trap - XFSZ; echo x > big", 153, "ulimit -f", "raise it"),
    ("kill -SYS $$$$", 159, "seccomp", "seccomp profile"),
    ("kill -PIPE $$$$", 141, "no process reads", "check the reader"),
    ("no-such-command-here", 127, "a shell did not find the command, or env(1) the interpreter,", "PATH"),
    ("touch no; ./no", 126, "may not execute it", "chmod"),
    ("sh -c 'kill -KILL $$$$$$$$'; exit 137", 137, "perhaps for lack of memory", "journalctl -k"),
    ("echo 't.py: error: unrecognized arguments: --x' >&2; exit 2", 2, "no such argument: --x", "--help"),
])
def test_an_end_is_told_with_what_it_means_and_the_next_step(box, script, code, likely, remedy):
    run = box.ctrun("--nproc-per-node=2", "sh", "-c", script)
    assert run.code == code, run
    assert likely in fact(run, "likely") and remedy in fact(run, "do")


@pytest.mark.parametrize("line, why, remedy", [
    ("#!/no/such/interpreter\n", "the interpreter of its #! line, /no/such/interpreter, is not on this", "PATH"),
    ("#!/bin/sh\r\n", "its #! line ends in CR LF", "sed -i"),
])
def test_a_script_whose_interpreter_is_not_there_is_told_as_such(box, line, why, remedy):
    box.write("train", line, 0o755)
    run = box.ctrun("--no-python", "./train")
    assert run.code == 127
    assert why in fact(run, "why") and remedy in fact(run, "do") and "likely" not in run.err, run


def test_an_interpreter_whose_own_interpreter_is_missing_is_not_called_missing(box):
    inner = box.write("inner", "#!/no/such/interpreter\n", 0o755)
    box.write("train", f"#!{inner}\n", 0o755)
    run = box.ctrun("--no-python", "./train")
    assert run.code == 127
    assert f"of its #! line, {inner}, needs an interpreter or ld.so that is not on" in fact(run, "why"), run


@pytest.mark.parametrize("n", [1, 2])
def test_a_script_for_env_with_crlf_is_told_as_such(box, n):
    box.write("train", "#!/usr/bin/env bash\r\n", 0o755)
    run = box.ctrun(f"--nproc-per-node={n}", "--no-python", "./train")
    assert run.code == 127
    assert "ends in CR LF" in fact(run, "why") and "sed -i" in fact(run, "do") and "likely" not in run.err, run


@pytest.mark.parametrize("name, why", [("folder", "it is a folder: name the program in it"),
                                       ("empty", "the file is empty: build or copy the program again")])
def test_a_folder_or_an_empty_file_in_place_of_the_program_is_told_as_such(box, name, why):
    box.path("folder").mkdir()
    box.write("empty", "", 0o755)
    run = box.ctrun("--no-python", f"./{name}")
    assert run.code == 126 and fact(run, "why") == why and "likely" not in run.err, run


def test_a_script_that_python_cannot_open_is_not_told_as_refused_arguments(box):
    """A single worker writes to one file for both streams directly: ctrun sees only the exit code."""
    run = box.run("sh", "-c", 'exec "$@" >&2', "sh", ctrun.program("ctrun"), "--no-python", ctrun.DEBIAN_PYTHON, "nosuch.py")
    assert run.code == 2
    assert "or a script that Python cannot open" in fact(run, "likely"), run


def test_a_python_exception_is_told_with_its_place(box):
    box.write("train.py", "def step():\n    return {}['x']\nstep()\n")
    run = box.ctrun("--nproc-per-node=2", "train.py", env={"PYTHON_EXEC": ctrun.DEBIAN_PYTHON})
    assert run.code == 1
    assert re.fullmatch(r"in .*train.py, line 2, in step", fact(run, "raised")), run


def test_an_exception_is_told_though_much_was_written_after_it(box):
    box.write("train.py", "import atexit, sys\n"
              "atexit.register(lambda: [print('closing', n, file=sys.stderr) for n in range(50)])\n"
              "raise ValueError('boom')\n")
    run = box.ctrun("--nproc-per-node=2", "--max-restarts=1", "train.py", env={"PYTHON_EXEC": ctrun.DEBIAN_PYTHON})
    assert run.code == 1
    assert head(run).endswith(" after start: ValueError: boom"), run
    assert fact(run, "raised").endswith("train.py, line 3, in <module>")
    assert re.search(r"^ctrun: restart 1/1: rank \d on \S+ exited with 1: ValueError: boom$", run.err, re.M), run


def test_a_traceback_that_was_got_over_is_not_the_cause(box):
    run = box.ctrun("--nproc-per-node=2", "sh", "-c",
                    "printf 'Traceback (most recent call last):\\n  File \"a\", line 1, in f\\nKeyError: 1\\n' >&2;"
                    "echo retried >&2; exit 3")
    assert run.code == 3 and head(run).endswith(" after start"), run


def test_who_ended_with_zero_before_the_failure_is_told(box):
    run = box.ctrun("--nproc-per-node=3", "sh", "-c",
                    "case $RANK in 0) exit 0;; 2) while :; do sleep 60; done;; esac;"
                    "while ! grep -q '\"worker_ended\".*\"rank\":0,' $CTRUN_EVENTS;"
                    " do sleep 0.05; done; exit 4")
    assert run.code == 4
    assert fact(run, "before it") == "rank 0 had ended with 0"
    assert fact(run, "after it") == "rank 2 stopped by ctrun"
    assert "(local_rank: 0)" not in run.err  # torchrun's list has failures only


def test_what_was_left_behind_is_told_after_the_cause(box):
    run = box.run(ctrun.program("ctrun"), "--nproc-per-node=2", "--max-restarts=1", "--min-uptime=0",
                  ctrun.program("victim"), "@1", "orphan", "exit", "5", "@all", "hang")
    assert run.code == 5, run
    kinds = re.findall(r"^ctrun: (restart(?= \d)|error|warning: killed processes that workers left behind)\b",
                       run.err, re.M)
    assert [kind.split(":")[0] for kind in kinds] == ["restart", "warning", "error", "warning"], run


def test_t24_a_the_same_failure_twice_right_after_the_start_ends_the_run(box):
    run = box.ctrun("--max-restarts=5", "--nproc-per-node=2", "--log-dir=D", "sh", "-c",
                    "[ $RANK = 0 ] || exec sleep 60; echo at $$$$ >&2;"
                    "echo no such file: data/train.bin >&2; exit 1")
    assert run.code == 1
    assert len(box.events("round_started")) == 2
    assert re.match(r"ctrun: error\[E_CRASH_LOOP\]: rank 0 \(.*\) failed twice in the same way "
                    r"\d+\.\d s after start \(exit 1\): not restarting$", head(run)), run
    assert "same failure twice within 30 s of start, not restarting" in run.err
    assert "no such file: data/train.bin" in run.err and "--min-uptime 30" in fact(run, "do")
    assert "restarts   : 1 of 5 used" in run.err
    why = box.run(ctrun.program("ctrunctl"), "why", box.path("D")).out  # summary.json has no --min-uptime
    assert re.search(r"^  why        : same failure twice, the last time \d+\.\d s after start, not restarting\n"
                     r"  do         : fix it; .* \(with --min-uptime 0 ctrun always restarts\)$", why, re.M), why


def test_t24_a_what_one_worker_says_on_the_console_is_not_taken_for_the_same(box):
    box.write("train.py", "import os\nn = int(os.environ['TORCHELASTIC_RESTART_COUNT'])\n"
              "if n < 3:\n    raise (ConnectionError, ValueError, KeyError)[n]('boom')\n")
    run = box.ctrun("--max-restarts=5", "train.py", env={"PYTHON_EXEC": ctrun.DEBIAN_PYTHON})
    assert run.code == 0 and len(box.events("round_started")) == 4, run


def test_t24_a_a_worker_that_is_killed_again_and_again_is_a_loop(box):
    run = box.ctrun("--max-restarts=5", "--no-python", ctrun.program("victim"), "die", "KILL")
    assert run.code == 137 and "E_CRASH_LOOP" in head(run), run


@pytest.mark.parametrize("steps, rounds, error", [("7", 2, "E_CRASH_LOOP"), ("$TORCHELASTIC_RESTART_COUNT", 5, "E_EXIT")])
def test_t24_a_late_failures_at_the_same_step_are_a_loop(box, steps, rounds, error):
    run = box.ctrun("--max-restarts=4", "--min-uptime=1", "--no-python", "sh", "-c",
                    f"exec {ctrun.program('victim')} step {steps} sleep 1100 exit 3")
    assert run.code == 3 and error in head(run) and len(box.events("round_started")) == rounds, run


def test_t24_a_up_to_three_restarts_are_used_up_as_with_torchrun(box):
    run = box.ctrun("--max-restarts=3", "--nproc-per-node=2", "sh", "-c",
                    "[ $TORCHELASTIC_RESTART_COUNT = 3 ] && exit 0; echo not yet >&2; exit 1")
    assert run.code == 0, run
    assert len(box.events("round_started")) == 4
    run = box.ctrun("--max-restarts=3", "sh", "-c", "echo never >&2; exit 1")
    assert run.code == 1 and "error[E_EXIT]" in head(run), run


def test_t24_a_one_decision_holds_for_all_nodes(box):
    daemon, endpoint = box.start_ctrund()
    runs = [box.start_ctrun(*TWO, "--max-restarts=5", f"--rdzv-endpoint={endpoint}",
                            "--no-python", "sh", "-c", "[ $RANK = 1 ] || exec sleep 60; echo boom >&2; exit 3")
            for _ in range(2)]
    assert [run.wait() for run in runs] == [3, 3], runs
    assert head(runs[0]) == head(runs[1]) and "E_CRASH_LOOP" in head(runs[0])
    [reporter] = [run for run in runs if "\n  why " in run.err]
    assert fact(reporter, "last lines") == "boom"
    daemon.signal(signal.SIGTERM)
    assert daemon.wait() == 0


def test_the_node_that_failed_first_is_told_though_its_agent_tells_last(box):
    daemon, endpoint = box.start_ctrund()
    error = '{"message": {"message": "the real one", "extraInfo": {"timestamp": "1"}}}'
    command = ("while [ ! -e go$RANK ]; do sleep 0.05; done;"
               f"[ $RANK = 1 ] || printf '%s' '{error}' > $TORCHELASTIC_ERROR_FILE;"
               "exit $((7 + RANK))")
    runs = []
    for n in range(2):
        runs.append(box.start_ctrun(*TWO, "--max-restarts=0", "--no-python",
                                    f"--rdzv-endpoint={endpoint}", "sh", "-c", command))
        box.wait_event("agent_state", n + 1, to="joining")
    worker = box.wait_workers(2)[0]
    words = ctrun.environment(worker)["TORCHELASTIC_ERROR_FILE"]
    agent = ctrun.parent_of(worker)
    box.wait_event("worker_started", 2)  # the agent ignores an error file that is older than its worker
    os.kill(agent, signal.SIGSTOP)  # as an agent that is busy or swapped out
    try:
        box.write("go0", "")
        ctrun.wait_until(lambda: not ctrun.is_alive(worker), "rank 0 is dead")
        ctrun.wait_until(lambda: time.time() - os.path.getmtime(words) > IN_DOUBT_S,
                         "rank 0 has failed longer ago than the server is in doubt about")
        box.write("go1", "")

        def is_stopping():
            with urllib.request.urlopen(f"http://{endpoint}/status", timeout=60) as answer:
                return b'"stopping"' in answer.read()

        ctrun.wait_until(is_stopping, "the server has heard of rank 1")
    finally:
        os.kill(agent, signal.SIGCONT)
    assert [run.wait() for run in runs] == [7, 7], runs
    for run in runs:
        assert "error[E_EXIT]: rank 0 (" in head(run), run
    [reporter] = [run for run in runs if "Root Cause" in run.err]
    assert re.fullmatch(r"rank 1 \(.*\) failed \d+\.\d s later", fact(reporter, "after it")), reporter
    daemon.signal(signal.SIGTERM)
    assert daemon.wait() == 0


RAISED = '{"message": {"message": "ValueError: the real one", "extraInfo": {"timestamp": "1"}}}'


def test_a_rank_that_raised_first_and_ends_last_is_the_cause(box):
    run = box.ctrun("--nproc-per-node=2", "--no-python", ctrun.program("victim"), "@1", "on", "TERM", "20",
                    "errfile", RAISED, "touch", "ready", "hang", "@0", "await", "ready", "exit", "4")
    assert run.code == 1, run
    assert re.match(r"ctrun: error\[E_EXIT\]: rank 1 \(.*, pid \d+\) reported an error, \S+ s after start: "
                    r"ValueError: the real one$", head(run)), run
    assert re.search(r"Root Cause .*\n\[0\]:\n.*\n.*\n  rank      : 1 .*\n  exitcode  : 20 ", run.err), run
    assert "also failed: rank 0" in fact(run, "after it")


def test_a_rank_that_raised_first_on_another_node_is_the_cause(box):
    daemon, endpoint = box.start_ctrund()
    victim = ctrun.program("victim")
    script = box.write("rank.sh", f"if [ $RANK = 0 ]; then printf '%s' '{RAISED}' > $TORCHELASTIC_ERROR_FILE;"
                       f"touch raised; exec {victim} hang; fi; exec {victim} await go exit 4")
    runs = [box.start_ctrun(*TWO, f"--rdzv-endpoint={endpoint}", "--no-python", "sh", str(script))
            for _ in range(2)]
    raised = box.path("raised")
    ctrun.wait_until(lambda: raised.exists() and time.time() - raised.stat().st_mtime > IN_DOUBT_S,
                     "rank 0 has raised longer ago than the server is in doubt about")
    box.write("go", "")
    assert [run.wait() for run in runs] == [1, 1], runs
    for run in runs:
        assert re.search(r"E_EXIT\]: rank 0 .* reported an error.*: ValueError: the real one$", head(run)), run
    daemon.signal(signal.SIGTERM)
    assert daemon.wait() == 0


def test_t24_b_a_program_that_is_not_there_gets_no_restart(box):
    box.write("gone", "#!/no/such/interpreter\n", 0o755)
    run = box.ctrun("--max-restarts=5", "--no-python", "./gone")
    assert run.code == 127, run
    assert len(box.events("round_started")) == 1
    assert "error[E_EXEC]" in head(run) and "0 of 5 used" in run.err


def test_t24_failures_that_differ_are_restarted_as_often_as_was_said(box):
    run = box.ctrun("--max-restarts=3", "sh", "-c", "exit $((3 + TORCHELASTIC_RESTART_COUNT % 2))")
    assert run.code == 4
    assert len(box.events("round_started")) == 4


def test_t24_min_uptime_0_restarts_as_torchrun_does(box):
    run = box.ctrun("--max-restarts=3", "--min-uptime=0", "sh", "-c", "exit 3")
    assert run.code == 3 and "error[E_EXIT]" in head(run)
    assert len(box.events("round_started")) == 4
    assert box.ctrun("--min-uptime=-1", "true").code == 2


def test_t24_c_a_node_that_fails_twice_makes_room_for_a_spare(box):
    daemon, endpoint = box.start_ctrund()
    command = ("while [ ! -e go ]; do sleep 0.05; done; [ $SICK = 1 ] && exit 3;"
               "[ $TORCHELASTIC_RESTART_COUNT = 2 ] && exit 0; exec sleep 60")
    runs = []
    for n in range(3):  # the second one is sick, the third a spare
        runs.append(box.start_ctrun(*TWO, "--max-restarts=5", "--no-python",
                                    f"--rdzv-endpoint={endpoint}", "sh", "-c", command,
                                    env={"SICK": str(int(n == 1))}))
        box.wait_event("agent_state", n + 1, to="joining")

    def spare_waits():
        with urllib.request.urlopen(f"http://{endpoint}/status", timeout=60) as answer:
            return b'"ready"' in answer.read()

    ctrun.wait_until(spare_waits, "the spare waits")
    box.write("go", "")
    assert [run.wait() for run in runs] == [0, 76, 0], runs
    assert "error[E_EXCLUDED]: this node failed first in two rounds" in head(runs[1]), runs[1]
    assert f"; refused by the rendezvous at {endpoint}" in head(runs[1]), runs[1]
    assert "excluded: it failed first in two rounds in a row" in runs[0].err, runs[0]
    daemon.signal(signal.SIGTERM)
    assert daemon.wait() == 0


def test_t24_d_the_node_that_serves_makes_room_for_nobody(box):
    """Without it the run would end, and the same command could start a second world at once."""
    port = launch.free_port()
    command = "while [ ! -e go ]; do sleep 0.05; done; [ $SICK = 1 ] && exit 3; exec sleep 60"
    runs = []
    for n in range(3):  # the first one serves and is sick, the third a spare
        runs.append(box.start_ctrun(*TWO, "--max-restarts=5", "--no-python",
                                    f"--rdzv-endpoint=127.0.0.1:{port}", "sh", "-c", command,
                                    env={"SICK": str(int(n == 0))}))
        box.wait_event("agent_state", n + 1, to="joining")

    def spare_waits():
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=60) as answer:
            return b'"ready"' in answer.read()

    ctrun.wait_until(spare_waits, "the spare waits")
    box.write("go", "")
    assert [run.wait() for run in runs] == [3, 3, 3], runs
    for run in runs[:2]:
        assert "failed first in two rounds in a row, but is not excluded: it serves the rendezvous" in run.err, run
        assert "E_EXCLUDED" not in run.err, run


# ---- broken hardware ----

ECC = "echo 'CUDA error: uncorrectable ECC error encountered' >&2; exit 3"
BROKEN = "has had as many hardware faults as --exclude-node-after allows"


def test_a_broken_node_that_is_needed_stays_and_every_fault_has_its_evidence(box):
    daemon, endpoint = box.start_ctrund()
    run = box.ctrun("--nnodes=1", f"--rdzv-endpoint={endpoint}", "--rdzv-backend=c10d",
                    "--max-restarts=2", "--tee=3", "--no-python", "sh", "-c", ECC)
    host = os.uname().nodename
    assert run.code == 3, run
    assert re.search("  hardware *: CUDA error: uncorrectable ECC error encountered\n", run.err), run
    told = (f"{host} {BROKEN}, but is not excluded: without it fewer nodes than the minimum of "
            "--nnodes would be left; the last one: CUDA error: uncorrectable ECC error encountered")
    assert run.err.count(told) == 2, run  # at the second and the third fault
    assert box.ctrun("--exclude-node-after=-1", "true").code == 2
    daemon.signal(signal.SIGTERM)
    assert daemon.wait() == 0


def test_faults_of_programs_and_option_0_exclude_nobody(box):
    for words, option in [(ECC, "--exclude-node-after=0"), ("echo 'CUDA out of memory' >&2; exit 3",
                                                           "--exclude-node-after=1")]:
        run = box.ctrun("--max-restarts=1", option, "--tee=3", "--no-python", "sh", "-c", words)
        assert run.code == 3 and BROKEN not in run.err, run


def test_a_node_with_broken_hardware_leaves_the_others(box):
    """Hosts are told apart by name: each node has its own."""
    if box.run("unshare", "--uts", "hostname", "probe").code:
        pytest.skip("no UTS namespace can be made here")
    daemon, endpoint = box.start_ctrund()
    command = (f"[ $(hostname) = sick ] && {{ {ECC}; }}; [ $WORLD_SIZE = 1 ] && exit 0;"
               "exec sleep 60")
    runs = [box.start("unshare", "--uts", "sh", "-c", 'hostname "$1"; shift; exec "$@"', "sh", name,
                      ctrun.program("ctrun"), "--nnodes=1:2", "--rdzv-backend=c10d",
                      f"--rdzv-endpoint={endpoint}", "--rdzv-conf=last_call_timeout=60",
                      "--rdzv-id=J", "--max-restarts=5", "--exclude-node-after=2", "--shutdown-timeout=1",
                      "--no-python", "sh", "-c", command)
            for name in ("well", "sick")]
    assert [run.wait() for run in runs] == [0, 76], runs
    assert f"sick {BROKEN}, and is excluded; the last one: CUDA error: uncorrectable ECC" in runs[0].err, runs[0]
    assert "error[E_EXCLUDED]" in head(runs[1]) and "--exclude-node-after" in runs[1].err, runs[1]
    daemon.signal(signal.SIGTERM)
    assert daemon.wait() == 0
