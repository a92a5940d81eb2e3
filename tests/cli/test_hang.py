# SPDX-License-Identifier: Apache-2.0
"""T21: a rank that makes no more steps is named, with its state and the stacks of all ranks."""
import platform
import re
import signal

import ctrun
import launch
from clock import Clock

VICTIM = ["--no-python", ctrun.program("victim")]


def together(*local_ranks):
    """Words of a victim with which these ranks wait for each other: who starts late makes no step
    late."""
    return ["touch", "up.%r", *(word for rank in local_ranks for word in ("await", f"up.{rank}"))]


def head(run):
    return next(line for line in run.err.splitlines() if line.startswith("ctrun: error["))


def stacks(box):
    """rank -> text of its file."""
    found = {}
    for path in box.path("logs").glob("*/attempt_0/*/stack.txt"):
        text = path.read_text(errors="replace")
        found[int(re.match(r"rank (\d+) pid \d+\n", text).group(1))] = text
    return found


def test_t21_a_stopped_rank_is_named_with_its_state_and_the_stacks_of_all(box):
    run = box.start_ctrun("--nproc-per-node=4", "--hang-timeout=3", "--log-dir=logs",
                          "--shutdown-timeout=2", *VICTIM, *together(0, 1, 2, 3), "@3", "step", "41", "die", "STOP",
                          "@all", "step", "42", "hang")
    assert run.wait(30) == 1
    [pid] = [event["worker_pid"] for event in box.events("worker_started", rank=3)]
    assert re.match(rf"ctrun: error\[E_HANG\]: rank 3 \(\S+, pid {pid}\) is stuck: last step "
                    r"41, \d+\.\d s ago, others 42$", head(run)), run
    assert re.search(r"^  it is in   : state T, kernel \S+ \(stack: /.*/attempt_0/3/stack.txt\)$",
                     run.err, re.M), run
    assert "3 ranks of this node have got further" in run.err
    assert "stacks of all ranks saved" in run.err
    assert "ranks 0-2 stopped by ctrun" in run.err
    saved = stacks(box)
    assert sorted(saved) == [0, 1, 2, 3]
    assert "state T" in saved[3] and "state S" in saved[0] and "system call: " in saved[0]
    if platform.machine() == "x86_64":  # where C frames are read
        assert all(re.search(r"^    in main \(victim\)$", text, re.M) for text in saved.values()), saved


def test_t21_a_rank_that_computes_without_a_step_is_named(box):
    run = box.ctrun("--nproc-per-node=3", "--hang-timeout=3", "--log-dir=logs",
                    "--shutdown-timeout=2", *VICTIM, *together(0, 1, 2), "@1", "step", "7", "spin",
                    "@all", "step", "7", "hang", seconds=30)
    assert run.code == 1 and "E_HANG" in head(run) and "rank 1 (" in head(run), run
    assert "it is in   : state R" in run.err and re.search(r"^  traceback : E_HANG: ", run.err, re.M), run


def test_a_rank_without_a_step_is_named_when_others_make_steps(box):
    run = box.ctrun("--nproc-per-node=2", "--hang-timeout=3", "--shutdown-timeout=2", *VICTIM, "@0", "step", "42", "hang",
                    "@all", "hang", seconds=30)
    assert re.search(r"rank 1 \(.*\) is stuck: no step since it started \d+\.\d s ago, others 42$", head(run)), run


def test_a_program_that_tells_no_steps_is_said_not_to_be_watched(box):
    run = box.start_ctrun("--nproc-per-node=2", "--hang-timeout=1", *VICTIM, "hang")
    ctrun.wait_until(lambda: "--hang-timeout=1 watches nothing yet" in run.err, lambda: str(run))
    run.signal(signal.SIGTERM)
    run.wait()
    assert run.err.count("watches nothing yet") == 1, run


def test_the_error_of_a_rank_that_raised_and_does_not_end_is_the_likely_cause_of_a_hang(box):
    raised = '{"message": {"message": "ValueError: the real one", "extraInfo": {"timestamp": "1"}}}'
    run = box.ctrun("--nproc-per-node=2", "--hang-timeout=3", "--shutdown-timeout=2", *VICTIM,
                    "@1", "step", "41", "errfile", raised, "hang", "@all", "step", "42", "hang", seconds=30)
    assert run.code == 1 and re.search(r"E_HANG\]: rank 1 \(", head(run)), run
    assert re.search(r"^  likely     : the error that rank 1 reported \d+\.\d s ago, since when it has not ended: "
                     r"ValueError: the real one$", run.err, re.M), run
    assert "stacks of all ranks saved" in run.err, run


def test_the_rank_that_has_not_entered_the_collective_is_named(box):
    run = box.ctrun("--nproc-per-node=3", "--hang-timeout=3", "--log-dir=logs", "--shutdown-timeout=2",
                    *VICTIM, *together(0, 1, 2), "@1", "step", "7", "hang", "@all", "step", "7", "meet", seconds=30)
    assert run.code == 1 and "E_HANG" in head(run) and "rank 1 (" in head(run), run
    assert "2 ranks of this node wait in a collective that it has not entered" in run.err


