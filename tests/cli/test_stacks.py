# SPDX-License-Identifier: Apache-2.0
"""ctrunctl stacks: where live workers are, with the lines of the script and the C frames above them.

With each CPython that is installed: python3.9 to python3.14 in PATH, and in the folders of
CTRUN_TEST_PYTHONS (separated by colons)."""
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys

import ctrun
import pytest

MINORS = range(9, 15)
TAKES_LOCK = r"    in (PyThread_acquire_lock_timed|_PySemaphore_Wait) \("  # of CPython, exported
NATIVE = platform.machine() == "x86_64"  # where C frames are read
native = pytest.mark.skipif(not NATIVE, reason="C frames are read on x86-64")
FOLDERS = os.environ.get("CTRUN_TEST_PYTHONS", "") + ":" + os.environ.get("PATH", "")

SCRIPT = """
import os, sys, threading

class Loader:
    def load(self):
        open(sys.argv[1] + "." + os.environ["RANK"], "w").close()
        self.lock.acquire()

def deep(n):
    if n:
        return deep(
            n - 1
        )
    Loader.lock = threading.Lock()
    Loader.lock.acquire()
    Loader().load()

def beside():
    [x for x in iter(lambda: threading.Event().wait(), 1)]

threading.Thread(target=beside, daemon=True).start()
deep(2)
"""


def find_python(minor):
    path = shutil.which(f"python3.{minor}", path=FOLDERS)
    if path and subprocess.run([path, "-c", ""], capture_output=True).returncode == 0:
        return path
    return None


def start(box, *command, count=2, front=()):
    return box.start(*front, ctrun.program("ctrun"), "--standalone", f"--nproc-per-node={count}", "--no-python",
                     *command)


def script(box, python, text=SCRIPT):
    return [python, box.write("where.py", text), box.path("up")]


def stacks(box, *words):
    return box.run(ctrun.program("ctrunctl"), "stacks", *words)


def wait_inside(box, count):
    for rank in range(count):
        ctrun.wait_until(box.path(f"up.{rank}").exists, f"rank {rank} is in load()")


@pytest.mark.parametrize("minor", MINORS)
def test_the_frames_of_each_version_are_read(box, minor):
    python = find_python(minor)
    if not python:
        pytest.skip(f"no python3.{minor} in PATH or CTRUN_TEST_PYTHONS")
    run = start(box, *script(box, python))
    wait_inside(box, 2)
    where = str(box.path("where.py"))
    loader = "Loader." if minor >= 11 else ""  # 3.11 is the first that has names with the class
    wanted = [f"    {loader}load ({where}:7)", f"    deep ({where}:16)", f"    deep ({where}:11)",
              f"    deep ({where}:11)", f"    <module> ({where}:22)"]

    def have():  # the first look may be from two moments: one before the lock
        found = stacks(box, "1")
        assert found.code == 0, found
        inner, line, rest = found.out.partition(wanted[0])
        is_in_lock = not NATIVE or re.search(TAKES_LOCK, inner if minor >= 11 else rest)
        return found.out if line and is_in_lock and ", sleeping" in found.out.splitlines()[0] else None
    text = ctrun.wait_until(have, lambda: f"{wanted[0]}\n{stacks(box, '1')}")
    lines = text.splitlines()
    pid = re.fullmatch(rf"rank 1: pid (\d+), Python 3\.{minor}, sleeping.*", lines[0])[1]
    assert re.fullmatch(rf"  thread {pid}, sleeping.*" if minor >= 11 else "  a thread", lines[1])
    at = lines.index(wanted[0])
    assert lines[at:at + 5] == wanted
    inner = "\n".join(lines[2:at])
    if not NATIVE:
        assert not inner
    elif minor >= 11:  # the first that names its threads as the kernel does
        assert re.search(r"^    in .*libc\.so", lines[2]) and re.search(TAKES_LOCK, inner), text
        assert "_PyEval_EvalFrameDefault" not in inner, text
    else:
        assert at == 2 and f"\n  thread {pid} (" in text and re.search(TAKES_LOCK, text), text
    assert any(re.fullmatch(rf"    beside(\.<locals>\.<listcomp>)? \({re.escape(where)}:19\)", line)
               for line in lines), text
    run.signal(signal.SIGTERM)
    run.wait()


