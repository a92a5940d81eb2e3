# SPDX-License-Identifier: Apache-2.0
"""`import ctrun` (python/ctrun): libctrun without a compiler, alone and under ctrun.

The tests check what a script prints as `said ...`. CTRUN_TEST_PYTHON names another interpreter than
Debian's."""
import glob
import json
import os
import re
import shutil
import signal
import sys
import urllib.request

import ctrun
import pytest
import readme
import schema

PACKAGE = ctrun.ROOT / "python"
PYTHON = os.environ.get("CTRUN_TEST_PYTHON", ctrun.DEBIAN_PYTHON)
OURS = {"PYTHONPATH": str(PACKAGE), "CTRUN_LIBRARY": str(ctrun.BUILD / "lib" / "libctrun.so"),
        "PYTHONDONTWRITEBYTECODE": "1", "PYTHON_EXEC": PYTHON}


def alone(box, text, **env):
    return box.run(PYTHON, "-c", f"import ctrun\n{text}", env={**OURS, **env})


def launch(box, text, *options, workers=2, start=False, **env):
    how = box.start_ctrun if start else box.ctrun
    script = box.write("script.py", f"import ctrun\n{text}")
    return how("--standalone", f"--nproc-per-node={workers}", *options, script,
               env={**OURS, **env})


def said(run):
    return sorted(re.findall(r"said (.*)", run.out))


def test_alone_it_is_a_run_of_one_rank_that_nobody_stops(box):
    run = alone(box, "ctrun.step(3)\nprint('said', tuple(ctrun.run()), ctrun.should_stop(),"
                     " ctrun.library_version() == ctrun.__version__)")
    assert said(run) == ["(0, 1, 0, 1, 0, 0, 0) False True"], run


def test_workers_are_told_who_they_are(box):
    run = launch(box, "r = ctrun.run()\nprint('said', *r)", workers=3)
    assert said(run) == [f"{rank} 3 {rank} 3 0 0 1" for rank in range(3)], run


def test_python_m_ctrun_runs_workers_under_the_same_python(box):
    script = box.write("who.py", "import sys; print('said', sys.executable, sys.argv[1:])")
    env = {name: value for name, value in OURS.items() if name != "PYTHON_EXEC"}
    run = box.run(PYTHON, "-m", "ctrun", "--nproc-per-node=2", script, "--lr", "1", env=env)
    assert said(run) == [f"{PYTHON} ['--lr', '1']"] * 2, run
    run = box.run(PYTHON, "-m", "ctrun", "true", env={**env, "PATH": "/nonexistent"})
    assert run.code == 127 and re.fullmatch(r"ctrun: error\[E_EXEC\]: .* no program ctrun in PATH: .*\n", run.err), run


def test_python_m_ctrun_finds_the_program_that_pip_installs_with_user(box):
    env = {"PYTHONUSERBASE": box.path("user"), "PATH": "/nonexistent", "PYTHONDONTWRITEBYTECODE": "1"}
    ask = "import sysconfig; print(*(sysconfig.get_path(name, 'posix_user') for name in ('purelib', 'scripts')))"
    site, scripts = box.run(PYTHON, "-c", ask, env=env).out.split()
    shutil.copytree(PACKAGE / "ctrun", f"{site}/ctrun")
    os.makedirs(scripts)
    os.symlink("/bin/echo", f"{scripts}/ctrun")
    run = box.run(PYTHON, "-m", "ctrun", "--nproc-per-node=2", "train.py", env={**env, "PYTHONPATH": site})
    assert (run.code, run.out) == (0, "--nproc-per-node=2 train.py\n"), run


def other_pythons():
    """{version: path} of what is installed beside Debian's, from 3.8 on."""
    names = [f"python3.{minor}" for minor in range(8, 20)]
    places = [*os.environ["PATH"].split(":"), *glob.glob(os.path.expanduser("~/.pyenv/versions/3.*/bin"))]
    found = {name: os.path.join(place, name) for name in names for place in places
             if os.access(os.path.join(place, name), os.X_OK)}
    found.pop(os.path.basename(os.path.realpath(ctrun.DEBIAN_PYTHON)), None)
    return found


def test_each_python_that_is_here_can_use_it(box):
    pythons = other_pythons()
    if not pythons:
        pytest.skip("no other Python than Debian's here")
    for name, path in pythons.items():
        run = launch(box, STORED, PYTHON_EXEC=path)
        assert run.code == 0, run
        assert said(run) == [f"{name} 0 [1, 0] 2", f"{name} 1 [0, 0] 2"], run


