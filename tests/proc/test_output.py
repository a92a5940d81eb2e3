# SPDX-License-Identifier: Apache-2.0
"""The output of workers arrives complete, in whole lines and at the right place."""
import os
import re
import signal
import subprocess

import ctrun


def test_lines_of_two_workers_are_never_torn(node):
    run = node.run("flood", "400000")
    lines = run.out.splitlines()
    assert len(lines) == 10000
    assert all(len(line) == 79 and len(set(line)) == 1 for line in lines)


GROWING_PIPE = """import fcntl, os, sys
GETPIPE_SZ = 1032
before = fcntl.fcntl(1, GETPIPE_SZ)
for _ in range(10000):
    if fcntl.fcntl(1, GETPIPE_SZ) > before:
        sys.exit(print("grown", file=sys.stderr))
    os.write(1, b"x" * 65535 + b"\\n")
"""


def test_a_pipe_that_was_full_grows(node):
    run = node.run(workers=2, program=["python3", "-c", GROWING_PIPE])
    assert run.err.count("grown") == 2, run


def test_one_worker_has_the_terminal_itself(node):
    run = node.run(workers=1, program=["readlink", "/proc/self/fd/1"])
    assert "pipe" not in run.out
    run = node.run(workers=2, program=["readlink", "/proc/self/fd/1"])
    assert "pipe" in run.out


def test_stdin_is_inherited(node):
    reader, writer = os.pipe()
    os.write(writer, b"hello\n")
    run = node.run("ask", workers=1, stdin=reader)
    assert run.out == "hello\n"
    os.close(reader)
    os.close(writer)


def test_a_tee_has_the_prefix_on_the_console_only(node):
    run = node.run("write", "hello\\nworld\\n",
                   options=["--out", "tee", "--prefix", "default", "--log-dir", node.box.dir])
    assert sorted(run.out.splitlines()) == ["[default0]:hello", "[default0]:world",
                                            "[default1]:hello", "[default1]:world"]
    assert node.box.path("1.out").read_text() == "hello\nworld\n"


def test_a_last_line_without_an_end_is_kept(node):
    run = node.run("write", "one\\ntwo", workers=1,
                   options=["--out", "tee", "--prefix", "p", "--log-dir", node.box.dir])
    assert run.out == "[p0]:one\n[p0]:two"
    assert node.box.path("0.out").read_text() == "one\ntwo"


def test_unfinished_lines_of_two_workers_do_not_run_together(node):
    run = node.run("write", "no end")
    assert run.out == "no end\nno end"


def test_what_was_written_before_sigkill_is_not_lost(node):
    run = node.run("@1", "flood", "64000", "write", "last words", "die", "KILL", "@all", "hang")
    assert run.code == 137
    assert run.out.endswith("last words")
    assert len(run.out) == 64000 + len("last words")


def test_a_redirect_leaves_the_console_alone(node):
    run = node.run("write", "out\\n", "err", "err\\n",
                   options=["--out", "file", "--err", "file", "--log-dir", node.box.dir])
    assert (run.out, run.err) == ("", "")
    assert node.box.path("0.out").read_text() == "out\n"
    assert node.box.path("1.err").read_text() == "err\n"


def test_a_dropped_stream_goes_nowhere(node):
    run = node.run("write", "out\\n", "err", "err\\n", options=["--out", "drop"])
    assert (run.out, run.err) == ("", "err\nerr\n")


def test_a_filtered_rank_of_a_tee_writes_its_file_only(node):
    run = node.run("write", "x\\n", options=["--out", "teefile", "--log-dir", node.box.dir])
    assert run.out == ""
    assert node.box.path("0.out").read_text() == "x\n"


def test_matching_lines_are_collected_with_their_prefix(node):
    run = node.run("write", "loss 1\\nnoise\\nloss 2\\n",
                   options=["--out", "tee", "--prefix", "r", "--filter", "loss",
                            "--log-dir", node.box.dir])
    assert run.code == 0
    lines = node.box.path("0.filtered").read_text().splitlines()
    assert sorted(lines) == ["[r0]:loss 1", "[r0]:loss 2", "[r1]:loss 1", "[r1]:loss 2"]


def test_a_long_line_is_cut_and_nothing_is_lost(node):
    run = node.run("long", "200000")
    assert run.out.count("x") == 400000
    run = node.run("@0", "long", "200000", workers=1,
                   options=["--out", "tee", "--prefix", "p", "--log-dir", node.box.dir])
    assert all(line.startswith("[p0]:x") for line in run.out.splitlines())
    assert run.out.count("x") == 200000


def test_progress_bars_come_state_by_state(node):
    run = node.run("write", " 1%\\r 2%\\r 3%\\n", workers=1,
                   options=["--out", "tee", "--prefix", "p", "--log-dir", node.box.dir])
    assert run.out == "[p0]: 1%\r[p0]: 2%\r[p0]: 3%\n"


def test_a_grandchild_that_holds_the_pipe_does_not_block_the_end(node):
    run = node.run("holder", "write", "done\\n", "exit", "0")
    assert (run.code, run.out) == (0, "done\ndone\n")


def test_a_reader_that_goes_away_ends_who_writes_and_not_the_agent(node):
    """Workers get SIGPIPE, as without an agent between them and the reader."""
    server = node.serve()
    reader, writer = os.pipe()
    process = subprocess.Popen(
        [ctrun.program("agent_harness"), "--server", server.address, "--workers", "2", "--",
         ctrun.program("victim"), "flood", "3000000", "touch", str(node.box.path("done%r"))],
        stdout=writer, env=node.box.env)
    os.close(writer)
    assert os.read(reader, 10)
    os.close(reader)
    assert process.wait(60) == 141
    assert node.box.events("verdict"), "the agent has told how it ended"
    assert not list(node.box.dir.glob("done?"))