def test_a_python_that_was_replaced_since_the_start_is_read(box):
    """As by an update of its environment."""
    real = os.path.realpath(ctrun.DEBIAN_PYTHON)
    python = shutil.copy(real, box.path(os.path.basename(real)))
    run = start(box, "env", "PYTHONHOME=/usr", *script(box, python), count=1)
    wait_inside(box, 1)
    os.unlink(python)
    shutil.copy(real, python)
    found = stacks(box).out
    assert re.search(r"^rank 0: pid \d+, Python 3\.", found) and "load (" in found, found
    os.unlink(python)
    assert "load (" in stacks(box).out
    run.signal(signal.SIGTERM)
    run.wait()


def test_all_ranks_of_the_node_and_json(box):
    run = start(box, *script(box, sys.executable), count=3)
    wait_inside(box, 3)
    found = stacks(box)
    assert [line.split(":")[0] for line in found.out.splitlines() if line.startswith("rank")] == [
        "rank 0", "rank 1", "rank 2"]
    assert json.loads(stacks(box, "--json").out)["stacks"].startswith("rank 0: pid ")
    assert stacks(box, "7").code != 0 and "rank 7: the world has ranks 0 to 2" in stacks(box, "7").err
    assert stacks(box, "x").code == 2
    run.signal(signal.SIGTERM)
    run.wait()


SAME = """
import os, sys, threading

ready, lock = threading.Barrier(4), threading.Lock()
lock.acquire()

def idle():
    ready.wait()
    lock.acquire()

for _ in range(3):
    threading.Thread(target=idle, daemon=True).start()
ready.wait()
open(sys.argv[1] + "." + os.environ["RANK"], "w").close()
threading.Event().wait()
"""


def test_threads_with_equal_states_and_frames_share_one_entry(box):
    run = start(box, *script(box, sys.executable, SAME), count=1)
    wait_inside(box, 1)
    where = re.escape(str(box.path("where.py")))
    ids = r", \d+ \d+ \d+, sleeping.*" if sys.version_info >= (3, 11) else ""
    entry = rf"^  3 threads{ids}\n(    in .*\n)*    idle \({where}:9\)$"
    ctrun.wait_until(lambda: re.search(entry, stacks(box).out, re.M), lambda: stacks(box))
    found = stacks(box).out
    assert found.count("idle (") == 1 and found.index("<module> (") < found.index("idle ("), found
    run.signal(signal.SIGTERM)
    run.wait()


def test_the_python_that_a_python_waits_for_is_shown_first(box):
    """As below `accelerate launch`."""
    wrapper = box.write("wrapper.py", "import subprocess, sys\nsubprocess.Popen([sys.executable, *sys.argv[1:]]).wait()\n")
    _, *words = script(box, sys.executable)
    run = start(box, sys.executable, wrapper, *words, count=1)
    wait_inside(box, 1)
    ctrun.wait_until(lambda: "load (" in stacks(box).out, lambda: stacks(box))
    found = stacks(box).out
    assert len(re.findall(r"^rank 0: pid \d+, Python 3", found, re.M)) == 2, found
    assert found.index("load (") < found.index("wrapper.py:2)"), found
    run.signal(signal.SIGTERM)
    run.wait()


def test_a_python_below_a_shell_is_found_and_other_programs_are_named(box):
    line = " ".join(map(str, script(box, sys.executable)))
    run = start(box, "sh", "-c", f"test $RANK = 1 && exec sleep 1000; {line}; :")
    wait_inside(box, 1)
    ctrun.wait_until(lambda: "sleep, sleeping" in stacks(box, "1").out, "rank 1 is sleep")
    found = stacks(box).out
    assert re.search(r"^rank 0: pid \d+, Python 3", found, re.M) and "deep (" in found
    assert re.search(r"^rank 1: pid \d+, sleep, sleeping.*; no Python$", found, re.M)
    run.signal(signal.SIGTERM)
    run.wait()


RUNS = "import sys\nopen(sys.argv[1] + '.0', 'w').close()\nsum(iter(int, 1))\n"


def shown(box, *patterns):
    """Waits until the output matches each pattern, and returns it."""
    def have():
        text = stacks(box).out
        return text if all(re.search(p, text, re.M) for p in patterns) else None
    return ctrun.wait_until(have, lambda: f"{patterns}\n{stacks(box)}")