STORED = """
import sys
r = ctrun.run()
with ctrun.store() as store:
    store.set(f"from/{r.rank}", bytes([r.rank, 0]))
    other = list(store.get(f"from/{1 - r.rank}"))
    total = store.add("sum", 1)
    while total != 2:
        total = store.add("sum", 0)
ctrun.step(1)
print("said", f"python3.{sys.version_info[1]}", r.rank, other, total)
"""


def test_values_go_through_the_store(box):
    run = launch(box, """
r = ctrun.run()
with ctrun.store() as store:
    store.set(f"from/{r.rank}", bytes([r.rank, 0, 255]))
    store.wait(["from/0", "from/1"], timeout=float("inf"))
    ctrun.hold_wait(float("inf"))
    assert ctrun.held("missing", float("inf")) is None
    other = store.get(f"from/{1 - r.rank}")
    total = store.add("sum", 21)
    while total != 42:
        total = store.add("sum", 0)
    store.set("text", "grün")
    mine = f"mine{r.rank}"
    store.set(mine, b"")
    print("said", r.rank, list(other), total, store.get("text").decode(), store.get(mine),
          store.delete(mine), store.delete(mine))
""")
    assert run.code == 0, run
    assert said(run) == ["0 [1, 0, 255] 42 grün b'' True False", "1 [0, 0, 255] 42 grün b'' True False"]


def test_the_store_says_what_is_missing_and_refuses_what_cannot_be(box):
    run = launch(box, r"""
def refuses(call, *arguments):
    try:
        call(*arguments)
    except (ctrun.Error, ValueError) as error:
        print("said", type(error).__name__, getattr(error, "code", 0), error)
store = ctrun.store()
refuses(store.wait, ["never"], 0.01)
refuses(store.set, "a\0b", b"")
refuses(store.add, "x", 1 << 63)
refuses(ctrun.step, -1)
store.close()
store.close()
refuses(store.get, "x")
""", workers=1)
    lines = said(run)
    assert run.code == 0 and len(lines) == 5, run
    assert lines[0].startswith("Error -20024 ") and "never" in lines[0], run
    assert lines[1:] == ["ValueError 0 9223372036854775808 does not fit into 64 bits",
                         r"ValueError 0 step -1 is not from 0 to 2^64 - 1",
                         r"ValueError 0 the key 'a\x00b' has a NUL in it",
                         "ValueError 0 the store is closed"], run


def test_a_wrong_environment_is_an_error_that_names_the_variable(box):
    run = alone(box, "ctrun.run()", RANK="one", WORLD_SIZE="2")
    assert run.code == 1 and "\nctrun.Error: " in run.err and "RANK=one" in run.err, run


def test_a_missing_library_is_an_error_that_says_what_to_do(box):
    run = alone(box, "ctrun.step(1)", CTRUN_LIBRARY=str(box.path("none.so")))
    assert run.code == 1 and "ImportError: ctrun: cannot load libctrun: " in run.err, run
    assert "name the file in CTRUN_LIBRARY" in run.err, run


def test_a_child_of_fork_has_a_session_of_its_own(box):
    run = alone(box, """
import os
ctrun.step(1)
child = os.fork()
if child == 0:
    ctrun.step(2)
    os._exit(ctrun.run().world_size)
print("said", os.waitpid(child, 0)[1])
""")
    assert said(run) == ["256"], run


STEPS = """
import pathlib
r = ctrun.run()
n = 0
while not ctrun.should_stop():
    with ctrun.store() as store:  # a step that all ranks do together
        store.set(f"{n}/{r.rank}", b"")
        store.wait([f"{n}/0", f"{n}/1"])
    ctrun.step(n)
    n += 1
    if n == 5:
        pathlib.Path(f"ready.{r.rank}").touch()
print("said", n, flush=True)
"""


def test_all_ranks_stop_after_the_same_step_and_the_step_is_shown(box):
    run = launch(box, STEPS, "--shutdown-timeout=20", start=True)
    ctrun.wait_until(lambda: all(box.path(f"ready.{r}").exists() for r in range(2)), lambda: run)
    shown = ctrun.wait_until(lambda: re.search(
        r'"step":\d+', box.run(ctrun.program("ctrunctl"), "status", "--json").out), lambda: run)
    assert shown
    assert box.run(ctrun.program("ctrunctl"), "stop").code == 0, box.runs[-1]
    run.wait()
    steps = said(run)
    assert len(steps) == 2 and len(set(steps)) == 1, run


