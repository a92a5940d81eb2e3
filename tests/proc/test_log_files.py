# SPDX-License-Identifier: Apache-2.0
"""Log files: disks that are full or do not answer, size caps."""
import os
import re

import ctrun


def tee(node, *more):
    return ["--out", "tee", "--prefix", "p", "--log-dir", node.box.dir, *more]


def test_a_full_disk_costs_the_file_and_not_the_worker(node):
    node.box.path("0.out").symlink_to("/dev/full")
    run = node.run("flood", "8000000", "write", "done\\n", options=tee(node))
    assert run.code == 0
    # Without counting lines: one that waits for its end for 0.1 s is printed in two.
    assert len(re.sub(r"(?m)^\[p\d\]:|\n", "", run.out)) == 2 * (100000 * 79 + 4)
    [lost] = node.box.events("log_file_lost")
    assert lost["path"] == str(node.box.path("0.out"))
    assert node.box.path("1.out").stat().st_size == 8000005


def test_files_that_are_lost_after_the_first_one_are_counted(node):
    for rank in range(2):
        for stream in ("out", "err"):
            node.box.path(f"{rank}.{stream}").symlink_to("/dev/full")
    run = node.run("write", "out\\n", "err", "err\\n",
                   options=["--out", "file", "--err", "file", "--log", "on", "--log-dir", node.box.dir])
    assert run.code == 0
    assert len(node.box.events("log_file_lost")) == 4
    assert run.err.count("nothing more is written to it") == 1 and "3 more log files could not be written" in run.err


def test_a_redirect_to_a_full_disk_does_not_stop_the_worker(node):
    node.box.path("0.out").symlink_to("/dev/full")
    run = node.run("flood", "800000", "touch", "done%r",
                   options=["--out", "file", "--log-dir", node.box.dir])
    assert run.code == 0 and node.box.path("done0").exists()
    assert len(node.box.events("log_file_lost")) == 1


def test_a_file_that_cannot_be_opened_is_told_and_the_worker_goes_on(node):
    node.box.path("1.out").mkdir()
    run = node.run("write", "out\\n", options=tee(node, "--log", "on"))
    assert run.code == 0 and sorted(run.out.splitlines()) == ["[p0]:out", "[p1]:out"]
    [lost] = node.box.events("log_file_lost")
    assert lost["path"] == str(node.box.path("1.out"))


def read_some(fd):
    try:
        return os.read(fd, 1 << 20)
    except BlockingIOError:
        return b""


def test_a_file_system_that_does_not_answer_holds_up_nobody_else(node):
    """A named pipe that is full and that nobody reads stands in for a hung NFS server."""
    os.mkfifo(node.box.path("0.out"))
    reader = os.open(node.box.path("0.out"), os.O_RDWR | os.O_NONBLOCK)
    server = node.serve(heartbeat_ms=50)
    run = node.start("@0", "flood", "20000000", "@1", "write", "quiet\\n", "touch", "quiet",
                     server=server, options=tee(node))
    ctrun.wait_until(node.box.path("quiet").exists, "the quiet rank is done")
    server.wait_for("HEARTBEAT", len(server.received("HEARTBEAT")) + 20)  # the event loop runs
    data = b""

    def is_read():
        nonlocal data
        is_over = run.code is not None  # asked before the last read
        more = read_some(reader)
        data += more
        return is_over and not more

    ctrun.wait_until(is_read, "all is read, and the run is over", 60)
    os.close(reader)
    assert run.code == 0
    assert run.out.count("[p0]:") == 250000
    left_out = sum(map(int, re.findall(rb"\[ctrun: (\d+) bytes left out", data)))
    assert len(re.sub(rb"\n\[ctrun: .*\n", b"", data)) + left_out == 20000000
    assert node.box.path("1.out").read_text() == "quiet\n"


def test_a_file_system_that_never_answers_costs_the_file_only(node):
    os.mkfifo(node.box.path("0.out"))
    run = node.run("@0", "flood", "8000000", "@1", "write", "quiet\\n", options=tee(node))
    assert run.code == 0
    assert run.out.count("[p0]:") == 100000 and "[p1]:quiet\n" in run.out
    assert node.box.events("log_file_stalled")[0]["path"] == str(node.box.path("0.out"))


def rotated(box, name):
    """The renamed files of a log file, oldest first, and the file itself."""
    old = sorted(box.dir.glob(f"{name}.*"), key=lambda path: -int(path.suffix[1:]))
    return [path.read_text() for path in (*old, box.path(name))]


def test_a_file_with_a_cap_makes_room_and_keeps_lines_whole(node):
    run = node.run("flood", "1600000", workers=1,
                   options=["--out", "file", "--log-dir", node.box.dir,
                            "--log-max", "300000", "--log-keep", "9"])
    assert run.code == 0
    files = rotated(node.box, "0.out")
    assert len(files) == 6 and all(len(text) <= 300000 for text in files)
    assert all(text.endswith("\n") for text in files)
    assert sum(map(len, files)) == 1600000


def test_no_more_files_are_kept_than_asked_for(node):
    run = node.run("flood", "1600000", "write", "end\\n", workers=1,
                   options=tee(node, "--log-max", "100000", "--log-keep", "2"))
    assert run.code == 0
    files = rotated(node.box, "0.out")
    assert len(files) == 3 and files[-1].endswith("end\n")
    assert run.out.count("[p0]:") == 20001  # the console has all lines
