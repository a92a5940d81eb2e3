# SPDX-License-Identifier: Apache-2.0
"""--hang-timeout for programs that report no steps: ctrun reads from outside what each is doing.
With a stand-in for torch (tests/lib/fake_torch.py); with torch itself:
tests/interop/test_hang_torch.py."""
import json
import os
import re
import signal
import stat
import sys
import time

import ctrun
import fake_torch
import pytest

LIMIT = 6  # seconds; ranks that meet begin to wait within it
# Rank R executes argument R, which is Python. Whoever waits in a call has met all others before, who
# are by then where they stay: so only the calls have to come within LIMIT.
SCRIPT = """import os, pathlib, signal, sys, time
from torch.distributed.distributed_c10d import call
rank = int(os.environ["RANK"])
def is_up(): pathlib.Path(f"up.{rank}").touch()
def rest():
    is_up(); os.read(os.pipe()[0], 1)
def spin():
    is_up()
    while True: pass
def stop():
    is_up(); os.kill(os.getpid(), signal.SIGSTOP)
def write(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pathlib.Path(f"note.{rank}").write_text("x")
        is_up()
        time.sleep(0.05)
def meet():
    is_up()
    while len(list(pathlib.Path().glob("up.*"))) < int(os.environ["WORLD_SIZE"]):
        time.sleep(0.01)
exec(sys.argv[1 + rank])
"""
WAIT = "call(7, waits=False); meet(); call(8)"


def start(box, *programs, options=(), recorder="", nproc=None, **how):
    script = box.write("train.py", SCRIPT)
    env = {"PYTHON_EXEC": sys.executable, "PYTHONPATH": fake_torch.install(box.dir), "FAKE_RECORDER": recorder}
    return box.start_ctrun(f"--nproc-per-node={nproc or len(programs)}", f"--hang-timeout={LIMIT}", "--shutdown-timeout=2",
                           *options, script, *programs, env=env, **how)


def head(run):
    return next((line for line in run.err.splitlines() if line.startswith("ctrun: error[")), "")


CASES = {
    "missing": ([WAIT, WAIT, "call(7, waits=False); rest()", WAIT], {"options": ["--log-dir=logs"]}),
    "nccl": ([WAIT, "call(7, waits=False); rest()"], {"recorder": "nccl"}),
    "frames": ([WAIT, "spin()", WAIT], {"recorder": "none"}),
    **{kind: ([WAIT, "call(7, waits=False); rest()"], {"recorder": kind}) for kind in ("garbage", "endless", "silent")},
    "two": ([WAIT, "rest()", "rest()"], {"recorder": "none"}),
    "stopped": ([WAIT, "stop()"], {"recorder": "none"}),
    "stopped after an answer": (["call(8)", "while not os.path.exists('in.0.8'): time.sleep(0.01)\ncall(7, waits=False); rest()"],
                                {"recorder": f"stops {LIMIT}"}),
    "left behind": ([WAIT, "meet(); call(7, size=4)"], {}),
    "unlike": (["meet(); call(8)", "meet(); call(8, size=4)", "meet(); call(8)"], {}),
    "alike": ([WAIT, WAIT], {}),
    "pairs": ([f"call(2, waits=False); meet(); call({number}, op='nccl:recv', pair=True)" for number in (8, 5)], {"recorder": "nccl"}),
    "ended": ([WAIT, "call(7, waits=False); is_up()"], {}),
    "another program": (["time.sleep(11); os.execlp('sleep', 'sleep', '3')"], {"options": ["--hang-timeout=1"]}),
}


@pytest.fixture(scope="module")
def runs():
    """name of the case -> its box and its run. All are started at once: they do little but wait."""
    boxes = {name: ctrun.Box() for name in CASES}
    started = {}
    try:
        for name, box in boxes.items():
            started[name] = box, start(box, *CASES[name][0], **CASES[name][1])
        yield started
        for _, run in started.values():  # those that no test has waited for
            if run.code is None:
                run.signal(signal.SIGTERM)
                run.wait()
    finally:
        complaints = [complaint for box in boxes.values() for complaint in box.close()]
    assert not complaints, complaints


def end_of(case):
    case[1].wait()
    return case[1]


