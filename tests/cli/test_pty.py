# SPDX-License-Identifier: Apache-2.0
"""Workers of a ctrun that runs on a terminal have terminals, too."""
import re

import ctrun
import pytest
from terminal import Terminal

SHOW = ("sh", "-c", "[ -t 1 ] && out=tty; [ -t 2 ] && err=tty; echo $RANK ${out:-no} ${err:-no}")


@pytest.mark.parametrize("words, env, seen", [
    ([], {}, "tty tty"), (["--pty=never"], {}, "no no"), ([], {"CTRUN_PTY": "never"}, "no no"),
    (["--collapse"], {}, "no no")])
def test_on_a_terminal_workers_have_one_unless_it_is_refused(box, words, env, seen):
    run = Terminal(box, "--nproc-per-node=2", *words, *SHOW, env=env)
    assert run.wait() == 0
    assert {f"{rank} {seen}" for rank in (0, 1)} == set(re.findall(r"[01] (?:tty|no) (?:tty|no)", run.text)), run.text


def test_a_redirected_stream_is_no_terminal_and_stays_apart(box):
    with open(box.path("err"), "wb") as err:
        run = Terminal(box, "--nproc-per-node=2", "sh", "-c",
                       "[ -t 1 ] && [ ! -t 2 ] && echo out; echo err >&2", err=err)
        assert run.wait() == 0
    assert run.text == "out\r\nout\r\n"
    assert box.path("err").read_text() == "err\nerr\n"


def test_log_files_are_as_without_a_terminal(box):
    run = Terminal(box, "--nproc-per-node=2", "-t3", "--log-dir=D", *SHOW)
    assert run.wait() == 0
    assert sorted(path.read_text() for path in box.dir.glob("D/*/attempt_0/*/stdout.log")) == \
        ["0 no no\n", "1 no no\n"]


def test_workers_have_the_size_of_the_terminal_and_hear_of_another(box):
    box.write("size.sh", "trap 'stty size <&1; exit 0' WINCH; stty size <&1; touch up$RANK\n"
                         "while :; do sleep 0.05; done\n", 0o755)
    run = Terminal(box, "--nproc-per-node=2", "sh", "size.sh", rows=33, columns=111)
    ctrun.wait_until(lambda: len(list(box.dir.glob("up?"))) == 2, lambda: run.text)
    run.resize(44, 122)
    assert run.wait() == 0
    assert run.text.count("33 111\r\n") == 2 and run.text.count("44 122\r\n") == 2, run.text


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 60000])
def test_what_a_rank_wrote_before_it_was_killed_is_shown(box, size):
    """To the last byte, although another process of the rank keeps the terminal open."""
    run = Terminal(box, "--nproc-per-node=2", "-q", "python3", "-c", f"""
import os, signal, subprocess
if os.environ["RANK"] == "1":
    subprocess.Popen(["sleep", "60"])
    os.write(1, b"x" * {size} + b"end")
    os.kill(os.getpid(), signal.SIGKILL)
signal.pause()
""")
    assert run.wait() == 137
    assert re.search(f"(^|[^x])x{{{size}}}end", run.text.replace("\r\n", "")), run.text[-2000:]


def test_the_last_lines_of_a_worker_are_in_the_report(box):
    run = Terminal(box, "--nproc-per-node=2", "sh", "-c", "[ $RANK = 1 ] && { echo last words >&2; exit 3; }; sleep 60")
    assert run.wait() == 3
    assert "last words" in run.text[run.text.index("error[E_EXIT]: rank 1"):], run.text
