# SPDX-License-Identifier: Apache-2.0
"""Who reads standard input: --stdin."""
import contextlib
import os
import subprocess
import termios

import pytest

import ctrun
import launch
from terminal import Terminal

SHOW = 'echo "$RANK $(readlink /proc/self/fd/0 | cut -d: -f1) <$(cat)>"'
PYTHON = ctrun.DEBIAN_PYTHON


@contextlib.contextmanager
def pipe(text):
    """The reading end of a pipe that holds the text and then ends."""
    reader, writer = os.pipe()
    os.write(writer, text.encode())
    os.close(writer)
    yield reader
    os.close(reader)


@pytest.mark.parametrize("rank", [0, 2])
def test_one_rank_reads_and_the_others_are_at_the_end(box, rank):
    with pipe("hello\n") as reader:
        run = box.ctrun("--standalone", "--nproc-per-node=3", f"--stdin={rank}", "sh", "-c", SHOW,
                        stdin=reader)
    assert run.code == 0, run
    expected = [f"{i} /dev/null <>" for i in range(3)]
    expected[rank] = f"{rank} pipe <hello>"
    assert sorted(run.out.splitlines()) == expected


def test_nobody_reads(box):
    with pipe("hello\n") as reader:
        run = box.ctrun("--standalone", "--stdin=none", "sh", "-c", SHOW, stdin=reader)
    assert run.out == "0 /dev/null <>\n", run


@pytest.mark.parametrize("words", [[], ["--stdin=all"]])
def test_without_the_option_all_share_it_as_under_torchrun(box, words):
    with pipe("hello\n") as reader:
        run = box.ctrun("--standalone", "--nproc-per-node=2", *words, "sh", "-c",
                        'echo "$RANK $(readlink /proc/self/fd/0 | cut -d: -f1)"', stdin=reader)
    assert sorted(run.out.splitlines()) == ["0 pipe", "1 pipe"], run


def test_the_environment_chooses_too(box):
    with pipe("hello\n") as reader:
        run = box.ctrun("--standalone", "--nproc-per-node=2", "sh", "-c", SHOW, stdin=reader,
                        env={"CTRUN_STDIN": "1"})
    assert sorted(run.out.splitlines()) == ["0 /dev/null <>", "1 pipe <hello>"], run


def test_a_large_input_arrives_whole(box):
    path = box.write("input", "x" * 3_000_000)
    with open(path, encoding="ascii") as file, subprocess.Popen(
            ["cat"], stdin=file, stdout=subprocess.PIPE) as cat:
        run = box.ctrun("--standalone", "--nproc-per-node=2", "--stdin=1", "sh", "-c", "wc -c",
                        stdin=cat.stdout)
    assert sorted(run.out.split()) == ["0", "3000000"], run


def test_a_restarted_worker_reads_on(box):
    script = ('test "$RANK" = 1 && exec sleep 60; read line; '
              'echo "$TORCHELASTIC_RESTART_COUNT $line"; '
              'test "$TORCHELASTIC_RESTART_COUNT" = 2 && exit 0; exit 1')
    with pipe("one\ntwo\nthree\n") as reader:
        run = box.ctrun("--standalone", "--nproc-per-node=1", "--max-restarts=2", "--stdin=0",
                        "sh", "-c", script, stdin=reader)
    assert run.code == 0, run
    assert run.out.splitlines() == ["0 one", "1 two", "2 three"]


def test_on_several_nodes_the_rank_reads_that_of_its_own_node(box):
    port = launch.free_port()
    runs = []
    for node in range(2):
        with pipe(f"of node {node}\n") as reader:
            runs.append(box.start_ctrun(
                "--nnodes=2", f"--node-rank={node}", "--nproc-per-node=2", f"--master-port={port}",
                "--stdin=3", "sh", "-c", SHOW, stdin=reader))
    assert [run.wait() for run in runs] == [0, 0], runs
    assert sorted(runs[0].out.splitlines()) == ["0 /dev/null <>", "1 /dev/null <>"]
    assert sorted(runs[1].out.splitlines()) == ["2 /dev/null <>", "3 pipe <of node 1>"]