def test_the_node_of_the_rank_that_is_missing_is_asked(box):
    daemon, endpoint = box.start_ctrund()
    runs = []
    for n in range(2):
        runs.append(box.start_ctrun("--nnodes=2", f"--rdzv-endpoint={endpoint}",
                                    f"--hang-timeout={(3, 1000)[n]}", "--shutdown-timeout=2", "--no-python",
                                    ctrun.program("victim"), "touch", f"up.{n}", "await", f"up.{1 - n}", "step", "7",
                                    ("meet", "hang")[n]))
        box.wait_event("agent_state", n + 1, to="joining")
    assert [run.wait(30) for run in runs] == [1, 1], runs
    for run in runs:  # the timer of rank 0's node has expired; that of the other node never does
        assert "E_HANG" in head(run) and "rank 1 (" in head(run), run
        assert "also failed" not in run.err, run
    assert [run.err.count("  world      : of 2 ranks on 2 nodes 1 waits in a collective (0); "
                          "last steps 7 to 7\n") for run in runs].count(1) == 1, runs
    daemon.signal(signal.SIGTERM)
    assert daemon.wait() == 0


def test_the_last_step_is_told_though_steps_are_many(box):
    run = box.ctrun("--nproc-per-node=2", *VICTIM, "@1", "step", "1", "step", "100000", "exit", "3", "@all", "hang")
    assert run.code == 3 and " exited with 3 at step 100000, " in head(run), run


def test_status_has_the_last_step(box):
    run = box.start_ctrun("--nproc-per-node=2", *VICTIM, "step", "1", "step", "400", "touch", "told", "hang")
    ctrun.wait_until(box.path("told").exists, "the steps are told")
    ctrun.wait_until(lambda: launch.steps(box).get(0) == 400, "status has the last step")
    run.signal(signal.SIGTERM)
    assert run.wait() == 143


def test_t21_a_restart_follows_where_one_is_left(box):
    run = box.ctrun("--nproc-per-node=2", "--hang-timeout=3", "--max-restarts=1",
                    "--shutdown-timeout=2", *VICTIM, "@0r0", "step", "1", "hang",
                    "@1r0", "step", "2", "hang", "@all", "exit", "0", seconds=30)
    assert run.code == 0, run
    assert "restart 1/1: rank 0 on " in run.err and "is stuck" in run.err
    assert len(box.events("round_started")) == 2


def test_t21_the_node_of_the_stuck_rank_speaks_first(box):
    daemon, endpoint = box.start_ctrund()
    runs = [box.start_ctrun("--nnodes=2", f"--rdzv-endpoint={endpoint}", "--hang-timeout=3",
                            "--shutdown-timeout=2", f"--log-dir=logs{n}", "--no-python", "sh", "-c",
                            f'exec {ctrun.program("victim")} touch up.$RANK await up.$((1 - RANK)) step $((42 - RANK)) hang')
            for n in range(2)]
    assert [run.wait(30) for run in runs] == [1, 1], runs
    for run in runs:
        assert "E_HANG" in head(run) and "rank 1 (" in head(run) and "last step 41" in head(run), run
    for n in range(2):
        assert list(box.path(f"logs{n}").glob("*/attempt_0/0/stack.txt")), runs
    daemon.signal(signal.SIGTERM)
    assert daemon.wait() == 0


def make_steps(box, ranks, *words):
    """A run in which these ranks make three steps, 60 s apart."""
    clock = Clock(box)
    run = box.start_ctrun("--hang-timeout=100", "--rdzv-conf=keep_alive_interval=1000", *words, env=clock.env)
    for step in (1, 2, 3):
        ctrun.wait_until(lambda: launch.steps(box) == dict.fromkeys(ranks, step), lambda: f"step {step}\n{run}")
        clock.advance(60)
        launch.steps(box)
        box.write(f"go.{step}", "")
    assert run.wait() == 0 and "E_HANG" not in run.err, run


STEPS = [word for step in "123" for word in ("step", step, "await", f"go.{step}")]


def test_t21_who_goes_on_is_not_stuck(box):
    make_steps(box, (0, 1), "--nproc-per-node=2", *VICTIM, *STEPS)


def test_t21_a_role_that_tells_no_steps_is_not_measured_by_another(box):
    victim = ctrun.program("victim")
    make_steps(box, (1,), f"--role=data=1:{victim} await go.3", f"--role=trainer=1:{victim} {' '.join(STEPS)}")


def test_t21_a_stuck_rank_of_a_role_is_named_beside_one_that_goes_on(box):
    victim = ctrun.program("victim")
    run = box.ctrun("--hang-timeout=3", "--shutdown-timeout=2", f"--role=data=1:{victim} hang",
                    f"--role=trainer=2:{victim} {' '.join(together(1, 2))} @1 step 42 hang @all step 41 hang", seconds=30)
    assert run.code == 1 and "E_HANG" in head(run) and "rank 2 (" in head(run), run


def test_hang_timeout_wants_a_time(box):
    run = box.ctrun("--hang-timeout=-1", "true")
    assert run.code == 2 and "--hang-timeout=-1" in run.err
