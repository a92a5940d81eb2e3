# SPDX-License-Identifier: Apache-2.0
"""Checkpoints that the agent holds in memory: they outlive a worker that is killed at any stage, and a
restarted worker finds them there."""
import os
import re
import signal

import ctrun
import pytest
from test_module import OURS, PYTHON, alone, launch, said

HELD = """
import os, pathlib, signal, sys
path = "disk/last.ckpt"
def old():
    return open(path, "rb").read() if os.path.exists(path) else None
def die():
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def disk(box):
    """The folder of the checkpoint."""
    folder = box.path("disk")
    folder.mkdir()
    return folder


@pytest.fixture
def hung(disk):
    """An environment in which fsync() hangs there while it has a file "hung"."""
    if ctrun.SLOW > 1:
        pytest.skip("the sanitizers' libraries come first")
    (disk / "hung").touch()
    return {"LD_PRELOAD": str(ctrun.BUILD / "tests/lib/libhung.so"), "CTRUN_TEST_HUNG": str(disk)}


def test_alone_the_end_of_the_with_writes_the_file(box, disk):
    box.write("disk/last.ckpt", "before")
    run = alone(box, HELD + """
with ctrun.hold(path) as f:
    print("said", f.write(b"abc"), f.write(memoryview(b"defg")[1:]), f.write(bytearray(b"h")), f.tell(), old())
print("said", old(), ctrun.held(path), ctrun.hold_wait())
try:
    with ctrun.hold(path) as f:
        f.write(b"xyz")
        raise KeyError("on the way")
except KeyError:
    print("said", old())
try:
    f.write(b"late")
except ValueError as error:
    print("said", error)
for name in ("nowhere/x", ".", "", "a" * 300):
    try:
        ctrun.hold(name)
    except ctrun.Error as error:
        print("said", error)
""")
    assert run.code == 0 and os.listdir(disk) == ["last.ckpt"], run
    lines = said(run)
    assert "3 3 1 7 b'before'" in lines and "b'abcefgh' None None" in lines and "b'abcefgh'" in lines, run
    assert "the checkpoint is committed or dropped" in lines and len(lines) == 8, run
    assert "hold checkpoint nowhere/x: its folder: No such file or directory" in lines, run
    assert "hold checkpoint .: not the name of a file" in lines, run
    assert any(line.startswith("hold checkpoint aaa") and "its name is longer than" in line for line in lines), run


def test_threads_wait_for_each_other(box, disk):
    run = alone(box, HELD + """
import threading
def add(f, byte):
    for _ in range(40):
        f.write(byte * 300000)