def test_a_rank_that_this_world_has_not_is_said_once(box):
    port = launch.free_port()
    runs = [box.start_ctrun("--nnodes=2", f"--node-rank={node}", f"--master-port={port}",
                            "--stdin=7", "true") for node in range(2)]
    assert [run.wait() for run in runs] == [0, 0], runs
    assert [run.err.count("--stdin=7: this round has ranks 0 to 1") for run in runs] == [1, 0]


@pytest.mark.parametrize("words, text", [
    (["--stdin=2", "--nproc-per-node=2"], "--stdin=2: there are 2 ranks, 0 to 1"),
    (["--stdin=1"], "--stdin=1: there is 1 rank, 0 to 0"),
    (["--stdin=-1"], "--stdin=-1: must be a rank of the job, all or none"),
    (["--stdin="], "--stdin=: must be a rank of the job, all or none"),
    (["--stdin=99999999999"], "must be a rank of the job"),
    (["--hosts=a,b", "--stdin=0"], "--stdin=0: with --hosts all ranks read /dev/null"),
])
def test_a_bad_rank_is_refused_in_one_line(box, words, text):
    run = box.ctrun(*words, "true")
    assert run.code == 2, run
    assert f"error[E_USAGE]: {text}" in run.err or text in run.err.splitlines()[0]


def test_a_prompt_on_a_terminal_is_seen_and_answered(box):
    script = box.write("ask.py", """import os, sys
if os.environ["RANK"] == "0":
    print("tty", sys.stdin.isatty(), sys.stdout.isatty(), flush=True)
    print("hello " + input("name? "))
else:
    assert sys.stdin.read() == ""
""")
    terminal = Terminal(box, "--nproc-per-node=2", "--stdin=0", PYTHON, script)
    terminal.expect("tty True True")
    terminal.expect("name? ")
    terminal.type("joe\n")
    terminal.expect("hello joe")
    assert terminal.wait() == 0, terminal.text


def test_the_end_of_input_on_a_terminal_is_one(box):
    terminal = Terminal(box, "--nproc-per-node=2", "--stdin=1", "sh", "-c",
                        'test "$RANK" = 1 && echo ready; echo "$RANK <$(cat)>"')
    terminal.expect("ready")
    terminal.type("a line\n\x04")
    assert terminal.wait() == 0, terminal.text
    assert "1 <a line>" in terminal.text and "0 <>" in terminal.text


def test_a_debugger_works_on_a_terminal(box):
    script = box.write("debug.py", """import os
answer = 42
if os.environ["RANK"] == "0":
    breakpoint()
print("rank", os.environ["RANK"], answer)
""")
    terminal = Terminal(box, "--nproc-per-node=2", "--stdin=0", PYTHON, script)
    terminal.expect("(Pdb) ")
    terminal.type("p 'the answer is', answer\n")
    terminal.expect("('the answer is', 42)")
    terminal.type("answer = 43\n")
    terminal.type("c\n")
    terminal.expect("rank 0 43")
    assert terminal.wait() == 0, terminal.text


def test_a_run_that_fails_leaves_the_terminal_as_it_was(box):
    terminal = Terminal(box, "--nproc-per-node=2", "--stdin=0", "sh", "-c",
                        'test "$RANK" = 1 || { stty -echo && exit 3; }; sleep 60')
    with open(os.dup(terminal.master), "rb", buffering=0) as master:
        assert terminal.wait() == 3, terminal.text
        assert termios.tcgetattr(master)[3] & termios.ECHO


def test_ctrl_c_on_a_terminal_ends_the_run(box):
    terminal = Terminal(box, "--nproc-per-node=2", "--stdin=0", "sh", "-c",
                        'test "$RANK" = 0 && echo ready; exec sleep 60')
    terminal.expect("ready")
    terminal.type("\x03")
    assert terminal.wait() == 130, terminal.text
