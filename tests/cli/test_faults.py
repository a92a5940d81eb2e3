# SPDX-License-Identifier: Apache-2.0
"""Whole programs in which one call fails: an allocation, or a call that opens, reads, writes or
makes a socket. Whatever fails, the program ends by itself, prints why when its exit code is not 0,
never crashes, never reports a failed run as a success and leaves no process behind.

The scripts of tests/lib/fault_bodies.py use every unit of ctrun and ctrunctl. A first run of each
lists its calls with their callers. Then for each function of agent, launcher and server that makes
such a call, itself or through a lower layer, each kind of call fails once, in the first script that
gets there.

With CTRUN_TEST_FAULTS=paths each call fails once for each path of three more callers (a quarter of
an hour on two cores). With CTRUN_TEST_FAULTS=all each call of each script fails, one after the
other (some 22,000: hours). Under the address sanitizer, which also looks for leaks,
CTRUN_TEST_FAULTS=each does what is the default without it."""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

import ctrun
import etcd as etcd_server
import fake_ssh
import fault_bodies
import launch
import pytest

ASKED = os.environ.get("CTRUN_TEST_FAULTS")
ALL = ASKED == "all"
PATHS = ASKED == "paths"
pytestmark = [pytest.mark.both, pytest.mark.skipif(
    ctrun.SLOW > 1 and not ASKED, reason="the address sanitizer makes it slow: CTRUN_TEST_FAULTS=each looks for leaks")]
KINDS = ["memory", "open", "read", "write", "socket"]
LIBRARY = ctrun.BUILD / "tests" / "lib" / "libfault.so"
FOLDERS = ("agent", "launcher", "rendezvous")  # whose code has to handle a failure

# Units whose failing calls no script can reach on every machine, and the unit test that does.
ELSEWHERE = {
    "launcher/hardware/numa.c": ("numa_test.c", "no_memory_is_told_and_nobody_is_bound"),
    "launcher/config/placement.c": ("numa_test.c", "no_memory_is_told_and_nobody_is_bound"),
    "launcher/hardware/amd_gpus.c": ("amd_gpus_test.c", "what_cannot_be_read_is_no_gpu"),
    "launcher/hardware/own_gpu.c": ("own_gpu_test.c", "without_memory_it_is_not_known"),
    "launcher/hardware/nic_hints.c": ("nics_test.c", "no_memory_is_told_and_nothing_is_named"),
    "launcher/hardware/nics.c": ("nics_test.c", '"/nonexistent"'),
    "launcher/net/route.c": ("route_test.c", "no_memory_for_an_entry_is_told"),
    "launcher/config/jax_env.c": ("jax_env_test.c", "no_memory_for_a_variable_is_told"),
    "agent/watch/node_calls.c": ("node_calls_test.c", "without_memory_nothing_is_taken_and_no_call_is_lost"),
    "agent/watch/own_ranks.c": ("own_ranks_test.c", "no_memory_is_told_and_nobody_is_blamed"),
    "agent/recorder/json_recorder.c": ("json_recorder_test.c", "no_memory_for_the_calls_is_told"),
    "agent/control/ctl_mark_file.c": ("ctl_mark_test.c", "a_mark_that_cannot_be_written_or_read_is_none"),
    "agent/process/fork_limit.c": ("fork_limit_test.c", "what_cannot_be_read_names_no_limit"),
    "agent/process/child.c": ("child_test.c", "a_cgroup_that_is_none_is_refused_and_nobody_is_born"),
}


class Memory:
    """A memory cgroup of 64 MiB, where one can be made."""

    def __init__(self, box):
        sys.path.insert(0, str(ctrun.ROOT / "tests" / "proc"))
        import test_memory
        parent, limit = test_memory.parent_group()
        self.group = parent / f"ctrun-test-{box.mark[:8]}"
        try:
            self.group.mkdir()
            (self.group / limit).write_text(str(64 << 20))
        except OSError:
            self.close()
            self.group = None

    def close(self):
        if self.group and self.group.exists():
            self.group.rmdir()