with ctrun.hold(path) as f:
    threads = [threading.Thread(target=add, args=(f, byte)) for byte in (b"a", b"b", b"c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print("said", [old().count(byte) for byte in (b"a", b"b", b"c")])
""")
    assert run.code == 0 and said(run) == ["[12000000, 12000000, 12000000]"], run


def test_a_child_of_fork_leaves_it_to_its_parent(box, disk):
    run = alone(box, HELD + """
import threading
with ctrun.hold(path) as f:
    f.write(b"abc")
    is_taken, is_over = threading.Event(), threading.Event()
    def inside():  # as a thread is that writes while this one forks
        with f._lock:
            is_taken.set()
            is_over.wait()
    thread = threading.Thread(target=inside)
    thread.start()
    is_taken.wait()
    child = os.fork()
    if child == 0:
        f.close()
        os._exit(0)
    print("said", os.waitpid(child, 0)[1])
    is_over.set()
    thread.join()
    f.write(b"def")
print("said", old())
""")
    assert run.code == 0 and said(run) == ["0", "b'abcdef'"], run


def test_what_is_committed_is_written_by_the_agent_and_found_in_its_memory(box, disk):
    run = launch(box, HELD + """
import hashlib
data = os.urandom(3 << 20) + b"end"
for n in range(4):
    with ctrun.hold(path) as f:
        f.write(data[:-3])
        f.write(b"%3d" % n)
ctrun.hold_wait()
with open(path, "rb") as f, ctrun.held(path) as g:
    mine, theirs = f.read(), g.read()
    print("said", mine == theirs == data[:-3] + b"  3", len(mine))
os.utime(path, (1, 1))
print("said", ctrun.held(path), ctrun.held("other"))
""", workers=1)
    assert run.code == 0 and said(run) == ["None None", "True 3145731"], run
    assert os.listdir(disk) == ["last.ckpt"]
    ends = box.events("checkpoint_held")
    assert len(ends) == 4 and {(end["state"], end["worker"], end["rank"]) for end in ends} == {
        ("written", "there", 0)}, ends


def test_after_a_save_that_could_not_begin_the_next_one_can(box, disk):
    run = launch(box, HELD + """
import resource
with ctrun.hold(path) as f:
    f.write(b"before")
free = os.open("/", os.O_RDONLY)  # room for the descriptor of the folder, and none for the memory
os.close(free)
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (free + 1, hard))
try:
    ctrun.hold(path)
except ctrun.Error as error:
    print("said", error)
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
with ctrun.hold(path) as f:
    f.write(b"after")
ctrun.hold_wait()
print("said", old())
""", workers=1)
    assert run.code == 0 and said(run) == [
        "b'after'", "hold checkpoint disk/last.ckpt: its memory: Too many open files"], run


@pytest.mark.parametrize("stage", ["open", "write", "leave"])
def test_a_worker_killed_before_the_commit_leaves_the_old_file(box, disk, stage):
    box.write("disk/last.ckpt", "before")
    run = launch(box, HELD + f"""
f = ctrun.hold(path)
if "{stage}" != "open":
    f.write(b"x" * 5000000)
if "{stage}" == "leave":
    os._exit(3)
die()
""", workers=1)
    assert run.code != 0 and box.path("disk/last.ckpt").read_text() == "before", run
    assert not box.events("checkpoint_held") and os.listdir(disk) == ["last.ckpt"], run


def test_a_worker_killed_after_the_commit_has_its_file_written_and_told(box, disk, hung):
    box.write("disk/last.ckpt", "before")
    run = launch(box, HELD + """
with ctrun.hold(path) as f:
    f.write(b"new" * 1000000)
die()
""", workers=1, start=True, **hung)
    box.wait_event("worker_ended", code=signal.SIGKILL)
    assert box.path("disk/last.ckpt").read_text() == "before" and run.code is None
    (disk / "hung").unlink()
    assert run.wait() == 128 + signal.SIGKILL, run
    assert box.path("disk/last.ckpt").read_bytes() == b"new" * 1000000 and os.listdir(disk) == ["last.ckpt"], run
    assert re.search(r"ctrun: rank 0 has ended; its checkpoint disk/last.ckpt \(2.9 MiB\) was written from memory, "
                     r"[\d.]+ s after it was committed", run.err), run
    [end] = box.events("checkpoint_held")
    assert end["state"] == "written" and end["worker"] == "gone" and end["bytes"] == 3000000


def test_the_next_world_begins_when_it_is_on_the_disk_and_finds_it_in_memory(box, disk, hung):
    run = launch(box, HELD + """
if ctrun.run().restart_count == 0:
    with ctrun.hold(path) as f:
        f.write(b"step 7")
    die()
with ctrun.held(path) as f:
    print("said", f.read(), old())
""", "--max-restarts=1", workers=1, start=True, **hung)
    box.wait_event("round_stopped")
    assert len(box.events("worker_started")) == 1
    (disk / "hung").unlink()
    assert run.wait() == 0, run
    assert said(run) == ["b'step 7' b'step 7'"], run
    order = [event["event"] for event in box.events()
             if event["event"] in ("round_stopped", "checkpoint_held", "worker_started")]
    assert order[:4] == ["worker_started", "round_stopped", "checkpoint_held", "worker_started"], order


def test_two_interrupts_end_the_wait_for_a_disk_that_hangs(box, disk, hung):
    run = launch(box, HELD + """
with ctrun.hold(path) as f:
    f.write(b"new")
""", workers=1, start=True, **hung)
    box.wait_event("agent_state", to="ended")
    ctrun.wait_until(lambda: run.code is not None or run.signal(signal.SIGINT), lambda: run)
    assert "its checkpoint disk/last.ckpt (3 bytes) was committed to memory and is not on the disk: interrupted" in run.err
    assert os.listdir(disk) == ["hung"], run


def test_a_template_that_dies_meanwhile_does_not_end_the_wait(box, disk, hung):
    """Tunables of malloc: what was freed before the wait has other bytes."""
    run = launch(box, HELD + """
with ctrun.hold(path) as f:
    f.write(b"new")
""", "--warm=json", workers=1, start=True, GLIBC_TUNABLES="glibc.malloc.perturb=165:glibc.malloc.tcache_count=0", **hung)
    [template] = {event["template_pid"] for event in box.wait_event("template_state", to="ready")}
    box.wait_event("agent_state", to="ended")
    os.kill(template, signal.SIGKILL)
    ctrun.wait_until(lambda: not ctrun.is_alive(template), "the template is dead")
    ctrun.wait_until(lambda: run.code is not None or run.signal(signal.SIGINT), lambda: run)
    assert "its checkpoint disk/last.ckpt (3 bytes) was committed to memory and is not on the disk: interrupted" in run.err


def test_a_disk_that_is_full_is_told_and_the_old_file_stays(box):
    ctrun.needs_mounts()
    box.path("full").mkdir()
    script = box.write("script.py", """
import ctrun
with ctrun.hold("full/last.ckpt") as f:
    f.write(b"x" * 2000000)
try:
    ctrun.hold_wait()
except ctrun.Error as error:
    print("said", error.code, error)
print("said", ctrun.held("full/last.ckpt"))
""")
    run = box.run("unshare", "--mount", "sh", "-c", "mount -t tmpfs -o size=1m none full && echo before >full/last.ckpt && "
                  "$0 --standalone $1 && echo said $(ls -A full) $(cat full/last.ckpt)", ctrun.program("ctrun"), script,
                  env=OURS)
    assert run.code == 0, run
    assert said(run) == ["-28 held checkpoint: No space left on device", "None", "last.ckpt before"], run
    assert re.search(r"warning.*: rank 0: its checkpoint full/last.ckpt \(1.9 MiB\) was committed to memory and is "
                     r"not on the disk: No space left on device; the file that was there before is unchanged",
                     run.err), run


def test_a_run_whose_last_checkpoint_was_lost_is_no_success(box):
    """Nobody has asked for it; with hold_wait() the worker decides (above)."""
    ctrun.needs_mounts()
    box.path("full").mkdir()
    script = box.write("script.py", """
import ctrun
with ctrun.hold("full/last.ckpt") as f:
    f.write(b"x" * 2000000)
""")
    run = box.run("unshare", "--mount", "sh", "-c", "mount -t tmpfs -o size=1m none full && exec $0 --standalone $1",
                  ctrun.program("ctrun"), script, env=OURS)
    assert run.code == 1, run
    assert ("error[E_RESOURCES]: the workers have succeeded, but rank 0's last checkpoint, full/last.ckpt, "
            "is not on the disk: No space left on device") in run.err, run


def test_memory_that_changes_after_the_commit_is_never_named(box, disk):
    """The worker changes bytes that it has written, as no call of libctrun does."""
    box.write("disk/last.ckpt", "before")
    run = launch(box, HELD + """
f = ctrun.hold(path)
f.write(b"good" * 1000)
[memory] = [name for name in os.listdir("/proc/self/fd") if os.path.lexists(f"/proc/self/fd/{name}")
            and "ctrun-checkpoint" in os.readlink(f"/proc/self/fd/{name}")]
other = open(f"/proc/self/fd/{memory}", "r+b", buffering=0)
other.write(b"evil")
f.commit()
try:
    ctrun.hold_wait()
except ctrun.Error as error:
    print("said", error)
""", workers=1)
    assert said(run) == ["held checkpoint: its bytes were changed after the commit"], run
    assert box.path("disk/last.ckpt").read_text() == "before" and os.listdir(disk) == ["last.ckpt"]


HOSTILE = """
import array, os, socket, struct
def frame(kind, body):
    return bytes([0xC7, 0x52, 8, kind]) + struct.pack("<I", len(body)) + body
def text(value):
    return struct.pack("<I", len(value)) + value
def hold(verb, amount=0, name=b"", fd=None):
    data = frame(52, struct.pack("<BQIQQ", verb, amount, 0, 1, 2) + text(name) + text(b"p"))
    return data, [] if fd is None else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))]
