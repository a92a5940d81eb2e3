# SPDX-License-Identifier: Apache-2.0
"""--hang-timeout on stock PyTorch: it names the rank that the others wait for, and no rank that
only takes long."""
import json
import re
import signal

import ctrun
import pytest
from hang_bodies import FINE, HANGS, SCRIPT, line_of
from torch_job import interpreter

LIMIT = 2  # seconds


def has_recorder(python):
    return python != ctrun.DEBIAN_PYTHON


def run(box, python, kind, *options, world=3, seconds=0.0, words=()):
    """With --warm=torch PyTorch is imported once, and not by each rank: most of the time goes into
    imports."""
    script = box.write("train.py", SCRIPT)
    return box.ctrun("--standalone", f"--nproc-per-node={world}", f"--hang-timeout={LIMIT}", "--log-dir=logs",
                     "--shutdown-timeout=2", *options, script, kind, str(seconds), *words,
                     env={"PYTHON_EXEC": python}, seconds=120)


def head(run):
    return next((line for line in run.err.splitlines() if line.startswith("ctrun: error[")), "")


def evidence(box, name):
    """rank -> text of its file."""
    return {int(path.parent.name): path.read_text(errors="replace")
            for path in box.path("logs").glob(f"*/attempt_0/*/{name}")}


@pytest.mark.parametrize("kind", HANGS)
def test_the_rank_that_the_others_wait_for_is_named_with_its_line(box, python, kind):
    ended = run(box, python, kind, *([] if kind in ("sleep", "stop") else ["--warm=torch"]))
    assert ended.code == 1, ended
    assert re.match(r"ctrun: error\[E_HANG\]: rank 1 \(\S+, pid \d+\) is stuck: it ", head(ended)), ended
    assert f"  it is in   : {kind} ({box.path('train.py')}:{line_of(kind)})\n" in ended.err, ended
    assert sorted(evidence(box, "stack.txt")) == [0, 1, 2]
    assert ("state T" in ended.err) == (kind == "stop"), ended
    assert kind != "blocked" or re.search(r"^  it is in   : state D\b", ended.err, re.M), ended
    if not has_recorder(python):
        what = "stopped (state T)" if kind == "stop" else "in no collective"
        assert f"it is {what}, and ranks 0, 2 wait in a collective " in head(ended), ended
        return
    assert re.search(r"it has not entered gloo:all_reduce 6 of \S+, in which ranks 0, 2 wait \(rank \d has waited \d+\.\d s\)$",
                     head(ended)) or kind == "stop" and "it is stopped (state T)" in head(ended), ended
    dumps = evidence(box, "flight_recorder.json")
    assert set(dumps) >= {0, 2}
    assert all("pg_status" in json.loads(text) for text in dumps.values())
    [trace] = [json.loads(path.read_text()) for path in box.path("logs").glob("*/attempt_0/flight_recorder.node0.json")]
    calls = [event for event in trace["traceEvents"] if event["ph"] != "M"]
    assert {event["pid"] for event in calls} == set(dumps)
    assert {event["pid"] for event in calls if event["args"]["number"] == 6} >= {0, 2}
    assert all(event["args"]["is_over"] == (event["args"]["number"] < 6) for event in calls if event["pid"] != 1), calls


@pytest.mark.parametrize("kind", ["skip", "leave", "shape"])
def test_a_call_that_is_not_that_of_the_others_is_told(box, kind):
    ended = run(box, interpreter("newer"), kind, "--warm=torch")
    other = {"skip": "gloo:broadcast Float[1]", "leave": "gloo:broadcast Float[3]", "shape": "gloo:all_reduce Float[4]"}
    assert "E_HANG" in head(ended) and "rank 1 (" in head(ended), ended
    assert re.search(rf"call \d+ of (its|that) group is {re.escape(other[kind])} on this rank, and (was )?gloo:all_reduce Float\[3\] "
                     r"on rank [02]", ended.err), ended