def test_the_rank_that_has_not_entered_is_named(runs):
    box, ended = runs["missing"][0], end_of(runs["missing"])
    assert ended.code == 1, ended
    assert re.fullmatch(r"ctrun: error\[E_HANG\]: rank 2 \(\S+, pid \d+\) is stuck: it has not entered "
                        r"gloo:all_reduce 8 of default_pg, in which ranks 0-1, 3 wait \(rank \d has waited \d+\.\d s\)", head(ended)), ended
    assert f"  it is in   : rest ({box.path('train.py')}:6)\n" in ended.err, ended
    assert "  so         : its last call in that group was 7\n" in ended.err, ended
    assert re.search(r"^ +so? *:? ranks 0-1, 3 wait in gloo:all_reduce 8 of default_pg Float\[3\]: <module> \(",
                     ended.err, re.M), ended
    for rank in range(4):
        (folder,) = box.path("logs").glob(f"*/attempt_0/{rank}")
        assert (folder / "stack.txt").exists() and "pg_status" in json.loads((folder / "flight_recorder.json").read_text())


def test_the_recorder_of_nccl_is_read_too(runs):
    ended = end_of(runs["nccl"])
    assert "rank 1 (" in head(ended) and "it has not entered gloo:all_reduce 8 of default_pg" in head(ended), ended


def test_without_a_recorder_frames_tell(runs):
    box, ended = runs["frames"][0], end_of(runs["frames"])
    assert re.search(r"rank 1 \(\S+, pid \d+\) is stuck: it is in no collective, and ranks 0, 2 wait in a collective ",
                     head(ended)), ended
    assert f"spin ({box.path('train.py')}:9)" in ended.err and "state R" in ended.err, ended


@pytest.mark.parametrize("recorder", ["garbage", "endless", "silent"])
def test_a_recorder_that_answers_nonsense_is_not_believed(runs, recorder):
    ended = end_of(runs[recorder])
    assert ended.code == 1 and "rank 1 (" in head(ended) and "it is in no collective" in head(ended), ended


def test_two_that_are_missing_are_not_told_as_one(runs):
    ended = end_of(runs["two"])
    assert "2 ranks of this node are not seen in a collective: it is not known which of them the others wait for" in ended.err, ended


def test_a_stopped_rank_is_said_to_be_stopped(runs):
    ended = end_of(runs["stopped"])
    assert ended.code == 1 and "state T, " in ended.err, ended
    assert re.search(r"rank 1 \(.*\) is stuck: it is stopped \(state T\), and rank 0 waits in ", head(ended)), ended


def test_what_a_stopped_rank_had_not_entered_is_said_too(runs):
    """Its recorder answers when it is to be named, and then the rank is stopped."""
    ended = end_of(runs["stopped after an answer"])
    assert re.search(r"rank 1 \(.*\) is stuck: it is stopped \(state T\) and has not entered gloo:all_reduce 8 of "
                     r"default_pg, in which rank 0 waits ", head(ended)), ended
    assert "  so         : its last call in that group was 7\n" in ended.err, ended


def test_a_call_that_only_one_is_left_in_was_another_one(runs):
    ended = end_of(runs["left behind"])
    assert "rank 1 (" in head(ended) and "it has not entered gloo:all_reduce 8 of default_pg" in head(ended), ended
    assert "call 7 of that group is gloo:all_reduce Float[4] on this rank, and was gloo:all_reduce Float[3] on rank 0" in ended.err, ended


def test_calls_that_do_not_match_are_told(runs):
    ended = end_of(runs["unlike"])
    assert re.search(r"rank 1 \(.*\) is stuck: call 8 of its group is gloo:all_reduce Float\[4\] on this rank, and gloo:all_reduce "
                     r"Float\[3\] on rank [02] \(rank [02] has waited ", head(ended)), ended


def test_where_all_wait_alike_the_cause_is_not_known(runs):
    ended = end_of(runs["alike"])
    assert re.search(r"rank [01] \(.*\) is stuck: it has waited \d+\.\d s in gloo:all_reduce 8 of default_pg$", head(ended)), ended
    assert "  so         : it is not known for which rank it waits\n" in ended.err, ended
    assert "  do         : no rank is behind: compare the stacks of the ranks\n" in ended.err, ended


def test_the_number_of_a_receive_is_not_compared(runs):
    """Each pair of ranks has its own numbers, and the recorder tells the last collective only."""
    ended = end_of(runs["pairs"])
    assert re.search(r"rank ([01]) \(.*\) is stuck: it has waited \d+\.\d s in nccl:recv [58] of default_pg$", head(ended)), ended


