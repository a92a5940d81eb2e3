# SPDX-License-Identifier: Apache-2.0
"""--warm: workers that are forked from a process that has imported what they need."""
import ctypes
import gc
import json
import mmap
import os
import re
import signal
import sys

import ctrun
import pytest
import schema

# Writes the pid of each process that imports it.
MODULE = "import os\nwith open({!r}, 'a') as file:\n    file.write(f'{{os.getpid()}}\\n')\n"
ONCE = "os.environ['TORCHELASTIC_RESTART_COUNT'] == '0'"


def start(box, *words, modules="module", env=None, **how):
    path = box.path("module.py")
    if not path.exists():
        path.write_text(MODULE.format(str(box.path("imports"))))
    warm = [f"--warm={modules}"] if modules else []
    return box.start_ctrun("--standalone", *warm, *words, env={"PYTHON_EXEC": sys.executable, **(env or {})}, **how)


def run(box, *words, **how):
    started = start(box, *words, **how)
    started.wait()
    return started


def importers(box):
    path = box.path("imports")
    return [int(pid) for pid in path.read_text().split()] if path.exists() else []


def starts(box, **match):
    return [event["start"] for event in box.events("worker_started", **match)]


def states(box):
    return [event["to"] for event in box.events("template_state")]


def refused(box, started, why):
    """Checks that one line says why, and that the workers were started by exec."""
    lines = [line for line in started.err.splitlines() if "--warm" in line]
    assert len(lines) == 1 and lines[0].startswith("ctrun: warning: --warm: workers are started by exec: "), started
    assert why in lines[0], started
    assert set(starts(box)) == {"exec"}
    assert states(box)[-1:] in ([], ["refused"])


def resident_kib(pid, library):
    """How many KiB of a library's code a process has in memory."""
    total, is_code = 0, False
    with open(f"/proc/{pid}/smaps", encoding="utf-8", errors="replace") as file:
        for line in file:
            words = line.split()
            if not words[0].endswith(":"):
                is_code = words[1] == "r-xp" and library in line
            elif is_code and words[0] == "Rss:":
                total += int(words[1])
    return total


def test_a_template_holds_no_pages_of_libraries_and_its_workers_have_those_that_they_use(box):
    """A worker that uses the library has some of its pages."""
    text = ("import signal, ssl\nassert ssl.create_default_context()\nprint('has', ssl.OPENSSL_VERSION_INFO > (0,), flush=True)\n"
            "signal.pause()\n")
    started = start(box, "--nproc-per-node=1", box.write("script.py", text), modules="ssl")
    worker = box.wait_event("worker_started")[0]
    ctrun.wait_until(lambda: "has True" in started.out, lambda: f"it has imported\n{started}")
    template = box.events("template_state", to="ready")[0]["template_pid"]
    assert worker["start"] == "fork" and resident_kib(worker["worker_pid"], "libcrypto") > 0
    assert resident_kib(template, "libcrypto") == 0
    started.signal(signal.SIGTERM)
    started.wait()


# ---- What a program sees --------------------------------------------------------------------

