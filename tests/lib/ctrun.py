# SPDX-License-Identifier: Apache-2.0
"""What the system tests share: paths of the build, runs with a deadline, waits for a condition
instead of sleeps, the event stream, and a check that nothing is left behind.

A test asks for the fixture `box` (tests/conftest.py), a Box:

    def test_a_worker_that_exits_3_makes_ctrun_exit_3(box):
        run = box.ctrun("--standalone", "--nproc-per-node=2", "sh", "-c", "exit 3")
        assert run.code == 3
        assert box.events("worker_ended")[0]["code"] == 3

or, to act while it runs:

        run = box.start(ctrun.program("ctrun"), "--standalone", ...)
        box.wait_event("worker_started", count=2)
        os.kill(run.pid, signal.SIGKILL)
        box.wait_gone()

When the test ends, the fixture fails it if a process or a shared memory file of it is left, and
removes the folder. Deadlines are multiplied by BUSY and by CTRUN_TEST_SLOW (sanitizers).
"""
import contextlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("CTRUN_BUILD", ROOT / "build" / "dev")).resolve()
SLOW = float(os.environ.get("CTRUN_TEST_SLOW", "1"))
BUSY = 4  # a busy machine may be so many times slower; only a test that fails waits so long
MARK = "CTRUN_TEST_MARK"  # in the environment of everything that a test starts
DEBIAN_PYTHON = "/usr/bin/python3"  # the interpreter that has Debian's torch 1.13


def program(name):
    """Path of something that was built: ctrun, ctrund, ctrun-mnist, victim, ..."""
    for folder in ("bin", "tests/lib", "tests/proc", "tests/bench", "tests/interop",
                   "examples", "launcher", "rendezvous", "worker_sdk/cnn"):
        path = BUILD / folder / name
        if path.is_file():
            return str(path)
    raise FileNotFoundError(f"{name} is not built in {BUILD}")


def wait_until(condition, what, seconds=20):
    """Calls condition() until it returns a true value, and returns that. Fails after `seconds`
    (times BUSY and SLOW) with the text `what`, which may be a function. The last call begins after
    the deadline: on a busy machine a call may take long, and so may the time between two."""
    limit = seconds * BUSY * SLOW
    deadline = time.monotonic() + limit
    while True:
        is_last = time.monotonic() > deadline
        worked = time.thread_time()
        value = condition()
        if value:
            return value
        if is_last:
            text = what() if callable(what) else what
            raise AssertionError(f"not within {limit:g} s: {text}")
        # A condition that costs much is called less often, to leave the processors to the programs.
        time.sleep(max(0.005, 5 * (time.thread_time() - worked)))


def _read(path):
    try:
        return pathlib.Path(path).read_bytes()
    except OSError:
        return b""  # it has ended, or belongs to another user


def _environ(pid):
    """What a process was started with. During an exec(), as of a script's interpreter, there is
    none to read, nor is there by a descriptor from before it: then it is read again."""
    data = _read(f"/proc/{pid}/environ")
    deadline = time.monotonic() + 2 * BUSY
    while not data and time.monotonic() < deadline:
        is_in_exec = _is_in_exec(pid)
        data = _read(f"/proc/{pid}/environ")
        if not is_in_exec:
            break
    return data


def _is_in_exec(pid):
    """It has a program, as kernel threads and zombies have not, and its environment has no end yet."""
    try:
        os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return False
    fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return len(fields) > 48 and fields[48] == b"0"


def is_alive(pid):
    """A zombie is not alive."""
    stat = _read(f"/proc/{pid}/stat")
    return bool(stat) and stat.rpartition(b")")[2].split()[0] not in (b"Z", b"X")


def processes():
    """{(pid, inode of its folder)}: a process that gets the pid of an earlier one has another inode.
    stat() looks the folder up: the inode of a list of /proc may still be that of the earlier one."""
    found = set()
    with os.scandir("/proc") as entries:
        for entry in entries:
            with contextlib.suppress(OSError):  # it has ended
                if entry.name.isdigit():
                    found.add((entry.name, entry.stat().st_ino))
    return found