def test_a_rank_that_has_ended_is_told(runs):
    ended = end_of(runs["ended"])
    assert "  likely     : the ranks that wait, wait for rank 1, which had ended with 0\n" in ended.err, ended
    assert "  before it  : rank 1 had ended with 0\n" in ended.err and "not known" not in ended.err, ended


def test_who_writes_is_left_alone_while_others_wait(box):
    started = start(box, WAIT, "write(600)")
    writes = box.path("note.1")
    ctrun.wait_until(writes.exists, lambda: f"rank 1 writes\n{started}")
    begun = writes.stat().st_mtime
    ctrun.wait_until(lambda: writes.stat().st_mtime > begun + 1.5 * LIMIT, lambda: f"a limit has passed\n{started}")
    assert "E_HANG" not in started.err, started
    started.signal(signal.SIGTERM)
    started.wait()


def test_the_stacks_are_there_where_the_trace_cannot_be_written(box):
    """Its file system hangs: the path is a pipe that nobody reads."""
    started = start(box, WAIT, "call(7, waits=False); rest()", options=["--log-dir=logs", "--hang-timeout=3"])
    ctrun.wait_until(lambda: list(box.path("logs").glob("*/attempt_0")), lambda: f"there is a folder\n{started}")
    [folder] = box.path("logs").glob("*/attempt_0")
    trace = folder / "flight_recorder.node0.json"
    os.mkfifo(trace)
    assert started.wait() == 1 and "rank 1 (" in head(started), started
    assert "stacks of all ranks saved" in started.err or "the stacks of all ranks are saved" in started.err, started
    assert (folder / "0/stack.txt").exists() and (folder / "1/stack.txt").exists(), started
    assert f"the calls of the flight recorders were not saved path={trace} why=Connection timed out" in started.err, started


def test_while_nobody_waits_nothing_is_told(box):
    started = start(box, "spin()", "rest()", options=["--hang-timeout=1"])
    box.wait_workers(2)
    begun = time.monotonic()
    ctrun.wait_until(lambda: time.monotonic() > begun + 4, "four limits have passed")
    assert "E_HANG" not in started.err and "watches nothing" not in started.err, started
    started.signal(signal.SIGTERM)
    started.wait()


def test_a_program_that_could_be_read_so_far_is_not_said_to_be_unwatched(runs):
    """For a while ctrun can not read a Python that ends; here the process becomes `sleep`
    instead."""
    ended = end_of(runs["another program"])
    assert ended.code == 0 and ended.err == "", ended


def test_nobody_else_can_reach_the_recorder(box):
    started = start(box, "rest()")
    ctrun.wait_until(box.path("up.0").exists, lambda: f"rank 0 is up\n{started}")
    (folder,) = box.path("ctl").glob("*.recorder")
    names = {"0", str(box.wait_workers(1)[0])}  # of the agent and of the worker
    ctrun.wait_until(lambda: {p.name for p in folder.iterdir() if stat.S_ISSOCK(p.stat().st_mode)} == names, "the server is up")
    assert folder.stat().st_mode & 0o777 == 0o700
    ctrun.wait_until(lambda: all((folder / name).stat().st_mode & 0o777 == 0o600 for name in names), "they are closed to others")
    started.signal(signal.SIGTERM)
    started.wait()
    assert not folder.exists() and "listening" not in started.err, started


def test_what_a_killed_agent_has_left_is_removed_by_the_next(box):
    started = start(box, "rest()")
    ctrun.wait_until(box.path("up.0").exists, lambda: f"rank 0 is up\n{started}")
    (folder,) = box.path("ctl").glob("*.recorder")
    os.kill(int(folder.name.split(".")[0]), signal.SIGKILL)
    started.wait()
    assert folder.exists()
    other = start(box, "rest()", "rest()")
    ctrun.wait_until(lambda: not folder.exists(), lambda: f"it is removed\n{other}")
    box.wait_event("worker_started", 3)
    assert len(list(box.path("ctl").glob("*.recorder"))) == 1
    other.signal(signal.SIGTERM)
    other.wait()


def test_containers_with_the_same_pids_and_one_folder_have_recorders_each(box):
    """Each has its own PIDs, so that both agents have the same pid."""
    unshare = ["unshare", "--fork", "--pid", "--mount-proc", "--kill-child"]
    if box.run(*unshare, "true").code != 0:
        pytest.skip("no PID namespace can be made here")
    runs = [box.start(*unshare, ctrun.program("ctrun"), "--hang-timeout=600", "--no-python", ctrun.program("victim"),
                      "touch", f"up.{name}", "await", "end") for name in "ab"]
    ctrun.wait_until(lambda: all(box.path(f"up.{name}").exists() for name in "ab"), lambda: f"two runs\n{runs}")
    folders = [path.name for path in box.path("ctl").glob("*.recorder")]
    box.write("end", "")
    assert [run.wait() for run in runs] == [0, 0] and not any("recorder" in run.err for run in runs), runs
    assert len({name.split(".")[0] for name in folders}) == 1 and len(folders) == 2, folders
    assert not list(box.path("ctl").glob("*.recorder"))


