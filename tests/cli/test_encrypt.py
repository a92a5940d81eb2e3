# SPDX-License-Identifier: Apache-2.0
"""Encrypted links to the rendezvous server, and secrets that must appear nowhere."""
import os
import pathlib

import ctrun
import pytest
from proxy import Proxy

TOKEN = "a secret of the tests, 36 letters long"
ROLE = "a-role-that-nobody-should-read"


@pytest.fixture
def daemon(box):
    """daemon("--option", ...): a ctrund with the token; its run and port."""
    runs = []

    def start(*options, token=TOKEN):
        run = box.start(ctrun.program("ctrund"), "--listen", "127.0.0.1:0", *options,
                        env={"CTRUN_TOKEN": token} if token else {})
        line = ctrun.wait_until(lambda: run.out if "\n" in run.out else None, lambda: f"{run}")
        runs.append(run)
        return run, int(line.strip().rpartition(":")[2])

    yield start
    for run in runs:
        run.signal(15)
        assert run.wait() == 0, run


@pytest.fixture
def proxy():
    """proxy(port): a Proxy in front of it, closed with the test."""
    made = []

    def make(port):
        made.append(Proxy(port))
        return made[-1]

    yield make
    for one in made:
        one.close()


def agents(box, port, *options, count=2, token=TOKEN, program="exit 0"):
    return [box.start_ctrun(f"--nnodes={count}", "--rdzv-backend=c10d",
                            f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=e",
                            f"--role={ROLE}", "--rdzv-conf=is_host=0,read_timeout=20", *options,
                            "--no-python", "sh", "-c", program,
                            env={"CTRUN_TOKEN": token} if token else {}) for _ in range(count)]


@pytest.mark.parametrize("options, is_readable", [(["--encrypt"], False), ([], True)])
def test_what_agents_say_is_readable_only_without_encryption(box, daemon, proxy, options, is_readable):
    wire = proxy(daemon()[1])
    runs = agents(box, wire.port, *options)
    assert [run.wait() for run in runs] == [0, 0], runs
    assert (ROLE.encode() in wire.seen) == is_readable
    assert TOKEN.encode() not in wire.seen


def test_an_encrypted_run_restarts_and_fails_like_any_other(box, daemon):
    runs = agents(box, daemon("--encrypt")[1], "--encrypt", "--max-restarts=1",
                  program='[ "$RANK" = 0 ] || exit 7; exec sleep 600')
    assert [run.wait() for run in runs] == [7, 7], runs
    assert all("rank 1" in run.err for run in runs), runs


def test_a_link_without_encryption_is_refused_where_it_is_asked_for(box, daemon):
    run = agents(box, daemon("--encrypt")[1], count=1)[0]
    assert run.wait() == 77, run
    assert "error[E_AUTH]" in run.err and "--encrypt on every node" in run.err, run


def test_who_takes_the_key_out_of_the_answer_is_found_out(box, daemon, proxy):
    """Without the server's OFFER the agent must not continue without encryption."""
    wire = proxy(daemon()[1])

    def without_offer(data):
        while data[:2] == b"\xc7\x52" and data[3] == 29:
            data = data[8 + int.from_bytes(data[4:8], "little"):]
        return data

    wire.change = without_offer
    run = agents(box, wire.port, "--encrypt", count=1)[0]
    assert run.wait() == 77, run
    assert "does not encrypt" in run.err and ROLE.encode() not in wire.seen, run


def test_a_key_that_was_exchanged_on_the_way_is_found_out(box, daemon, proxy):
    wire = proxy(daemon()[1])

    def other_key(data):
        if data[:2] == b"\xc7\x52" and data[3] == 29:
            return data[:8] + bytes([data[8] ^ 1]) + data[9:]
        return data

    wire.change = other_key
    run = agents(box, wire.port, "--encrypt", count=1)[0]
    assert run.wait() == 77, run
    assert "error[E_AUTH]" in run.err, run


def test_a_changed_frame_ends_the_link(box, daemon, proxy):
    """The agents refuse the changed frame and end their workers."""
    wire = proxy(daemon()[1])
    runs = agents(box, wire.port, "--encrypt", program="exec sleep 600")
    box.wait_workers(2)
    wire.change = lambda data: data[:-1] + bytes([data[-1] ^ 1])
    assert [run.wait() for run in runs] == [75, 75], runs
    assert all("malformed or unexpected message" in run.err for run in runs), runs