# All that a program can see of how it was started, except what differs in each process.
LOOK = """
import __main__, gc, inspect, json, os, pickle, resource, signal, sys
class Thing: pass
names = "__name__ __file__ __package__ __doc__ __cached__ __annotations__".split()
status = {line.split(":")[0]: line.split() for line in open("/proc/self/status")}
seen = {
    "main": {name: repr(globals().get(name, "none")) for name in names},
    "spec": getattr(__spec__, "name", None),
    "loader": type(__loader__).__name__ if not isinstance(__loader__, type) else __loader__.__name__,
    "is main": vars(__main__) is globals(), "thing": type(pickle.loads(pickle.dumps(Thing()))) is Thing,
    "argv": sys.argv, "orig_argv": getattr(sys, "orig_argv", None), "path": sys.path, "flags": repr(sys.flags),
    "executable": sys.executable, "warnings": sys.warnoptions,
    "streams": [(s.name, s.mode, s.encoding, s.errors, s.line_buffering, s.write_through, s.isatty(), s.seekable(),
                 type(s.buffer).__name__, s is getattr(sys, "__" + s.name.strip("<>") + "__"))
                for s in (sys.stdin, sys.stdout, sys.stderr)],
    "environment": {k: v for k, v in os.environ.items() if k not in CHANGES}, "cwd": os.getcwd(),
    "leads": os.getsid(0) == os.getpgid(0) == os.getpid(), "umask": os.umask(0), "gc": (gc.isenabled(), gc.get_threshold()),
    "files": resource.getrlimit(resource.RLIMIT_NOFILE), "cpus": sorted(os.sched_getaffinity(0)),
    "fds": sorted(fd for fd in map(int, os.listdir("/proc/self/fd")) if os.path.exists(f"/proc/self/fd/{fd}")),
    "signals": [str(signal.getsignal(n)) for n in sorted(signal.valid_signals())],
    "mask": [status[name] for name in ("SigBlk", "SigIgn", "SigCgt")], "cgroup": open("/proc/self/cgroup").read(),
    "name": open("/proc/self/comm").read(),
    "hook": sys.excepthook is sys.__excepthook__, "threads": status["Threads"],
    "command": open("/proc/self/cmdline").read().replace("\\0", " ").strip(),
}
with open(f"seen.{os.environ['RANK']}", "w") as file:
    json.dump(seen, file)
""".replace("CHANGES", repr("""MASTER_PORT TORCHELASTIC_RUN_ID TORCHELASTIC_ERROR_FILE CTRUN_AGENT_SOCKET CTRUN_WARM
                            CTRUN_CONTROL_SOCKET""".split()))


def look(box, words, modules):
    warm = run(box, "--nproc-per-node=2", *words, modules=modules)
    assert warm.code == 0, warm
    assert set(starts(box)) == {"fork" if modules else "exec"}, warm
    box.events_path.unlink()
    seen = [json.loads(box.path(f"seen.{rank}").read_text()) for rank in range(2)]
    for each in seen:  # each run has another cgroup
        each["cgroup"] = "ctrun-" in each["cgroup"]
    return seen


@pytest.mark.parametrize("words", [
    ["{box}/look.py", "a", ""], ["look.py"], ["sub/../link.py"], ["--module", "package.look", "--flag"],
    ["--module", "package", "x"], ["folder", "y"], ["--run-path", "look.py", "z"]],
    ids=["path", "relative", "link", "module", "package", "folder", "run-path"])
def test_a_program_sees_what_it_sees_after_an_exec(box, words):
    for folder in ("package", "folder", "sub"):
        box.path(folder).mkdir()
    box.write("look.py", LOOK)
    box.write("folder/__main__.py", LOOK)
    box.path("link.py").symlink_to(box.path("look.py"))
    box.write("package/near.py", "VALUE = 1")
    box.write("package/__init__.py", "")
    for name in ("look", "__main__"):
        box.write(f"package/{name}.py", "from .near import VALUE\n" + LOOK)
    words = [word.format(box=box.dir) for word in words]
    warm, cold = look(box, words, "module"), look(box, words, None)
    assert [{k: (v, cold[n][k]) for k, v in warm[n].items() if v != cold[n][k]} for n in range(2)] == [{}, {}]


# How a program may end, and what it writes then.
ENDS = {
    "exception": "def f(): raise ValueError('no')\nf()",
    "cause": "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise KeyError(1) from error",
    "syntax": "x = (\n",
    "exit code": "import sys; sys.exit(3)",
    "exit text": "import sys; sys.exit('bye')",
    "exit none": "raise SystemExit",
    "interrupt": "raise KeyboardInterrupt",
    "killed": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "abort": "import os; os.abort()",
    "arguments": "import argparse; argparse.ArgumentParser(description='d').parse_args(['--no'])",
    "hook": "import sys\nsys.excepthook = lambda *a: print('hook', a[0].__name__, a[2].tb_lineno, a[2].tb_next is None, file=sys.stderr)\n"
            "raise ValueError",
    "bad hook": "import sys\nsys.excepthook = lambda: 1\ntry:\n    raise ValueError\nfinally:\n    print('finally')",
    "atexit": "import atexit, sys\natexit.register(print, 'first registered')\natexit.register(print, 'last', flush=True)\n"
              "class Late:\n    def __del__(self): print('deleted')\nlate = Late(); late.me = late",
    "thread": "import threading\nevent = threading.Event()\n"
              "t = threading.Thread(target=lambda: (event.wait(), print('thread')))\nt.start()\nevent.set()",
    "bad thread": "import threading\nt = threading.Thread(target=lambda: 1 / 0, name='t')\nt.start(); t.join()",
    "no newline": "import sys; sys.stdout.write('unfinished')",
    "closed": "import os, sys; os.close(1)",
    "group": "raise ExceptionGroup('two', [ValueError(1), KeyError(2)])",
}


