# SPDX-License-Identifier: Apache-2.0
"""A collective times out without --hang-timeout: ctrun says where the other ranks are before it stops them. With a
stand-in for torch (tests/lib/fake_torch.py); with torch itself: tests/interop/test_timeout_torch.py."""
import re
import shlex
import sys

import ctrun
import fake_torch
import schema

# Rank R executes argument R once all others are where they stay.
SCRIPT = """import os, pathlib, sys, time
from torch.distributed.distributed_c10d import call
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
def is_up(): pathlib.Path(f"up.{rank}").touch()
def rest():
    is_up(); os.read(os.pipe()[0], 1)
def wait():
    is_up(); call(8)
def fail(text):
    while len(list(pathlib.Path().glob("up.*"))) < world - 1 or not all(asleep(path) for path in pathlib.Path().glob("pid.*")):
        time.sleep(0.01)
    raise RuntimeError(text)
def asleep(path):
    return pathlib.Path(f"/proc/{path.read_text()}/syscall").read_text().startswith("0 ")  # read()
pathlib.Path(f"new.{rank}").write_text(str(os.getpid()))
if not sys.argv[1 + rank].startswith("fail"):
    os.rename(f"new.{rank}", f"pid.{rank}")
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    exec(sys.argv[1 + rank])
"""
LATE = "fail('[../gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 2000ms for recv operation to complete')"
STATE = r"sleeping[^\n]*"


def start(box, *programs, options=(), nproc=None, words=()):
    script = box.write("train.py", SCRIPT)
    return box.start_ctrun(f"--nproc-per-node={nproc or len(programs)}", "--shutdown-timeout=2", "--log-dir=logs", *options, script,
                           *programs, *words,
                           env=environment(box))


def environment(box):
    return {"PYTHON_EXEC": sys.executable, "PYTHONPATH": fake_torch.install(box.dir)}


def line_of(text):
    return 1 + next(i for i, line in enumerate(SCRIPT.splitlines()) if text in line)


def place(box):
    return re.escape(f"rest ({box.path('train.py')}:{line_of('is_up(); os.read')})")


def stacks(box):
    return {path.name: path.read_text() for path in box.path("logs").glob("*/attempt_0/stacks.*")}


def test_the_rank_that_was_in_no_collective_is_named(box):
    ended = start(box, LATE, "wait()", "rest()", "wait()")
    assert ended.wait() == 1, ended
    assert re.search(rf"^  so         : rank 2 was in no collective: {place(box)}, {STATE}$", ended.err, re.M), ended
    assert "ranks 1, 3 waited in a collective\n" in ended.err, ended
    assert re.search(rf"when rank 0 had ended, rank 2 was in no collective: {place(box)}, {STATE}$", ended.err, re.M), ended
    [text] = stacks(box).values()
    assert text.count("Python 3.") == 3 and "rest (" in text, text
    [event] = box.events("others_seen")
    schema.check(event, "events")
    assert (event["rank"], event["running"], event["outside"], event["waiting"]) == (0, 3, "2", "1, 3"), event
    assert event["path"].endswith("/attempt_0/stacks.node0.txt"), event


def test_it_is_named_where_a_restart_follows(box):
    ended = start(box, LATE, "rest()", options=["--max-restarts=1"])
    assert ended.wait() == 0, ended
    assert re.search(rf"when rank 0 had ended, rank 1 was in no collective: {place(box)}, ", ended.err), ended
    assert len(stacks(box)) == 1


def test_a_connection_that_broke_before_any_rank_was_seen_to_end_counts_as_well(box):
    ended = start(box, "fail('[x/gloo/transport/tcp/pair.cc:1] Connection closed by peer')", "rest()")
    assert ended.wait() == 1 and re.search(rf"^  so         : rank 1 was in no collective: {place(box)}", ended.err, re.M), ended


def test_after_another_failure_nobody_looks(box):
    ended = start(box, "fail('boom')", "rest()")
    assert ended.wait() == 1 and "in no collective" not in ended.err, ended
    assert not stacks(box) and not box.events("others_seen")


def test_where_all_the_others_wait_nobody_is_named(box):
    ended = start(box, LATE, "wait()")
    assert ended.wait() == 1 and "in no collective" not in ended.err, ended
    assert "  so         : rank 1 waited in a collective\n" in ended.err and len(stacks(box)) == 1, ended


def test_a_rank_that_computes_in_its_backward_pass_is_not_said_to_wait(box):
    backward = "def backward():\n    is_up()\n    while True: pass"
    late = LATE.replace("fail(", "raise RuntimeError(").rstrip()
    ended = start(box, f"while not os.path.exists('up.1'): time.sleep(0.01)\n{late}",
                  f"exec(compile({backward!r}, '/x/torch/autograd/__init__.py', 'exec'))\nbackward()")
    assert ended.wait() == 1 and "waited in a collective" not in ended.err, ended
    assert re.search(r"when rank 0 had ended, rank 1 was in \S", ended.err), ended


def test_another_node_says_where_its_ranks_were(box):
    port = ctrun.free_port()
    options = ["--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}"]
    nodes = [start(box, LATE, "wait()", "rest()", "wait()", options=options, nproc=2) for _ in range(2)]
    assert [node.wait() for node in nodes] == [1, 1], nodes
    said = nodes[0].err + nodes[1].err
    assert re.search(rf"when rank 0 had ended, rank 2 was in no collective: {place(box)}, {STATE}$", said, re.M), nodes
    assert sorted(stacks(box)) == ["stacks.node0.txt", "stacks.node1.txt"], nodes
    assert "  world      : of 4 ranks on 2 nodes 3 wait in a collective (0-1, 3)\n" in said, nodes


def test_where_all_ranks_of_all_nodes_waited_no_rank_is_said_to_be_behind(box):
    port = ctrun.free_port()
    options = ["--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}"]
    nodes = [start(box, LATE, "wait()", options=options, nproc=1) for _ in range(2)]
    assert [node.wait() for node in nodes] == [1, 1], nodes
    said = nodes[0].err + nodes[1].err  # one of them prints more than one line
    assert "  world      : of 2 ranks on 2 nodes 2 wait in a collective (" in said, nodes
    assert "  do         : no rank is behind: look at the network between the nodes; " in said, nodes
    assert "that is behind" not in said, nodes


def test_with_several_roles_the_stacks_of_the_global_ranks_are_saved_and_nobody_is_named(box):
    command = shlex.join([str(box.write("train.py", SCRIPT)), "rest()", LATE, "wait()"])
    ended = box.start_ctrun("--standalone", "--shutdown-timeout=2", "--log-dir=logs", "--role", f"actor=1:{command}",
                            "--role", f"learner=2:{command}", env=environment(box))
    assert ended.wait() == 1 and "in no collective" not in ended.err and "waited in a" not in ended.err, ended
    assert "  role       : learner, rank 0 of 2\n" in ended.err, ended
    [text] = stacks(box).values()
    assert re.findall(r"^rank \d: pid", text, re.M) == ["rank 0: pid", "rank 2: pid"], text
    [event] = box.events("others_seen")
    assert (event["rank"], event["running"], event["outside"], event["waiting"]) == (1, 2, "", ""), event