def start_nodes(box, *programs, recorder="", options=()):
    """A node for each rank."""
    daemon, endpoint = box.start_ctrund()
    runs = []
    for n in range(len(programs)):
        runs.append(start(box, *programs, nproc=1, options=[f"--nnodes={len(programs)}", f"--rdzv-endpoint={endpoint}", *options],
                          recorder=recorder))
        box.wait_event("agent_state", n + 1, to="joining")
    return daemon, runs


@pytest.mark.parametrize("recorder, what", [
    ("", "it has not entered gloo:all_reduce 8 of default_pg, in which rank 0 waits"),
    ("none", "it is in no collective, and ranks of other nodes wait in a collective")])
def test_the_node_of_the_rank_that_the_others_wait_for_is_asked(box, recorder, what):
    daemon, runs = start_nodes(box, WAIT, "call(7, waits=False); rest()", recorder=recorder)
    assert [run.wait(60) for run in runs] == [1, 1], runs
    for run in runs:
        assert "rank 1 (" in head(run) and head(run).endswith(f" is stuck: {what}"), run
        assert "also failed" not in run.err, run
    assert recorder or any("  so         : its last call in that group was 7\n"
                           "  so         : rank 0 waits in gloo:all_reduce 8 of default_pg Float[3]\n" in run.err for run in runs), runs
    assert any("  world      : of 2 ranks on 2 nodes 1 waits in a collective (0)\n" in run.err for run in runs), runs
    daemon.signal(signal.SIGTERM)
    assert daemon.wait() == 0


def test_a_rank_of_another_node_that_has_ended_is_waited_for(box):
    daemon, runs = start_nodes(box, WAIT, "call(7, waits=False); is_up()", WAIT, options=["--log-dir=logs"])
    assert [run.wait(60) for run in runs] == [1, 1, 1], runs
    for run in runs:
        assert re.search(r"rank [02] \(.*\) is stuck: it has waited \d+\.\d s in gloo:all_reduce 8 of default_pg$", head(run)), run
    [run] = [run for run in runs if "  world      : " in run.err]  # its node prints more than one line
    assert "  world      : of 3 ranks on 3 nodes 2 wait in a collective (" in run.err, run
    assert ", 1 had ended with 0 (1)\n" in run.err and "  before it  : rank 1 had ended with 0\n" in run.err, run
    assert "  likely     : the ranks that wait, wait for rank 1, which had ended with 0\n" in run.err, run
    assert "  do         : look at why rank 1 ended before the others\n" in run.err and "this pause" not in run.err, run
    summaries = [json.loads(path.read_text()) for path in box.path("logs").glob("*/summary.json")]
    assert summaries and all(1 in [failure["rank"] for failure in summary["failures"]] for summary in summaries), summaries
    daemon.signal(signal.SIGTERM)
    assert daemon.wait() == 0


def test_where_the_ranks_of_all_nodes_wait_no_rank_is_said_to_be_behind(box):
    daemon, runs = start_nodes(box, WAIT, WAIT)
    assert [run.wait(60) for run in runs] == [1, 1], runs
    [run] = [run for run in runs if "  world      : " in run.err]
    assert "  do         : no rank is behind: look at the network between the nodes; " in run.err, run
    assert "this pause" not in run.err, run
    daemon.signal(signal.SIGTERM)
    assert daemon.wait() == 0


def test_progress_on_another_node_counts(box):
    daemon, runs = start_nodes(box, WAIT, "write(600)")
    writes = box.path("note.1")
    ctrun.wait_until(writes.exists, lambda: f"rank 1 writes\n{runs}")
    begun = writes.stat().st_mtime
    ctrun.wait_until(lambda: writes.stat().st_mtime > begun + 1.5 * LIMIT, lambda: f"a limit has passed\n{runs}")
    assert not any("E_HANG" in run.err for run in runs), runs
    ctrun.stop(*runs)
    daemon.signal(signal.SIGTERM)
    assert daemon.wait() == 0