@pytest.mark.parametrize("as_module", [False, True], ids=["script", "module"])
@pytest.mark.parametrize("end", ENDS)
def test_a_program_ends_as_after_an_exec(box, end, as_module):
    box.write("end.py", ENDS[end] + "\n")
    words = ["--module", "end"] if as_module else ["end.py"]
    found = []
    for modules in ("module", None):
        ended = run(box, "--redirects=3", f"--log-dir={box.path('logs')}", *words, modules=modules)
        last = box.events("worker_ended")[-1]
        logs = [next(box.path("logs").rglob(f"std{name}.log")).read_text() for name in ("out", "err")]
        found.append((ended.code, last["cause"], last["code"], logs))
        assert starts(box) == ["fork" if modules else "exec"], ended
        box.events_path.unlink()
        for log in box.path("logs").rglob("std*.log"):
            log.unlink()
    if end == "bad hook":  # when a hook fails, Python also shows the frames of its own start
        found = [(*each[:3], each[3][1].splitlines()[-1]) for each in found]
    if end == "abort":  # faulthandler lists all frames, also those of the template
        found = [(*each[:3], re.sub("0x[0-9a-f]+", "", each[3][1]).splitlines()[:4]) for each in found]
    assert found[0] == found[1]


def test_a_program_that_is_gone_meanwhile_ends_as_after_an_exec(box):
    script = box.write("gone.py", f"import os, sys\nif {ONCE}:\n    os.unlink(sys.argv[0])\n    sys.exit(1)\n")
    ended = run(box, "--max-restarts=1", script)
    assert ended.code == 2 and f"can't open file '{script}': [Errno 2]" in ended.err, ended


CHILDREN = """
import json, multiprocessing, os, subprocess, sys
class Value:
    def __init__(self, number): self.number = number
def work(queue, value): queue.put((value.number + 1, sys.argv[1:], "module" in sys.modules))
if __name__ == "__main__":
    found = []
    for method in ("spawn", "fork", "forkserver"):
        context = multiprocessing.get_context(method)
        queue = context.Queue()
        child = context.Process(target=work, args=(queue, Value(1)))
        child.start()
        found.append(queue.get())
        child.join()
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found.append(pool.apply(os.getppid) == os.getpid())
    found.append(subprocess.run([sys.executable, "-c", "import os; print(os.environ['RANK'])"],
                                capture_output=True, text=True).stdout)
    json.dump(found, open("found." + os.environ["RANK"], "w"))
"""


def test_children_of_a_worker_work_by_every_method(box):
    ended = run(box, "--nproc-per-node=2", box.write("children.py", CHILDREN), "word")
    assert ended.code == 0 and starts(box) == ["fork", "fork"], ended
    for rank in range(2):
        assert json.loads(box.path(f"found.{rank}").read_text()) == [
            [2, ["word"], False], [2, ["word"], True], [2, ["word"], False], True, f"{rank}\n"]


def test_workers_do_not_share_their_random_numbers(box):
    script = box.write("dice.py", "import random; print(random.random(), flush=True)")
    ended = run(box, "--nproc-per-node=3", "--max-restarts=0", script, modules="random")
    assert ended.code == 0 and len(set(ended.out.split())) == 3, ended


def test_a_worker_reads_its_standard_input(box):
    box.write("text", "one\ntwo\n")
    with open(box.path("text"), "rb") as text:
        ended = run(box, "--stdin=0", "--nproc-per-node=2", box.write("read.py", "import sys; print(sys.stdin.read().split())"),
                    stdin=text)
    assert sorted(ended.out.splitlines()) == ["['one', 'two']", "[]"], ended


def test_the_folder_of_the_script_is_searched(box):
    box.path("deep").mkdir()
    box.write("deep/module.py", MODULE.format(str(box.path("imports"))))
    box.write("deep/s.py", "import module")
    ended = run(box, "--nproc-per-node=2", "deep/s.py")
    assert ended.code == 0 and len(importers(box)) == 1 and starts(box) == ["fork"] * 2, ended