@pytest.mark.parametrize("kind", FINE)
def test_who_only_takes_long_is_left_alone(box, python, kind):
    long = {"first": LIMIT / 2, "quiet": LIMIT / 2, "evaluation": 2.5 * LIMIT, "checkpoint": 2.5 * LIMIT}
    ended = run(box, python, kind, "--warm=torch", world=2, seconds=long.get(kind, 0), words=[box.dir])
    assert ended.code == 0 and "E_HANG" not in ended.err and "hang-timeout" not in ended.err, ended


def test_a_restart_follows_where_one_is_left(box, python):
    script = box.write("train.py", SCRIPT.replace("kind, seconds = sys.argv[1]", "kind, seconds = os.environ["
                                                  "'TORCHELASTIC_RESTART_COUNT'] == '0' and 'sleep' or 'none'"))
    ended = box.ctrun("--standalone", "--nproc-per-node=2", f"--hang-timeout={LIMIT}", "--max-restarts=1",
                      "--shutdown-timeout=2", script, "x", "0", env={"PYTHON_EXEC": python}, seconds=120)
    assert ended.code == 0 and "is stuck" in ended.err, ended


LOOK = """import json, os, sys, threading
if {imports}:
    import torch.distributed
site = sys.modules.get("sitecustomize")
print(json.dumps([sys.argv, [p for p in sys.path if "recorder" in p], os.environ.get("PYTHONPATH"), __name__, __file__,
                  [n for n in os.environ if n in ("CTRUN_RECORDER", "CTRUN_PYTHONPATH")],
                  getattr(site, "__file__", None), threading.active_count(), sys.path[:2]]))
"""


@pytest.mark.parametrize("imports", [False, True])
def test_a_program_sees_nothing_of_it(box, python, imports):
    script = box.write("look.py", LOOK.format(imports=imports))
    box.path("own").mkdir()
    box.path("own/sitecustomize.py").write_text("seen = True\n")
    seen = []
    for options in ([], ["--hang-timeout=60"]):
        for path in (None, str(box.path("own"))):
            env = {"PYTHON_EXEC": python, "PYTHONPATH": path} if path else {"PYTHON_EXEC": python}
            ended = box.ctrun("--standalone", "--nproc-per-node=1", *options, script, "a b", env=env, seconds=60)
            assert ended.code == 0 and ended.err == "", ended
            seen.append(json.loads(ended.out))
    assert seen[0] == seen[2] and seen[1] == seen[3], seen
    assert seen[3][6] == str(box.path("own/sitecustomize.py"))


def test_the_folder_goes_with_the_run(box, python):
    script = box.write("train.py", "import os\nprint(os.getpid())\n")
    control = box.path("control")
    ended = box.ctrun("--standalone", "--hang-timeout=60", script,
                      env={"PYTHON_EXEC": python, "CTRUN_CONTROL_DIR": str(control)}, seconds=60)
    assert ended.code == 0, ended
    assert [path.name for path in control.iterdir() if path.name.endswith(".recorder")] == [], ended


def test_ctrunctl_says_in_which_call_each_rank_is(box):
    script = box.write("train.py", SCRIPT)
    run = box.start_ctrun("--standalone", "--nproc-per-node=2", "--hang-timeout=600", "--warm=torch", script, "sleep", "0",
                          env={"PYTHON_EXEC": interpreter("newer")})

    def said(*words):
        return box.run(ctrun.program("ctrunctl"), "why", "--hang", *words).out
    waits = "rank 0 has not completed gloo:all_reduce 6 of default_pg, "
    ctrun.wait_until(lambda: waits in said(), lambda: f"rank 0 waits\n{said()}\n{run}", 120)
    text = said()
    assert "rank 1 has completed gloo:all_reduce 5 of default_pg, " in text, text
    assert f"sleep ({box.path('train.py')}:{line_of('sleep')})" in text and text.count(" ago") == 2, text
    run.signal(signal.SIGTERM)
    assert run.wait(60) == 143, run