def test_a_metric_that_nobody_asks_for_is_checked_all_the_same(box):
    run = alone(box, r"""
from fractions import Fraction
def refuses(name, value=1.0):
    try:
        ctrun.metric(name, value)
    except (ctrun.Error, ValueError, TypeError) as error:
        print("said", type(error).__name__, getattr(error, "code", 0), error)
ctrun.metric("loss", Fraction(1, 4))
ctrun.metric("loss", float("nan"))
refuses("the loss")
refuses("ctrun_loss")
refuses("a\0b")
refuses("loss", "low")
for i in range(1, 32):
    ctrun.metric(f"m{i}", i)
refuses("more")
ctrun.metric("m31", 1)
""")
    lines = said(run)
    assert run.code == 0 and len(lines) == 5, run
    assert lines[0].startswith("Error -22 metric 'ctrun_loss': a name has 1 to 63 letters"), run
    assert lines[1].startswith("Error -22 metric 'the loss': "), run
    assert lines[2].startswith("Error -28 metric 'more': this process has reported 32 other names"), run
    assert [line.split()[0] for line in lines[3:]] == ["ValueError", "ValueError"], run


MEASURED = """
import pathlib, signal
r = ctrun.run()
ctrun.metric("loss", 0.5 + r.rank)
ctrun.metric("rate", float("nan"))
pathlib.Path(f"told.{r.rank}").touch()
signal.pause()
"""


def test_metrics_are_at_the_rendezvous_in_the_status_and_in_the_event_of_a_killed_worker(box):
    port = ctrun.free_port()
    script = box.write("script.py", f"import ctrun\n{MEASURED}")
    run = box.start_ctrun("--nnodes=1", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}",
                          "--rdzv-id=job 7", "--nproc-per-node=2", script, env=OURS)
    ctrun.wait_until(lambda: all(box.path(f"told.{r}").exists() for r in range(2)), lambda: run)

    def shown():
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as reply:
            return re.findall(r'^(?:loss|rate)\{.*', reply.read().decode(), re.M)
    ctrun.wait_until(lambda: shown() == ['loss{run="job 7",rank="0"} 0.5', 'loss{run="job 7",rank="1"} 1.5',
                                         'rate{run="job 7",rank="0"} NaN', 'rate{run="job 7",rank="1"} NaN'],
                     lambda: f"{shown()} {run}")
    status = json.loads(box.run(ctrun.program("ctrunctl"), "status", "--json").out)["runs"][0]
    assert [worker["metrics"] for worker in status["workers"]] == [
        {"loss": 0.5, "rate": "NaN"}, {"loss": 1.5, "rate": "NaN"}], status
    os.kill(status["workers"][1]["pid"], signal.SIGKILL)
    assert run.wait() == 128 + signal.SIGKILL, run
    ended = box.events("worker_ended", rank=1)[0]
    assert ended["metrics"] == {"loss": 1.5, "rate": "NaN"} and ended["code"] == signal.SIGKILL
    schema.check(ended, "events")


FAKES = {
    "lightning/__init__.py": "",
    "lightning/pytorch.py": "class Callback:\n    pass\n",
    "transformers.py": "class TrainerCallback:\n    pass\n",
}