def test_a_slow_console_holds_back_only_the_rank_that_floods(node):
    server = node.serve(heartbeat_ms=50)
    reader, writer = os.pipe()
    process = subprocess.Popen(
        [ctrun.program("agent_harness"), "--server", server.address, "--workers", "2",
         "--out", "tee", "--log-dir", str(node.box.dir), "--",
         ctrun.program("victim"), "@0", "flood", "20000000", "@1", "write", "quiet\\n", "touch",
         str(node.box.path("quiet"))], stdout=writer, env=node.box.env)
    os.close(writer)
    ctrun.wait_until(node.box.path("quiet").exists, "the quiet rank is done")
    seen = len(server.received("HEARTBEAT"))
    server.wait_for("HEARTBEAT", seen + 20)  # the event loop runs, although nobody reads
    assert process.poll() is None
    assert node.box.path("0.out").stat().st_size < 4 << 20  # rank 0 waits
    total, tail = 0, b""
    while data := os.read(reader, 1 << 16):
        total += len(data)
        tail = data
    os.close(reader)
    assert process.wait(60) == 0
    assert total == 20000000 + len("quiet\n"), tail[-100:]


def test_a_flood_does_not_delay_heartbeats(node):
    server = node.serve(heartbeat_ms=50, lost_after_ms=6000)
    with open(os.devnull, "wb") as null:
        process = subprocess.Popen(
            [ctrun.program("agent_harness"), "--server", server.address, "--workers", "2",
             "--out", "tee", "--prefix", "p", "--log-dir", str(node.box.dir), "--",
             ctrun.program("victim"), "flood", "50000000"], stdout=null, env=node.box.env)
        # Six seconds without an answer to a heartbeat end the run with E_LEADER_LOST.
        assert process.wait(60 * ctrun.SLOW) == 0
    assert node.box.path("1.out").stat().st_size == 50000000


def test_flags_of_the_shared_console_are_not_touched(node):
    import fcntl
    reader, writer = os.pipe()
    before = fcntl.fcntl(writer, fcntl.F_GETFL)
    process = subprocess.Popen(
        [ctrun.program("agent_harness"), "--server", node.serve().address, "--workers", "2", "--",
         ctrun.program("victim"), "write", "x\\n", "hang"], stdout=writer, env=node.box.env)
    assert os.read(reader, 2) == b"x\n"
    assert fcntl.fcntl(writer, fcntl.F_GETFL) == before
    process.send_signal(signal.SIGTERM)
    process.wait(60)
    os.close(reader)
    os.close(writer)


def test_output_to_a_socket_works(node):
    import socket
    ours, theirs = socket.socketpair()
    process = subprocess.Popen(
        [ctrun.program("agent_harness"), "--server", node.serve().address, "--workers", "2", "--",
         ctrun.program("victim"), "flood", "80000"], stdout=theirs, env=node.box.env)
    theirs.close()
    total = 0
    while data := ours.recv(65536):
        total += len(data)
    assert (process.wait(60), total) == (0, 160000)


def tee(node, *more):
    return ["--out", "tee", "--prefix", "p", "--log-dir", node.box.dir, *more]


def test_t30_a_flood_tears_no_line_and_last_bytes_survive_sigkill(node):
    size = 80 * 512 * 1000  # 41 MB: not quite a second of 50 MB/s
    server = node.serve(workers=3, heartbeat_ms=200)
    bar = [word for percent in range(5) for word in ("write", f" {percent}%\\r", "sleep", "10")]
    run = node.start(
        "@0", "pour", "50000000", str(size), "touch", "poured",
        "@1", "write", "tick 1\\n", "sleep", "400", "write", "tick 2\\n", "sleep", "400",
        "write", "last words", "touch", "ticked",
        "@2", "write", "h\udcc3", "sleep", "20", "write", "\udca9llo\\n", *bar, "write", "\\n",
        "touch", "drawn", "@all", "hang", server=server, workers=3, options=tee(node))
    for name in ("poured", "ticked", "drawn"):
        ctrun.wait_until(node.box.path(name).exists, name, 60)
    ctrun.wait_until(lambda: node.box.path("0.out").stat().st_size == size, "rank 0's file")
    os.kill(node.box.events("worker_started", rank=1)[0]["worker_pid"], signal.SIGKILL)
    assert run.wait() == 137  # of rank 1's SIGKILL

    files = [node.box.path(f"{rank}.out").read_bytes() for rank in range(3)]
    assert len(files[0]) == size and set(map(len, files[0].split(b"\n"))) == {79, 0}
    assert files[1] == b"tick 1\ntick 2\nlast words"
    assert files[2] == "h\u00e9llo\n 0%\r 1%\r 2%\r 3%\r 4%\r\n".encode()

    pieces = [piece for piece in re.split(r"[\r\n]", run.out) if piece]
    by_rank = {rank: [piece[5:] for piece in pieces if piece.startswith(f"[p{rank}]:")]
               for rank in range(3)}
    assert sum(map(len, by_rank.values())) == len(pieces)
    assert len(by_rank[0]) == size // 80 and set(map(len, by_rank[0])) == {79}
    assert by_rank[1] == ["tick 1", "tick 2", "last words"]
    # A line that has begun is shown after 100 ms: then there may be two pieces, but no half of a character.
    assert [piece for piece in by_rank[2] if piece] in (
        [*hello, *(f" {i}%" for i in range(5))] for hello in (["h\u00e9llo"], ["h", "\u00e9llo"])), by_rank[2]