@native
def test_a_worker_that_runs_in_c_is_read_and_goes_on(box):
    run = start(box, *script(box, sys.executable, RUNS), count=1)
    wait_inside(box, 1)
    text = shown(box, r"^rank 0: pid \d+, Python 3.*, running$", r"^    in .*python3",
                 rf"^    <module> \({re.escape(str(box.path('where.py')))}:3\)$")
    pid = int(re.match(r"rank 0: pid (\d+)", text)[1])
    used = cpu_ticks(pid)
    ctrun.wait_until(lambda: cpu_ticks(pid) > used, "it runs on")
    run.signal(signal.SIGTERM)
    run.wait()


def cpu_ticks(pid):
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rsplit(")", 1)[1].split()[11])


@native
def test_threads_without_python_that_are_at_one_place_are_one_entry(box):
    run = start(box, *script(box, sys.executable, "import ctypes\nlibc, ids = ctypes.CDLL(None), (ctypes.c_ulong * 3)()\n"
                             "for i in range(3):\n"
                             "    libc.pthread_create(ctypes.byref(ids, 8 * i), None, libc.pause, None)\n" + SCRIPT), count=1)
    wait_inside(box, 1)
    shown(box, r"^  3 threads, \d+ \d+ \d+, sleeping.*\n    in pause \(libc\.so\S*\)$")
    run.signal(signal.SIGTERM)
    run.wait()


@native
def test_a_thread_that_somebody_else_traces_is_said_to_be_so(box):
    run = start(box, *script(box, sys.executable, RUNS), count=1)
    wait_inside(box, 1)
    pid = re.match(r"rank 0: pid (\d+)", stacks(box).out)[1]
    tracer = box.start(sys.executable, "-c", "import ctypes, signal, sys\n"
                       "if ctypes.CDLL(None).ptrace(0x4206, int(sys.argv[1]), None, None): sys.exit(7)\n"
                       "open(sys.argv[2], 'w').close()\nsignal.pause()\n", pid, box.path("traced"))
    ctrun.wait_until(lambda: box.path("traced").exists() or tracer.process.poll() is not None, "it is traced")
    if not box.path("traced").exists():
        run.signal(signal.SIGTERM)
        run.wait()
        pytest.skip("ptrace() is refused here")
    shown(box, rf"could not be stopped: Operation not permitted, traced by pid {tracer.pid}$",
          rf"^    <module> \({re.escape(str(box.path('where.py')))}:3\)$")
    tracer.signal(signal.SIGTERM)
    tracer.wait()
    run.signal(signal.SIGTERM)
    run.wait()


def test_stopped_and_uninterruptible_workers_are_told_apart(box):
    box.write("stuck.py", "import os, sys\nos.mkfifo('pipe')\nopen(sys.argv[1] + '.1', 'w').close()\n"
              "os.posix_spawn('/bin/true', ['true'], os.environ,\n"
              "               file_actions=[(os.POSIX_SPAWN_OPEN, 0, 'pipe', os.O_RDONLY, 0)])\n")
    line = " ".join(map(str, script(box, sys.executable)))
    run = start(box, "sh", "-c", f"test $RANK = 1 && exec {ctrun.DEBIAN_PYTHON} stuck.py {box.path('up')}; exec {line}")
    wait_inside(box, 2)
    pid = int(re.search(r"^rank 0: pid (\d+)", stacks(box).out, re.M)[1])
    os.kill(pid, signal.SIGSTOP)
    where = re.escape(str(box.path("where.py")))
    text = shown(box, r"^rank 0: pid \d+, Python 3\.\d+, stopped \(T\)$", rf"load \({where}:7\)$",
                 r"^rank 1: pid \d+, Python 3\.\d+, uninterruptible sleep \(D\)")
    if NATIVE:  # neither needs to be stopped for it
        assert re.search(r"\(D\).*\n    in .*libc\.so", text), text
        assert re.search(TAKES_LOCK, text), text
    os.kill(pid, signal.SIGCONT)
    os.close(os.open(box.path("pipe"), os.O_WRONLY))
    run.signal(signal.SIGTERM)
    run.wait()


# A worker whose memory nobody may read.
HIDE = "import ctypes; ctypes.CDLL(None).prctl(4, 0)\n"