@pytest.fixture
def stand_ins(box):
    """PYTHONPATH with our package, and as much of Lightning and Transformers as is imported."""
    for name, text in FAKES.items():
        path = box.path(f"fakes/{name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return {"PYTHONPATH": f"{PACKAGE}:{box.path('fakes')}"}


def asked(*answers):
    """Code after which should_stop() returns these answers, and `steps` has the steps."""
    return (f"answers = list({answers})\nsteps = []\nctrun.step = steps.append\n"
            "ctrun.should_stop = lambda: answers.pop(0)\n")


def test_the_callback_of_lightning_saves_once_and_stops(box, stand_ins):
    run = alone(box, asked(False, True, True) + """
from types import SimpleNamespace as Made
from ctrun.lightning import Progress
saved = []
trainer = Made(global_step=7, should_stop=False, save_checkpoint=saved.append)
callback = Progress(checkpoint="x.ckpt")
for _ in range(3):
    callback.on_train_batch_end(trainer, None, None, None, 0)
    print("said", len(steps), steps[-1], trainer.should_stop, saved)
""", **stand_ins)
    assert said(run) == ["1 7 False []", "2 7 True ['x.ckpt']", "3 7 True ['x.ckpt']"], run


def test_the_callback_of_transformers_saves_and_stops(box, stand_ins):
    run = alone(box, asked(False, True) + """
from types import SimpleNamespace as Made
from ctrun.transformers import Progress
control = Made(should_save=False, should_training_stop=False)
for _ in range(2):
    control = Progress().on_step_end(None, Made(global_step=9), control)
    print("said", steps[-1], control.should_save, control.should_training_stop)
""", **stand_ins)
    assert said(run) == ["9 False False", "9 True True"], run


def test_the_package_alone_imports_neither_framework(box, stand_ins):
    run = alone(box, "import sys\nprint('said', 'lightning' in sys.modules, 'transformers' in"
                     " sys.modules)", **stand_ins)
    assert said(run) == ["False False"], run


def test_each_function_is_declared_as_in_the_header():
    """Pointers are where the header has them, and there are as many arguments."""
    sys.path.insert(0, str(PACKAGE / "ctrun"))
    try:
        import _library as declared
    finally:
        sys.path.pop(0)
    header = (ctrun.ROOT / "worker_sdk/include/ctrun.h").read_text()
    for name, result, arguments in declared._FUNCTIONS:
        found = re.search(rf"CTRUN_API ([\w ]+[ *]){name}\(([^)]*)\)", header)
        assert found, name
        theirs = [] if found[2] == "void" else found[2].split(",")
        assert len(theirs) == len(arguments), name
        for text, ours in zip(theirs, arguments):
            is_pointer = ours in (declared._p, declared._key) or hasattr(ours, "contents")
            assert ("*" in text) == is_pointer, (name, text)
        assert ("*" in found[1]) == (result is declared._key), name
        assert (found[1].strip() == "void") == (result is None), name


def test_it_is_the_version_of_the_tree():
    version = re.search(r"project\(ctrun VERSION ([\d.]+)", (ctrun.ROOT / "CMakeLists.txt").read_text())
    assert f'__version__ = "{version[1]}"' in (PACKAGE / "ctrun/__init__.py").read_text()


# ---- README.md -----------------------------------------------------------------------------


def test_the_readme_shows_what_is_printed(box):
    files, commands = readme.samples()
    commands = [(command.split(), printed) for command, printed in commands if command.startswith("ctrun ")]
    assert len(files) == 2 and len(commands) == 2
    for name, text in files.items():
        box.write(name, text)
    for command, printed in commands:
        run = box.ctrun(*command[1:], env={**OURS, "PYTHON_EXEC": ctrun.DEBIAN_PYTHON})
        told = run.out.splitlines() if run.code == 0 else run.err[run.err.index("ctrun: error"):].splitlines()
        assert readme.shape(told) == readme.shape(printed), run


def test_the_launcher_knows_the_name_of_the_library(box):
    assert "CTRUN_LIBRARY" not in launch(box, "ctrun.run()").err


def test_a_rank_that_hangs_is_named_with_the_line_of_its_script(box):
    run = launch(box, """
import threading
with ctrun.store() as store:  # nobody is late because he starts late
    store.set(f"up/{ctrun.run().rank}", b"")
    store.wait(["up/0", "up/1"])

def load_batch(n):
    if n == 2 and ctrun.run().rank == 1:
        threading.Event().wait()

for n in range(1000000):
    load_batch(n)
    ctrun.step(n)
    if ctrun.run().rank == 0 and n == 3:
        threading.Event().wait()
""", "--hang-timeout=3", "--log-dir", box.dir)
    assert run.code == 1 and "error[E_HANG]: rank 1 (" in run.err, run
    script = re.escape(str(box.path("script.py")))
    assert re.search(rf"^  it is in   : load_batch \({script}:10\)$", run.err, re.M), run
    [text] = [path.read_text() for path in box.dir.glob("*/attempt_0/1/stack.txt")]
    assert re.search(rf"    load_batch \({script}:10\)\n    <module> \({script}:13\)", text), text


POISON = """import os, signal
r = ctrun.run()
for step, ids in enumerate([[1, 2], [3, 4], [7, 70 + r.restart_count]]):
    ctrun.batch(ids if r.rank == 0 else [9])
    ctrun.step(step)
if r.rank == 0:
    os.kill(os.getpid(), signal.SIGKILL)
signal.pause()
"""


def test_samples_that_were_in_work_at_two_deaths_are_named(box):
    run = launch(box, POISON, "--max-restarts=1", "--shutdown-timeout=1")
    assert run.code == 128 + signal.SIGKILL, run
    text = ("the same sample (7) was being processed at both deaths: rank 0 in generation 1, rank 0 "
            "now")
    assert re.search("again *: " + re.escape(text), run.err), run
    [event] = box.events("same_samples")
    assert (event["generation"], event["rank"], event["text"]) == (2, 0, text), event
    ended = [e for e in box.events("worker_ended") if e["rank"] == 0]
    assert [e["samples"] for e in ended] == [[7, 70], [7, 71]], ended
    for event in box.events():
        schema.check(event, "events")


def test_ids_that_are_none_are_refused_and_long_batches_cut(box):
    run = alone(box, """
for ids in [range(10 ** 9)], [[0, 2 ** 64 - 1]], [[]], [[-1]], [[2 ** 64]], [["x"]]:
    try:
        print("said", ctrun.batch(*ids))
    except ValueError as error:
        print("said", error)
""")
    assert [line.split(":")[0] for line in re.findall(r"said (.*)", run.out)] == [
        "None", "None", "None", "batch", "batch", "invalid literal for int() with base 10"], run