def pids_marked(mark, others=None):
    """Every live process that was started with this mark, in any session, and in PID namespaces
    below ours, too. `others`, as of processes(), are skipped; processes with another mark are added
    to it."""
    needle, any_mark = f"{MARK}={mark}\0".encode(), f"{MARK}=".encode()
    others = set() if others is None else others
    found = []
    for each in processes() - others:
        environ = _environ(each[0])
        if needle in environ:
            if int(each[0]) != os.getpid() and is_alive(each[0]):
                found.append(int(each[0]))
        elif any_mark in environ:
            others.add(each)
    return found


def environment(pid):
    pairs = (item.partition(b"=") for item in _environ(pid).split(b"\0"))
    return {key.decode(errors="replace"): value.decode(errors="replace")
            for key, _, value in pairs if key}


def cmdline(pid):
    return _read(f"/proc/{pid}/cmdline").decode(errors="replace").split("\0")[:-1]


def parent_of(pid):
    """None when the process has ended: unlike 0, that is nothing that os.kill() accepts."""
    stat = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return int(stat[1]) if stat else None


def guards_of(agent):
    """[second guard, guard] of an agent; the guard is the process that was started. None for one
    that has ended: the parent is then another process, as init."""
    def guard_above(pid):
        above = parent_of(pid)
        return above if above and cmdline(above) == cmdline(agent) else None  # no exec() is between them

    second = guard_above(agent)
    return [second, guard_above(second)]


def below(guard):
    """[second guard, agent] of a guard; empty when they are not there yet."""
    found = []
    for name in (b"(ctrun-guard)", b"(ctrun-agent)"):
        above = found[-1] if found else guard
        found += [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc")))
                  if name in _read(f"/proc/{pid}/stat") and parent_of(pid) == above][:1]
    return found if len(found) == 2 else []


def wait_removed(group):
    """Waits until the cgroup is empty, and removes it."""
    def is_removed():
        try:
            group.rmdir()
        except OSError:
            return False
        return True
    wait_until(is_removed, f"{group} is empty")


def why_no_mounts():
    """Why there can be no mount namespace here, as in a chroot; empty when there can."""
    probe = subprocess.run(["unshare", "--mount", "true"], capture_output=True, text=True)
    return f"no mount namespace can be made here: {probe.stderr.strip()}" if probe.returncode else ""


def needs_mounts():
    """Skips the test where there can be no mount namespace."""
    if why := why_no_mounts():
        pytest.skip(why)


def full_pipe():
    """Both ends of a pipe that has no room left."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        while True:
            os.write(writer, b"x\n" * 2048)
    except BlockingIOError:
        os.set_blocking(writer, True)
    return reader, writer


def free_port(address="127.0.0.1"):
    """A port that was free a moment ago, for endpoints that several programs must agree on. It is
    below the range that the kernel uses for connections, of which other tests make many."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    while True:
        with socket.socket(family) as probe, contextlib.suppress(OSError):
            probe.bind((address, random.randrange(12000, 32000)))
            return probe.getsockname()[1]