def test_a_kernel_that_refuses_is_named(box):
    command = ["setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"]
    if subprocess.run([*command, "true"], capture_output=True).returncode:
        pytest.skip("setpriv may not take CAP_SYS_PTRACE here")
    run = start(box, *script(box, sys.executable, HIDE + SCRIPT), count=1, front=command)
    wait_inside(box, 1)
    assert "its memory cannot be read: " in stacks(box).out
    run.signal(signal.SIGTERM)
    run.wait()


def test_control_characters_in_names_do_not_reach_the_terminal(box):
    text = ("code = compile('def f():\\n    import os, sys, threading\\n"
            "    open(sys.argv[1] + \".0\", \"w\").close()\\n    threading.Event().wait()\\nf()',"
            " 'a\\x1b[31m\\u20ac.py', 'exec')\nexec(code)\n")
    run = start(box, *script(box, sys.executable, text), count=1)
    wait_inside(box, 1)
    found = ctrun.wait_until(lambda: stacks(box).out if "f (a?[31m?.py:4)" in stacks(box).out else None,
                             lambda: str(stacks(box)))
    assert "\x1b" not in found
    run.signal(signal.SIGTERM)
    run.wait()


def two_nodes(box, *command):
    """The one that joins first is node 0."""
    port, runs = ctrun.free_port(), []
    for node in range(2):
        runs.append(box.start_ctrun("--nnodes=2", f"--node-rank={node}", "--nproc-per-node=2", "--rdzv-backend=c10d",
                                    f"--rdzv-endpoint=localhost:{port}", "--rdzv-id=stacks",
                                    f"--rdzv-conf=is_host={1 - node}", "--no-python", *command, env=control(box, node)))
        if node == 0:
            ctrun.wait_until(lambda: "1 of 2 nodes have joined" in runs[0].err, lambda: f"the first has joined\n{runs[0]}")
    return runs


@pytest.mark.parametrize("words", [[], ["7"]])
def test_before_the_first_round_it_says_that_nodes_are_waited_for(box, words):
    run = box.start_ctrun("--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{ctrun.free_port()}", "true")
    ctrun.wait_until(lambda: "1 of 2 nodes have joined" in run.err, lambda: f"it has joined\n{run}")
    found = stacks(box, *words)
    assert found.code == 1 and "no worker is running yet: this node waits for others (see ctrunctl status)\n" in found.err, found
    run.signal(signal.SIGTERM)
    run.wait()


def control(box, node):
    """Its own control folder, as on its own machine: ctrunctl asks every agent of a machine."""
    return {"CTRUN_CONTROL_DIR": str(box.path(f"ctl{node}"))}


def told(box, node, *words):
    answer = box.run(ctrun.program("ctrunctl"), "stacks", *words, env=control(box, node))
    assert answer.code == 0, answer
    return [line for line in answer.out.splitlines() if re.match(r"node|rank|the other", line)]


def answered(box, node, count, *words):
    """Asks until there are so many lines: a node may not answer in time on a busy machine."""
    def have():
        lines = told(box, node, *words)
        return lines if len(lines) == count else None
    return ctrun.wait_until(have, f"{count} lines of {words}", 60)


def test_all_nodes_answer_and_one_that_is_stuck_is_said_to_be_missing(box):
    runs = two_nodes(box, *script(box, sys.executable))
    wait_inside(box, 4)
    lines = answered(box, 1, 6)
    assert [line.split(":")[0] for line in lines if line.startswith("rank")] == [f"rank {n}" for n in range(4)], lines
    assert re.fullmatch(r"node 0 \(\S+\):", lines[0]) and re.fullmatch(r"node 1 \(\S+\):", lines[3]), lines
    assert all("Python 3" in line for line in lines if line.startswith("rank")), lines
    [node, rank] = answered(box, 1, 2, "1")  # of the other node
    assert node.startswith("node 0 (") and rank.startswith("rank 1: pid "), (node, rank)
    [rank] = told(box, 1, "2")
    assert rank.startswith("rank 2: pid "), rank
    [agent] = {e["pid"] for e in box.events("worker_started", rank=2)}
    os.kill(agent, signal.SIGSTOP)
    lines = told(box, 0)
    os.kill(agent, signal.SIGCONT)
    assert [line.split(":")[0] for line in lines[1:3]] == ["rank 0", "rank 1"], lines
    assert re.fullmatch(r"node 1 \(\S+\): no answer in \d+\.\d s", lines[3]), lines
    ctrun.stop(*runs)