FINDER = """import os, sys
class Finder:
    def find_spec(self, *words): return None
    def invalidate_caches(self):
        with open("caches", "a") as file: file.write(f"{os.getpid()} ")
sys.meta_path.append(Finder())
"""
LATER = """import os
folder = os.path.dirname(__file__)
at = os.stat(folder)
with open(folder + "/later.py", "w") as file: file.write("print('found')")
os.utime(folder, ns=(at.st_atime_ns, at.st_mtime_ns))
import later
"""


def test_a_worker_finds_what_is_newer_than_the_imports_and_writes_to_no_finder_for_it(box):
    box.write("module.py", FINDER)
    ended = run(box, box.write("s.py", LATER))
    assert ended.out == "found\n" and starts(box) == ["fork"], ended
    assert box.path("caches").read_text().split() == [str(template(box))], ended


@pytest.mark.parametrize("own, worker", [("", gc.get_threshold()), ("gc.set_threshold(500, 5, 5)", (500, 5, 5))])
def test_old_objects_are_not_looked_through_while_modules_are_imported(box, own, worker):
    box.write("module.py", f"import gc\nat_import = gc.get_threshold()\n{own}\n")
    ended = run(box, box.write("s.py", "import gc, module; print(module.at_import, gc.get_threshold())"))
    assert ended.out == f"{(*gc.get_threshold()[:2], 1 << 30)} {worker}\n", ended


HUGE_PAGE, MADV_COLLAPSE = 2 << 20, 25