def test_encrypted_links_are_made_anew_when_ctrund_was_killed(box):
    """With a journal the workers keep running; the new links are encrypted too."""
    journal, go = box.path("journal"), box.path("go")
    journal.mkdir()

    def begin(port):
        run = box.start(ctrun.program("ctrund"), "--listen", f"127.0.0.1:{port}", "--encrypt",
                        "--journal", journal, env={"CTRUN_TOKEN": TOKEN})
        line = ctrun.wait_until(lambda: run.out if "\n" in run.out else None, lambda: f"{run}")
        return run, int(line.strip().rpartition(":")[2])

    first, port = begin(ctrun.free_port())
    runs = agents(box, port, "--encrypt", "--rdzv-conf=keep_alive_interval=60,keep_alive_max_attempt=1",
                  program=f"while [ ! -e {go} ]; do sleep 0.05; done")
    workers = box.wait_workers(2)
    first.signal(9)
    first.wait()
    second, _ = begin(port)
    box.wait_event("link_state", count=4, to="up")
    assert box.workers() == workers
    go.touch()
    assert [run.wait() for run in runs] == [0, 0], runs
    second.signal(15)
    assert second.wait() == 0, second


@pytest.mark.parametrize("option, words", [
    ("--encrypt", "without a secret"), ("--auth=token", "there is none")])
def test_what_needs_a_secret_is_refused_without_one(box, option, words):
    run = box.ctrun("--nnodes=2", "--rdzv-endpoint=127.0.0.1:1", option, "--no-python", "true")
    assert run.code == 2 and "error[E_USAGE]" in run.err and words in run.err, run


def test_auth_none_uses_no_token(box, daemon):
    runs = agents(box, daemon(token=None)[1], "--auth=none")
    assert [run.wait() for run in runs] == [0, 0], runs
    assert all("the token is not used" in run.err for run in runs), runs


def places_of(box, needle):
    """Where the needle can be read: outputs, events, files of the box, and /proc of its processes."""
    found = [f"output of {run.argv[0]}" for run in box.runs if needle in run.out + run.err]
    for path in box.dir.rglob("*"):
        if path.is_file() and needle.encode() in path.read_bytes():
            found.append(str(path))
    for pid in box.pids():
        for name in ("cmdline", "environ"):
            try:
                if needle.encode() in pathlib.Path(f"/proc/{pid}/{name}").read_bytes():
                    found.append(f"/proc/{pid}/{name}")
            except OSError:
                pass
    return found


@pytest.mark.parametrize("options", [[], ["--encrypt"]])
def test_the_token_is_in_no_output_event_log_file_or_process(box, daemon, options):
    server, port = daemon("--log-level", "debug")
    wrong = agents(box, port, count=1, token="another secret of the tests, wrong")[0]
    assert wrong.wait() == 77, wrong
    runs = [box.start_ctrun("--nnodes=2", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=e",
                            "--rdzv-conf=is_host=0", "--redirects=3", f"--log-dir={box.path('logs')}",
                            *options, "--no-python", "sh", "-c", "env; exec sleep 600",
                            env={"CTRUN_TOKEN": TOKEN, "LOGLEVEL": "DEBUG"}) for _ in range(2)]
    box.wait_workers(2)
    ctrun.wait_until(lambda: len(list(box.path("logs").rglob("stdout.log"))) == 2, "two log files")
    assert places_of(box, TOKEN) == [], server
    for run in runs:
        run.signal(15)
    assert all(run.wait() == 143 for run in runs), runs
    assert places_of(box, TOKEN) == [], server
    assert places_of(box, "another secret") == []


def test_the_search_for_secrets_finds_them(box):
    """Otherwise the test above could not fail."""
    box.start("sleep", "600", env={"X": TOKEN})
    run = box.run("echo", TOKEN)
    assert run.code == 0
    found = ctrun.wait_until(lambda: places_of(box, TOKEN), "it is found")
    assert any("output of" in place for place in found)
    assert any("environ" in place for place in found)
    os.kill(box.runs[0].pid, 9)