class Bench:
    """What all scripts share, and what cannot be used on this machine."""

    def __init__(self, box):
        if etcd_server.why_not():
            pytest.skip(etcd_server.why_not())
        self.memory = Memory(box)
        self.without = set()
        self.env = {"HERE": str(ctrun.ROOT / "tests" / "lib"), "PYTHON": ctrun.DEBIAN_PYTHON,
                    "TESTS": str(ctrun.BUILD / "tests" / "lib"), "SLOW": str(int(ctrun.SLOW)), "GROUP": str(self.memory.group)}
        self.etcd = etcd_server.Etcd(box)
        self.env["ETCD"] = self.etcd.endpoint
        if not self.memory.group:
            self.without.add("oom")
        if os.getuid():
            self.without.add("two-hosts")

    def close(self):
        self.etcd.down()
        ctrun.wait_until(self._is_clean, "the cgroup is empty", 5)

    def _is_clean(self):
        try:
            self.memory.close()
        except OSError:
            return False
        return True


class Case:
    """One run of a script in its own box, with a fault; `list` is none."""

    def __init__(self, bench, name, fault, stack=None):
        self.stack = stack
        script, self.expected = fault_bodies.BODIES[name]
        self.what = f"{name}, {fault}"
        box = ctrun.Box()
        self.file = box.path("fault")
        self._fill(box)
        env = {"LD_PRELOAD": str(LIBRARY), "FAULT": fault, "FAULT_FILE": str(self.file),
               "ASAN_OPTIONS": f"{os.environ.get('ASAN_OPTIONS', '')}:verify_asan_link_order=0"}
        words = " ".join(f"{key}={value}" for key, value in env.items())
        env |= {"FAULTED": words, "FAKE_SSH_ENV": f"{words} TMPDIR={box.dir}",
                "CTRUN_SSH": fake_ssh.local(box), "PORT": str(launch.free_port()), "LIMIT": "60" if fault == "list" else "3",
                "STEPS": "5000 1000" if fault == "list" else "30000",
                **bench.env}
        self.late = self.left = ""
        run = box.start("sh", "-c", fault_bodies.PRELUDE + script, env=env)
        try:
            run.wait(25)
        except AssertionError:
            ours = [pid for pid in box.pids()
                    if any("ctrun" in word for word in ctrun.cmdline(pid)[:1])]
            self.late = f"it runs on: {ctrun.describe(ours)}"
        self.code, self.out, self.err, self.text = run.code, run.out, run.err, str(run)
        self.stacks = [Stack(name, line) for line in self._read("").splitlines()]
        self.crash = self._read(".crash")
        self.left = "\n".join(box.close())

    @staticmethod
    def _fill(box):
        box.write("options", "nproc-per-node = 2\nrdzv-id = y\n")
        box.write("secret", "0123456789abcdef0123456789abcdef\n", 0o600)
        box.path("disk").mkdir()
        box.path("staged").mkdir()
        box.write("staged/1", "one\n")

    def _read(self, suffix):
        path = pathlib.Path(f"{self.file}{suffix}")
        return path.read_text(errors="replace") if path.exists() else ""

    def _is_of_message(self):
        """Whether the call that failed was to write the message."""
        return bool(self.stacks) and self.stacks[0].kind == "write" and "write_to_stderr" in self.stacks[0].describe()

    def complaint(self):
        """What is wrong with how it ended; empty when nothing is."""
        if self.late or self.left:
            what = self.late or self.left
        elif self.crash or "the agent died of" in self.err or "LeakSanitizer" in self.err:
            what = f"it crashed: {self.crash}"
        elif self.code and not (self.out + self.err).strip() and not self._is_of_message():
            what = "it says nothing"
        elif not self.code and self.expected:
            what = "a failed run is called a success"
        elif not self.stacks and self.expected not in (None, self.code):
            what = "it does not end as expected"
        else:
            return ""
        return "\n".join([f"{self.what}: {what}", *(s.describe() for s in self.stacks[:1]), self.text])


class Stack:
    """A line of the library's list: the callers of one call, innermost first."""

    def __init__(self, script, line):
        self.script = script
        self.kind, self.program, *self.offsets = line.split()

    def key(self):
        return [(self.program, offset) for offset in self.offsets]

    def fault(self, count):
        """FAULT for the calls with these innermost `count` callers: the callers above may differ
        from run to run."""
        return ":".join(["at", self.kind, self.program, *self.offsets[:count]])

    def describe(self):
        places = Lines([self]).of
        return "\n".join([self.kind, *("{0}:{2} {1}".format(*places[key]) for key in self.key())])