def kill_at_once(*pids):
    """Stops all of them first, so that none acts on the death of another."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def leads_its_group(pid):
    try:
        return os.getpgid(pid) == pid
    except ProcessLookupError:
        return False


def describe(pids):
    lines = []
    for pid in pids:
        words = _read(f"/proc/{pid}/cmdline").replace(b"\0", b" ").decode(errors="replace")
        lines.append(f"{pid} {words.strip()}")
    return "; ".join(lines)


def json_lines(text):
    """The objects that a text has, one in a line, without a last line that is being written."""
    return [json.loads(line) for line in text.splitlines(keepends=True)
            if line.startswith("{") and line.endswith("\n")]


def _shm_orphans(shm, before):
    """Files of ctrun in shared memory that are not in `before` and that no live process maps."""
    new = {n for n in os.listdir(shm) if "ctrun" in n and not n.startswith("ctrun-test-")} - before
    for entry in os.listdir("/proc") if new else ():
        if entry.isdigit():
            maps = _read(f"/proc/{entry}/maps")
            new -= {n for n in new if f"{shm}/{n}".encode() in maps}
            if not new:
                break
    return new


class Run:
    """One started program. stdout and stderr go to files, so that it cannot block on them."""

    def __init__(self, box, argv, env, cwd, new_session, stdin, fds):
        self.argv = [str(word) for word in argv]
        self._files = [tempfile.TemporaryFile(dir=box.dir) for _ in range(2)]
        self.process = subprocess.Popen(
            self.argv, stdin=stdin, stdout=self._files[0], stderr=self._files[1],
            env=env, cwd=cwd, start_new_session=new_session, pass_fds=fds)
        self.pid = self.process.pid

    def _text(self, index):
        # pread: the child shares this file's offset, so we must not move it.
        fd = self._files[index].fileno()
        return os.pread(fd, os.fstat(fd).st_size, 0).decode(errors="replace")

    @property
    def out(self):
        return self._text(0)

    @property
    def err(self):
        return self._text(1)

    @property
    def code(self):
        """The exit code as a shell shows it (128 + n for signal n); None while it runs."""
        rc = self.process.poll()
        return 128 - rc if rc is not None and rc < 0 else rc

    def wait(self, seconds=60):
        """Waits for the end and returns the exit code."""
        wait_until(lambda: self.code is not None,
                   lambda: f"{' '.join(self.argv)} ended\n{self}", seconds)
        return self.code

    def signal(self, number):
        self.process.send_signal(number)

    def close(self):
        for file in self._files:
            file.close()

    def __str__(self):
        return f"--- exit code {self.code}\n--- stdout\n{self.out}--- stderr\n{self.err}"

    __repr__ = __str__  # what pytest shows of a failed assertion


def stop(*runs):
    """Ends those that still run by SIGTERM, all at once."""
    for run in runs:
        if run.code is None:
            run.signal(signal.SIGTERM)
    for run in runs:
        run.wait()


class Box:
    """What belongs to one test: a folder, an environment, an event stream, and all its
    processes."""

    def __init__(self, shm="/dev/shm"):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="ctrun-test-"))
        self.mark = uuid.uuid4().hex
        self.events_path = self.dir / "events.ndjson"
        self.runs = []
        self._others = processes()  # existed before
        self.shm = shm
        self._shm_before = set(os.listdir(shm))
        self.env = {key: value for key, value in os.environ.items() if not self._is_foreign(key)}
        self.env.update({MARK: self.mark, "CTRUN_EVENTS": str(self.events_path),
                         "TMPDIR": str(self.dir), "CTRUN_CONTROL_DIR": str(self.dir / "ctl"),
                         "PATH": f"{BUILD / 'bin'}:{os.environ.get('PATH', '')}"})

    @staticmethod
    def _is_foreign(key):
        """Variables of a surrounding launcher or scheduler, which would change the test."""
        return (key.startswith(("PET_", "TORCHELASTIC_", "SLURM_", "CTRUN_", "PYTEST_", "PBS_",
                                "LSB_", "FLUX_", "OMPI_", "PMI_", "KUBERNETES_"))
                or key in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT",
                           "OMP_NUM_THREADS", "LOGLEVEL"))

    def path(self, name):
        return self.dir / name

    def write(self, name, text, mode=0o644):
        """Writes a file into the box; returns its path as a string. The file appears with its whole
        text: a worker that waits for it may remove it."""
        path = self.path(name)
        new = path.with_name(path.name + ".new")
        new.write_text(text)
        new.chmod(mode)
        new.rename(path)
        return str(path)

    def start(self, *argv, env=None, cwd=None, new_session=True, stdin=subprocess.DEVNULL,
              fds=()):
        run = Run(self, argv, {**self.env, **(env or {})}, cwd or self.dir, new_session, stdin,
                  fds)
        self.runs.append(run)
        return run

    def run(self, *argv, seconds=60, **how):
        """Runs to the end and returns the Run; fails the test when that takes too long."""
        run = self.start(*argv, **how)
        run.wait(seconds)
        return run

    def ctrun(self, *arguments, seconds=60, **how):
        return self.run(program("ctrun"), *arguments, seconds=seconds, **how)

    def start_ctrun(self, *arguments, **how):
        return self.start(program("ctrun"), *arguments, **how)

    def start_ctrund(self, **how):
        """Starts a ctrund at a free port; returns its Run and its endpoint."""
        run = self.start(program("ctrund"), "--listen=127.0.0.1:0", **how)
        found = wait_until(lambda: re.search(r"^listening on (\S+)$", run.out, re.M), lambda: f"the port is told\n{run}")
        return run, found[1]

    def events(self, name=None, **match):
        """Events so far, as dicts, of one kind and with these values when given."""
        found = []
        for line in _read(self.events_path).splitlines(keepends=True):
            if not line.endswith(b"\n"):
                break  # being written
            event = json.loads(line)
            if name in (None, event["event"]) and all(event.get(k) == v
                                                      for k, v in match.items()):
                found.append(event)
        return found

    def wait_event(self, name, count=1, seconds=30, **match):
        """Waits until `count` such events are there, and returns them."""
        def have():
            found = self.events(name, **match)
            return found if len(found) >= count else None

        def what():
            seen = [event["event"] for event in self.events()]
            errors = "\n".join(run.err for run in self.runs)
            return f"{count} event(s) {name} {match or ''}; seen {seen}\n{errors}"

        return wait_until(have, what, seconds)

    def pids(self):
        return pids_marked(self.mark, self._others)

    def workers(self, restart=None):
        """Live workers, rank -> pid; only those of the given restart count when one is given.
        A worker has a RANK, its parent has none, and it leads its process group: an orphan of a
        worker, which the agent has adopted, does not lead one."""
        found = {}
        for pid in self.pids():
            env = environment(pid)
            if "RANK" not in env or "RANK" in environment(parent_of(pid)):
                continue
            if not leads_its_group(pid):
                continue
            if restart is None or env.get("TORCHELASTIC_RESTART_COUNT") == str(restart):
                found[int(env["RANK"])] = pid
        return found

    def wait_workers(self, count, restart=0, seconds=30):
        """Waits until `count` workers of this restart count live; rank -> pid."""
        def have():
            found = self.workers(restart)
            return found if len(found) == count else None

        return wait_until(have, lambda: f"{count} workers of restart {restart}; there are "
                          f"{describe(self.pids())}\n" + "\n".join(str(r) for r in self.runs),
                          seconds)

    def wait_gone(self, seconds=10):
        """Waits until no process of this test is alive."""
        wait_until(lambda: not self.pids(), lambda: f"all gone: {describe(self.pids())}", seconds)

    def close(self):
        """Kills what is left, removes the folder, and returns a list of complaints."""
        complaints = []
        try:
            self.wait_gone(3)
        except AssertionError:
            pids = self.pids()
            complaints.append(f"processes survive the test: {describe(pids)}")
            while pids:
                for pid in pids:
                    try:
                        os.kill(pid, signal.SIGKILL)
                    except ProcessLookupError:
                        pass
                pids = self.pids()
        for run in self.runs:
            try:
                run.process.wait(10 * BUSY)
            except subprocess.TimeoutExpired:
                complaints.append(f"alive, and not found by its mark: {describe([run.process.pid])}")
                run.process.kill()
                run.process.wait()
            run.close()
        # A file of another test looks like an orphan until a process has mapped it.
        try:
            wait_until(lambda: not _shm_orphans(self.shm, self._shm_before), "no orphan", 2)
        except AssertionError:
            left = _shm_orphans(self.shm, self._shm_before)
            complaints.append(f"files survive in {self.shm}: {left}")
        shutil.rmtree(self.dir, ignore_errors=True)
        return complaints