folder, null = os.open(".", os.O_RDONLY), os.open("/dev/null", os.O_RDWR)
BEGIN, RESERVE, COMMIT, DROP, WAIT, FIND = range(1, 7)
def told(*requests):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(60)
    s.connect(os.environ["CTRUN_AGENT_SOCKET"])
    s.sendall(frame(32, struct.pack("<iQ", 0, int(os.environ["CTRUN_GENERATION"]))))
    try:
        for data, fds in requests:
            s.sendmsg([data], fds)
            answer = s.recv(4096)
            if not answer:
                return "closed"
        return struct.unpack("<i", answer[8:12])[0]
    except ConnectionError:
        return "closed"
begin = hold(BEGIN, 10, b"x", folder)
print("said", told(hold(BEGIN, 10, b"x")), told(hold(BEGIN, 10, b"../x", folder)), told(hold(BEGIN, 10, b"..", folder)),
      told(hold(COMMIT, 10, fd=null)), told(begin, begin), told(begin, hold(COMMIT, 10, fd=null)),
      told(begin, hold(COMMIT, 11, fd=os.memfd_create("m"))), told(begin, hold(COMMIT, 10)), told(hold(99)),
      told(hold(RESERVE, 5)))
print("said", told(begin, hold(RESERVE, 1 << 62)), told(hold(BEGIN, (1 << 64) - 1, b"x", folder)),
      told(begin, hold(DROP)), told(hold(FIND, 0, b"x")), told(hold(WAIT)))
"""


def test_a_worker_that_lies_loses_its_connection_and_nothing_else(box):
    run = launch(box, HOSTILE, workers=1)
    assert run.code == 0, run
    assert said(run) == ["-20013 -20013 0 -2 0", " ".join(["closed"] * 10)], run


def test_torch_saves_into_it_and_loads_from_it(box, disk):
    if box.run(PYTHON, "-c", "import torch", env=OURS).code:
        pytest.skip("no torch for this Python")
    run = launch(box, HELD + """
import torch
state = {"w": torch.arange(300000.0), "step": 7}
if ctrun.run().restart_count == 0:
    with ctrun.hold(path) as f:
        torch.save(state, f)
    die()
with ctrun.held(path) as f:
    found = torch.load(f)
print("said", torch.equal(found["w"], state["w"]), found["step"], torch.equal(torch.load(path)["w"], state["w"]))
""", "--max-restarts=1", workers=1)
    assert run.code == 0 and said(run) == ["True 7 True"], run