def in_tree(path):
    """The path inside of the repository: a compiler's cache may name the file of another
    checkout."""
    at = max(path.rfind(f"/{folder}/") for folder in (*FOLDERS, "worker_sdk"))
    return path[at + 1:]


class Lines:
    """(program, offset) -> (path of the unit, function, line) of all callers in `stacks`."""

    def __init__(self, stacks):
        self.of = {}
        keys = {key for stack in stacks for key in stack.key()}
        for program in {program for program, _ in keys}:
            offsets = sorted(offset for other, offset in keys if other == program)
            # The call is before the address that it returns to.
            text = "\n".join(hex(int(offset, 16) - 1) for offset in offsets)
            answer = subprocess.run(["addr2line", "-f", "-e", ctrun.program(program)], input=text,
                                    capture_output=True, text=True, check=True).stdout.splitlines()
            for offset, function, line in zip(offsets, answer[::2], answer[1::2]):
                path, _, number = line.split(" ")[0].rpartition(":")
                self.of[program, offset] = (in_tree(path), function, number)

    def owner(self, stack):
        """The innermost unit and function of FOLDERS, and the fault that lets only its call fail;
        None if there is none."""
        for count, key in enumerate(stack.key(), 1):
            unit, function, _ = self.of[key]
            if unit.split("/")[0] in FOLDERS:
                return unit, function, stack.fault(count)
        return None


class Choice:
    """Which calls are to fail."""

    def __init__(self, stacks):
        lines = Lines(stacks)
        self.owners = {stack: lines.owner(stack) for stack in stacks}

    def first(self):
        """One stack for each function that makes a failing call and each kind of call, from the
        first script that gets there; from the long scripts only for units that no other script
        uses."""
        found, units = {}, set()
        for is_long in (False, True):
            for stack, owner in self.owners.items():
                if not owner or (stack.script in fault_bodies.LONG) != is_long:
                    continue
                if not is_long or owner[0] not in units:
                    found.setdefault((stack.kind, *owner[:2]), stack)
                    units.add(owner[0])
        return list(found.values())

    def units(self, cases):
        """Where something has failed."""
        return {self.owners[case.stack][0] for case in cases if case.stacks}

    def rest(self, units, tried):
        """All other stacks of these units: a script may not make the same calls in each run."""
        tried = {self.fault(stack) for stack in tried}
        left = {self.fault(stack): stack for stack, owner in self.owners.items()
                if owner and owner[0] in units}
        return [stack for fault, stack in left.items() if fault not in tried]

    def fault(self, stack):
        return stack.script, self.owners[stack][2]

    def paths(self):
        """(stack, fault): one for each call and three callers above the function that makes it."""
        found = {}
        for stack, owner in self.owners.items():
            if owner:
                callers = len(owner[2].split(":")) - len(stack.fault(0).split(":"))
                found.setdefault(stack.fault(callers + 3), stack)
        return [(stack, fault) for fault, stack in found.items()]


# ---- The units that make calls which can fail

def faultable():
    """The functions of libc that the library lets fail."""
    return {line.split()[0] for line in output("nm", "-D", "--defined-only", "-P", LIBRARY)}


def output(*command):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          check=True).stdout.splitlines()


def calls(paths):
    """{(object, function): names that it calls}"""
    found, function, unit = {}, None, None
    for line in output("objdump", "-dr", "--no-show-raw-insn", *paths):
        path = re.match(r"(\S+):\s+file format", line)
        begun = re.match(r"[0-9a-f]+ <(\w+)[.\w]*>:$", line)
        called = (re.search(r"R_\w+\s+([A-Za-z_]\w*)", line)
                  or re.search(r"\s[0-9a-f]+ <(\w+)[.\w+]*>$", line))
        if path:
            unit, function = path.group(1), None
        elif begun:
            function = begun.group(1)
            found[unit, function] = set()
        elif called and function:
            found[unit, function].add(called.group(1))
    return found


def objects(folder):
    return sorted((ctrun.BUILD / folder).rglob("*.c.o"))