def knows_collapse():
    """Whether the kernel makes huge pages on demand: Linux 6.1 and later, built with them."""
    room = mmap.mmap(-1, 2 * HUGE_PAGE, mmap.MAP_PRIVATE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(room))
    libc = ctypes.CDLL(None)
    libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    ctypes.memset(start, 1, len(room))
    return libc.madvise(-(-start // HUGE_PAGE) * HUGE_PAGE, HUGE_PAGE, MADV_COLLAPSE) == 0


def huge_kib(pid):
    with open(f"/proc/{pid}/smaps_rollup", encoding="utf-8") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("AnonHugePages:"))


@pytest.mark.parametrize("count, is_huge", [(2, False), (32, True)])
def test_a_template_of_many_workers_has_huge_pages(box, count, is_huge):
    if not knows_collapse():
        pytest.skip("this kernel makes no huge pages when it is asked")
    box.write("module.py", "import mmap\nroom = mmap.mmap(-1, 64 << 20, mmap.MAP_PRIVATE)\nroom[:] = b'x' * len(room)\n")
    started = start(box, f"--nproc-per-node={count}", box.write("s.py", "import signal\nsignal.pause()\n"))
    box.wait_event("worker_started", count)
    assert (huge_kib(template(box)) >= 48 << 10) == is_huge, started
    started.signal(signal.SIGTERM)
    started.wait()


def test_what_a_module_prints_is_no_output_of_a_worker(box):
    box.write("module.py", "import sys; print('hello'); print(sys.stdin.read())")
    ended = run(box, box.write("s.py", "print('worker')"), stdin=None)
    assert ended.out == "worker\n" and "hello" in ended.err, ended


# ---- How long the template lives ------------------------------------------------------------

WAIT = """
import os, signal, sys, time
{}
if {}:
    open("ready." + os.environ["RANK"], "w").write(str(os.getpid()))
    while True:
        time.sleep(100)
"""


def wait_ready(box, count=2):
    for rank in range(count):
        path = box.path(f"ready.{rank}")
        ctrun.wait_until(lambda path=path: path.exists() and path.read_text(), f"rank {rank} is ready")
    return [int(box.path(f"ready.{rank}").read_text()) for rank in range(count)]


def start_waiting(box, *words, head="", condition=ONCE, **how):
    started = start(box, "--nproc-per-node=2", "--max-restarts=1", *words,
                    box.write("wait.py", WAIT.format(head, condition)), **how)
    return started, wait_ready(box)


def template(box):
    return box.events("template_state", to="ready")[-1]["template_pid"]


def test_a_restart_is_forked_from_the_same_imports(box):
    started, pids = start_waiting(box)
    os.kill(pids[0], signal.SIGKILL)
    assert started.wait() == 0, started
    assert importers(box) == [template(box)] and starts(box) == ["fork"] * 4
    assert states(box) == ["starting", "ready"]
    for event in box.events():
        schema.check(event, "events")


def test_a_worker_that_must_be_killed_does_not_cost_the_template(box):
    started, pids = start_waiting(box, "--shutdown-timeout=0", head="signal.signal(signal.SIGTERM, signal.SIG_IGN)")
    os.kill(pids[0], signal.SIGKILL)
    assert started.wait() == 0, started
    assert len(importers(box)) == 1 and starts(box) == ["fork"] * 4


def test_what_a_worker_leaves_behind_is_killed_and_the_template_stays(box):
    started, pids = start_waiting(
        box, "--shutdown-timeout=60", head="import subprocess\nif os.environ['TORCHELASTIC_RESTART_COUNT'] == '0':\n"
        "    child = subprocess.Popen(['sleep', '1000'], start_new_session=True)\n")
    os.kill(pids[0], signal.SIGKILL)
    assert started.wait() == 0, started
    assert len(importers(box)) == 1 and starts(box) == ["fork"] * 4
    assert "sleep" in " ".join(event["processes"] for event in box.events("orphans_killed"))


def test_a_role_that_restarts_alone_is_forked(box):
    script = box.write("s.py", "import os, sys; sys.exit(int(os.environ.get('CTRUN_ROLE_RESTART_COUNT', 2)) < 2)")
    ended = run(box, "--role", f"data=1:{script}", "--role", "other=1:true", "--role-restarts=data=2")
    assert ended.code == 0, ended
    assert starts(box, role="data") == ["fork"] * 3 and starts(box, role="other") == ["exec"]


def test_a_template_that_has_died_is_replaced_for_the_next_round(box):
    started, pids = start_waiting(box)
    os.kill(template(box), signal.SIGKILL)
    box.wait_event("template_state", to="lost")
    os.kill(pids[0], signal.SIGKILL)
    assert started.wait() == 0, started
    assert states(box) == ["starting", "ready", "lost", "starting", "ready"]
    assert len(set(importers(box))) == 2 and starts(box) == ["fork"] * 4


def test_a_template_that_hangs_costs_one_line_and_the_next_round_has_another_one(box):
    started, pids = start_waiting(box, "--max-restarts=2", condition="os.environ['TORCHELASTIC_RESTART_COUNT'] < '2'")
    hung = template(box)
    os.kill(hung, signal.SIGSTOP)
    os.kill(pids[0], signal.SIGKILL)
    by_exec = box.wait_event("worker_started", 4, seconds=60)[-1]
    os.kill(by_exec["worker_pid"], signal.SIGKILL)
    assert started.wait() == 0, started
    assert starts(box) == ["fork"] * 2 + ["exec"] * 2 + ["fork"] * 2 and template(box) != hung
    assert states(box) == ["starting", "ready", "lost", "starting", "ready"]
    assert started.err.count("--warm: workers are started by exec: the template does not answer: after 3.1 s it has made 0 of 2 "
                             "workers; the next round starts another template\n") == 1, started


def test_a_template_that_hangs_each_time_is_refused_in_the_end(box):
    """It stops itself before its first fork for a worker."""
    box.write("module.py", """import os, signal
real, calls = os.fork, []
def fork():
    calls.append(1)
    if len(calls) == 2:
        os.kill(os.getpid(), signal.SIGSTOP)
    return real()
if "RANK" not in os.environ:
    os.fork = fork
""")
    script = box.write("s.py", "import os, sys; sys.exit(os.environ['TORCHELASTIC_RESTART_COUNT'] != '3')")
    ended = run(box, "--max-restarts=3", script)
    assert ended.code == 0, ended
    assert starts(box) == ["exec"] * 4 and states(box) == ["starting", "ready", "lost"] * 2 + ["starting", "ready", "refused"]


def test_all_ends_with_the_agent(box):
    started, pids = start_waiting(box)
    agent = ctrun.parent_of(pids[0])
    assert ctrun.parent_of(template(box)) == agent
    os.kill(agent, signal.SIGKILL)
    started.wait()
    box.wait_gone()


def test_all_ends_with_the_launcher_and_what_it_started(box):
    started, pids = start_waiting(box)
    agent = ctrun.parent_of(pids[0])
    ctrun.kill_at_once(agent, *ctrun.guards_of(agent))
    started.wait()
    box.wait_gone()


def test_a_signal_ends_a_run_whose_template_still_imports(box):
    box.write("module.py", "import time; open('importing', 'w').close(); time.sleep(1000)")
    started = start(box, box.write("s.py", "print('worker')"))
    ctrun.wait_until(box.path("importing").exists, "the template imports")
    started.signal(signal.SIGTERM)
    assert started.wait() == 128 + signal.SIGTERM, started
    assert not starts(box) and started.out == ""


def test_two_nodes_have_a_template_each(box):
    port = ctrun.free_port()
    script = box.write("s.py", f"""import os, sys, time
open("here." + os.environ["RANK"], "w").close()
while not all(os.path.exists(f"here.{{rank}}") for rank in range(4)):
    time.sleep(0.01)
sys.exit({ONCE} and os.environ["RANK"] == "1")
""")
    path = box.path("module.py")
    path.write_text(MODULE.format(str(box.path("imports"))))
    runs = [box.start_ctrun("--nnodes=2", "--nproc-per-node=2", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=warm",
                            "--max-restarts=1", "--warm=module", script, env={"PYTHON_EXEC": sys.executable})
            for _ in range(2)]
    assert [each.wait() for each in runs] == [0, 0], runs
    assert len(importers(box)) == 2 and starts(box) == ["fork"] * 8


# ---- Where there is no template -------------------------------------------------------------

OBSTACLES = {
    "no module": (None, "import of absent: ModuleNotFoundError: No module named 'absent'"),
    "exception": ("raise ValueError('two\\nlines')", "import of module: ValueError: two lines"),
    "exit": ("raise SystemExit(0)", "import of module: SystemExit: 0"),
    "end": ("import os\nif 'RANK' not in os.environ: os._exit(5)", "the template ended with code 5"),
    "crash": ("import os\nif 'RANK' not in os.environ: os.abort()", "the template died of SIGABRT"),
    "thread": ("import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()",
               "2 threads after the imports ("),
    "no fork": ("import os\nif 'RANK' not in os.environ: os.fork = None", "the template ended with code 1"),
    "closes": ("import os\nif 'RANK' not in os.environ: os.closerange(3, 99)", "the template ended with code 1"),
    "closes and stays": ("import os, sys, time\nif 'RANK' not in os.environ:\n"
                         "    os.close(int(sys.argv[2]))\n    time.sleep(1000)", "the template has closed its socket"),
    "old": ("import os, sys\nif 'RANK' not in os.environ: sys.version_info = (3, 7, 0)",
            "it needs Python 3.8 or later, and this is 3.7"),
    "talks": ("import os, sys\nif 'RANK' not in os.environ: os.write(int(sys.argv[2]), b'\\x1b[31mX')",
              "the template sent an unknown message"),
}


@pytest.mark.parametrize("kind", OBSTACLES)
def test_an_obstacle_is_told_and_workers_are_started_by_exec(box, kind):
    text, why = OBSTACLES[kind]
    if text:
        box.write("module.py", text)
    ended = run(box, "--nproc-per-node=2", box.write("s.py", "print('worker')"), modules="module" if text else "absent")
    assert ended.code == 0 and ended.out == "worker\n" * 2, ended
    refused(box, ended, why)


def test_imports_that_take_too_long_are_given_up(box):
    box.write("module.py", "import os, time\nif 'RANK' not in os.environ: time.sleep(1000)")
    ended = run(box, box.write("s.py", "import module; print('worker')"), env={"CTRUN_WARM_TIMEOUT": "1"})
    assert ended.code == 0 and ended.out == "worker\n", ended
    refused(box, ended, "the imports took more than 1 s")


def test_a_template_with_cuda_is_not_forked(box):
    box.path("torch").mkdir()
    box.write("torch/__init__.py", "from torch import cuda")
    box.write("torch/cuda.py", "def is_initialized(): return True")
    ended = run(box, box.write("s.py", "print('worker')"), modules="torch")
    assert ended.code == 0, ended
    refused(box, ended, "CUDA is initialized by the imports")


def test_threads_that_end_for_a_fork_are_no_obstacle(box):
    box.write("module.py", """import os, threading
event = threading.Event()
thread = threading.Thread(target=event.wait)
thread.start()
os.register_at_fork(before=lambda: (event.set(), thread.join()))
""")
    ended = run(box, box.write("s.py", "print('worker')"))
    assert ended.code == 0 and starts(box) == ["fork"], ended


def test_a_thread_that_ends_while_they_are_counted_is_no_obstacle(box):
    box.write("module.py", """import os
listdir = os.listdir
os.listdir = lambda path='.': listdir(path) + (["4194305"] if path == "/proc/self/task" else [])  # no pid is larger
""")
    ended = run(box, box.write("s.py", "print('worker')"))
    assert ended.code == 0 and starts(box) == ["fork"], ended


@pytest.mark.parametrize("words", [["true"], ["--no-python", sys.executable, "-c", "pass"]])
def test_a_program_that_python_does_not_run_has_none(box, words):
    ended = run(box, *words)
    assert ended.code == 0 and not importers(box), ended
    refused(box, ended, "no program here is run by Python")


@pytest.mark.parametrize("first", [2, 3], ids=["starter", "worker"])
def test_no_processes_left_to_make_is_told(box, first):
    """A limit would count all processes of the user, so the test makes fork() fail: its second call
    makes the starter."""
    box.write("module.py", f"""import os
real, calls = os.fork, []
def fork():
    calls.append(1)
    if len(calls) >= {first}:
        raise BlockingIOError(11, "no")
    return real()
if "RANK" not in os.environ:
    os.fork = fork
""")
    ended = run(box, "--nproc-per-node=2", box.write("s.py", "print('worker')"))
    assert ended.code == 0 and ended.out == "worker\n" * 2 and "Traceback" not in ended.err, ended
    refused(box, ended, "the template cannot fork: Resource temporarily unavailable")


@pytest.mark.parametrize("how", ["none", "0"])
def test_without_it_nothing_changes(box, how):
    ended = run(box, box.write("s.py", "print('worker')"), modules=None, env={} if how == "none" else {"CTRUN_WARM": how})
    assert ended.code == 0 and not states(box) and starts(box) == ["exec"] and not ended.err, ended


def test_the_environment_may_ask_for_it(box):
    ended = run(box, box.write("s.py", "print('worker')"), modules=None, env={"CTRUN_WARM": "module,json"})
    assert starts(box) == ["fork"] and len(importers(box)) == 1, ended


@pytest.mark.parametrize("words, why", [
    (["--warm=a b"], "--warm=a b: 'a b' is no name"), (["--warm=.a"], "'.a' is no name"), (["--warm=a,"], "'' is no name")])
def test_what_is_no_module_is_refused(box, words, why):
    ended = box.ctrun(*words, "true")
    assert ended.code == 2 and why in ended.err, ended


@pytest.mark.parametrize("value", ["0", "x", "1e9"])
def test_a_limit_that_is_none_is_refused(box, value):
    ended = box.ctrun("--warm", "true", env={"CTRUN_WARM_TIMEOUT": value})
    assert ended.code == 2 and f"CTRUN_WARM_TIMEOUT={value}: 1 to 86400 seconds" in ended.err, ended


def test_a_dry_run_tells_the_modules(box):
    script = box.write("s.py", "")
    assert "warm       : torch\n" in box.ctrun("--warm", "--dry-run", script).out
    assert "warm       : no" in box.ctrun("--warm", "--dry-run", "true").out
    plan = json.loads(box.ctrun("--warm=a.b,c", "--dry-run", "--json", script).out)
    schema.check(plan, "plan")
    assert plan["warm"] == "a.b,c"
    assert "warm" not in json.loads(box.ctrun("--dry-run", "--json", script).out)


# What recorder.py needs of torch, whose first step of an optimizer is step().
TORCH = {"__init__.py": "import types\n__version__ = '2.15.0'\ncompiler = types.SimpleNamespace(is_compiling=lambda: False)\n",
         "optim/__init__.py": "", "optim/optimizer.py": """hooks = []
register_optimizer_step_post_hook = hooks.append
def step():
    for hook in hooks:
        hook(None, (), {})
"""}
PACKAGES = {"learnt/__init__.py": "", "learnt/deep.py": MODULE,
            "broken.py": "import os, sys\nif sys.argv[0] == '-c':\n    os.chdir('/')\n    sys.path.insert(0, '/nowhere')\n"
                         "    raise SystemExit('\\x1b[31mno\\nterminal')\n",
            "threads.py": "import sys, threading, time\nif sys.argv[0] == '-c':\n"
                          "    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"}
TRAIN = """import os, sys, time
import torch.optim.optimizer
import learnt.deep, broken, own
{}
print(os.getcwd(), "/nowhere" in sys.path)
if {}:
    torch.optim.optimizer.step()
    open(f"ready.{{os.environ['RANK']}}", "w").write(str(os.getpid()))
    time.sleep(600)
"""


def start_training(box, modules, head=""):
    """Returns once the workers wait, and the template, which is idle after that, has learnt."""
    for name, text in {**{f"torch/{name}": text for name, text in TORCH.items()}, **PACKAGES}.items():
        path = box.path(f"site-packages/{name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("{!r}", repr(str(box.path("imports")))).replace("{{", "{").replace("}}", "}"))
    box.write("own.py", MODULE.format(str(box.path("own"))))
    started = start(box, "--nproc-per-node=2", "--max-restarts=1", box.write("train.py", TRAIN.format(head, ONCE)),
                    modules=modules, env={"PYTHONPATH": str(box.path("site-packages"))})
    return started, wait_ready(box)


def lines(box, name):
    path = box.path(name)
    return path.read_text().split() if path.exists() else []


def test_with_auto_it_imports_what_the_workers_had_imported(box):
    started, pids = start_training(box, "json,auto", "import pathlib\nown.__file__ = pathlib.Path(own.__file__)")
    ctrun.wait_until(lambda: len(lines(box, "imports")) == 3, lambda: f"the template has learnt\n{started}")
    os.kill(pids[0], signal.SIGKILL)
    assert started.wait() == 0, started
    assert starts(box) == ["fork"] * 4 and states(box) == ["starting", "ready"], started
    assert sorted(lines(box, "imports")) == sorted([*map(str, pids), str(template(box))]), started
    assert len(lines(box, "own")) == 4, started  # files beside the script may change
    assert re.search("^ctrun: --warm=auto leaves out broken: SystemExit: .{1,2}31mno terminal$", started.err, re.M), started
    assert started.out.splitlines() == [f"{box.dir} False"] * 4, started


def test_an_import_is_well_while_another_thread_removes_the_recorder(box):
    """That is what both threads do where each has found the other's module imported, too."""
    script = box.write("train.py", """import sys
finder = next(finder for finder in sys.meta_path if type(finder).__name__ == "Finder")
sys.meta_path.remove(finder)
finder.calls = {"json": print}
assert finder.find_spec("json").name == "json"
""")
    started = start(box, "--nproc-per-node=1", script, modules="json,auto")
    assert started.wait() == 0, started


def test_a_list_of_modules_that_is_too_long_is_cut(box):
    started, pids = start_training(box, "json,auto", """import types
for number in range(2000):
    module = types.ModuleType("x" * 120 + str(number))
    module.__file__ = "/none/site-packages/x.py"
    sys.modules[module.__name__] = module""")
    ctrun.wait_until(lambda: len(lines(box, "imports")) == 3, lambda: f"the template has learnt\n{started}")
    os.kill(pids[0], signal.SIGKILL)
    assert started.wait() == 0, started


def test_without_auto_it_imports_no_more(box):
    started, pids = start_training(box, "json")
    os.kill(pids[0], signal.SIGKILL)
    assert started.wait() == 0 and len(lines(box, "imports")) == 4, started


def test_a_template_that_has_learnt_to_have_threads_is_replaced_by_one_that_has_not(box):
    started, pids = start_training(box, "json,auto", "import threads")
    box.wait_event("template_state", to="lost")
    os.kill(pids[0], signal.SIGKILL)
    assert started.wait() == 0, started
    assert starts(box) == ["fork"] * 4 and states(box) == ["starting", "ready", "lost", "starting", "ready"], started
    assert re.search("^ctrun: .*: 2 threads after the imports", started.err, re.M), started


def test_a_restart_during_the_imports_leaves_one_folder_of_the_run(box):
    """No worker of the first round was planned, so that nothing had waited for its folders."""
    box.write("module.py", """
import os, time
open("importing", "w").close()
while not os.path.exists("go"):
    time.sleep(0.01)
""")
    started = start(box, "--log-dir=logs", box.write("s.py", "print('ran')"))
    ctrun.wait_until(box.path("importing").exists, "the template imports")
    asked = box.run(ctrun.program("ctrunctl"), "restart")
    assert asked.code == 0, asked
    box.wait_event("round_started", 2)
    box.path("go").touch()
    assert started.wait() == 0 and started.out == "ran\n", started
    assert len(list(box.path("logs").iterdir())) == 1, list(box.path("logs").rglob("*"))