def failing_of_floor():
    """Names of functions of the SDK's lower layers that make a call which can fail."""
    graph = calls([path for path in objects("worker_sdk")
                   if path.parts[-2].endswith((".ctrun_floor.dir", ".ctrun_auth.dir"))])
    own = {}
    for unit, function in graph:
        own.setdefault(unit, set()).add(function)
    fails, before = {(None, name) for name in faultable()}, None
    while before != len(fails):
        before = len(fails)
        for (unit, function), names in graph.items():
            if any((unit if name in own[unit] else None, name) in fails for name in names):
                fails |= {(unit, function), *([(None, function)] if function.startswith("ct") else [])}
    return {name for unit, name in fails if unit is None}


def units_that_call():
    """{path of a unit of agent and launcher: names it calls that can fail}"""
    names = failing_of_floor()
    found = {}
    for line in output("nm", "-A", "-u", "-P", *objects("agent"), *objects("launcher")):
        path, name, *_ = line.split()
        path = pathlib.Path(path[:-1]).relative_to(ctrun.BUILD)
        source = str(path.parents[2] / path.stem)  # of agent/link/CMakeFiles/TARGET.dir/x.c.o
        if name in names and (ctrun.ROOT / source).exists():
            found.setdefault(source, set()).add(name)
    return found


# ---- Tests

@pytest.fixture
def bench(box):
    made = Bench(box)
    yield made
    made.close()


def scripts(bench):
    return [name for name in fault_bodies.BODIES if name not in bench.without]


@pytest.mark.skipif(ALL or PATHS, reason="CTRUN_TEST_FAULTS lets more fail")
def test_each_function_that_makes_a_call_may_fail(bench):
    needed = {unit: names for unit, names in units_that_call().items() if unit not in ELSEWHERE
              and not (bench.without & fault_bodies.ONLY.get(unit, set()))}
    with concurrent.futures.ThreadPoolExecutor(3 * os.cpu_count()) as threads:  # most of them wait
        def fail(stacks):
            return list(threads.map(lambda stack: Case(bench, *choice.fault(stack), stack), stacks))

        plain = list(threads.map(lambda name: Case(bench, name, "list"), scripts(bench)))
        wrong = {case.what: (case.late, case.left, case.text) for case in plain
                 if case.late or case.left or case.expected not in (None, case.code)}
        assert not wrong, f"without a fault: {wrong}"
        choice = Choice([stack for case in plain for stack in case.stacks])
        cases = fail(choice.first())
        cases += fail(choice.rest(needed.keys() - choice.units(cases), {c.stack for c in cases}))
    complaints = [text for case in cases if (text := case.complaint())]
    assert not complaints, f"{len(complaints)}:\n" + "\n".join(complaints)
    if ctrun.SLOW > 1:
        return  # sanitizers add calls of their own: units are counted only without them
    untouched = {unit: needed[unit] for unit in needed.keys() - choice.units(cases)}
    assert not untouched, f"no call of these has failed: {untouched}"


def test_what_no_script_reaches_fails_in_a_unit_test():
    for file, name in ELSEWHERE.values():
        [path] = (ctrun.ROOT / "tests" / "unit").rglob(file)
        assert name in path.read_text(), f"{file}: {name}"


@pytest.mark.skipif(not PATHS, reason="a quarter of an hour: CTRUN_TEST_FAULTS=paths")
def test_each_call_may_fail_on_each_way_that_leads_to_it(bench):
    with concurrent.futures.ThreadPoolExecutor(3 * os.cpu_count()) as threads:
        plain = list(threads.map(lambda name: Case(bench, name, "list"), scripts(bench)))
        paths = Choice([stack for case in plain for stack in case.stacks]).paths()
        cases = list(threads.map(lambda path: Case(bench, path[0].script, path[1], path[0]), paths))
    complaints = [text for case in cases if (text := case.complaint())]
    assert not complaints, f"{len(complaints)} of {len(cases)}:\n" + "\n".join(complaints)
    assert sum(bool(case.stacks) for case in cases) > 0.9 * len(cases)  # the others were not called on that path again


@pytest.mark.skipif(not ALL, reason="hours: CTRUN_TEST_FAULTS=all")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", fault_bodies.BODIES)
def test_each_call_may_fail(bench, name, kind):
    if name in bench.without:
        pytest.skip("cannot be used on this machine")
    number, is_over = 1, False
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() + 1) as threads:
        while not is_over:
            several = range(number, number + 8)
            for case in threads.map(lambda n: Case(bench, name, f"{kind}:{n}"), several):
                assert not case.complaint(), case.complaint()
                is_over = is_over or not case.stacks
                number += 1
