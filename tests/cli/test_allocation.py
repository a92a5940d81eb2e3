# SPDX-License-Identifier: Apache-2.0
"""The end of the allocation: what ctrun does before it, and what it prints when the end is
unknown."""
import os
import signal
import time

import ctrun
import launch
import schema
import test_signals_run as signals
import test_summary_json

SOON = int(7 * ctrun.SLOW) + 1  # by then the workers must have set their traps
FAR = 3600


def end(**more):
    """The allocation ends in FAR seconds: what happens FAR - SOON seconds before happens in SOON
    seconds."""
    return {"CTRUN_END_TIME": str(int(time.time()) + FAR), **more}


def before(name=""):
    return f"--stop-before-end={FAR - SOON}{name}"


def start(box, *options, env=None):
    box.write("count.sh", signals.COUNTING, 0o755)
    return box.start_ctrun("--nproc-per-node=2", *options, "count.sh", env=env or end())


def test_workers_save_before_the_end_and_the_job_asks_for_a_requeue(box):
    run = start(box, before(), "--requeue-exit=75", "--log-dir=logs")
    signals.wait_all_got(box, 2, "TERM")
    signals.leave(box, [run], 75)
    assert "ctrun: the allocation ends in 3" in run.err and "for checkpoints" in run.err, run
    assert "stopped before the allocation ends" in run.err, run
    assert f"no worker of {os.uname().nodename} has failed: exit code 75" in run.err, run
    told = test_summary_json.summary(box)
    assert (told["outcome"], told["reason"]) == ("signal", "allocation_ends")
    assert (told["signal"], told["exit_code"]) == (signal.SIGTERM, 75)
    [event] = box.events("allocation_ends")
    assert (event["is_ending"], event["signal"]) == (1, signal.SIGTERM)
    # The workers get nearly all of the time, and end before it is over.
    assert 0.8 * event["left_ms"] < event["grace_ms"] < event["left_ms"] <= FAR * 1000
    schema.check_events(box)
    why = box.run(ctrun.program("ctrunctl"), "why", "logs")
    assert "before the end of its allocation" in why.out, why


def test_a_shorter_grace_is_kept_and_workers_that_do_not_end_are_killed(box):
    run = box.start_ctrun(before(), "--shutdown-timeout=0", "--requeue-exit=75", "--no-python",
                          "sh", "-c", "trap '' TERM; while :; do sleep 60; done", env=end())
    assert run.wait() == 128 + signal.SIGTERM, run
    assert box.events("allocation_ends")[0]["grace_ms"] == 0


def test_usr1_is_passed_on_to_each_worker_of_all_nodes_once(box):
    at = str(int(time.time()) + FAR)
    box.env["CTRUN_END_TIME"] = at
    runs = signals.start_nodes(box, 2, before(",USR1"), "--requeue-exit=75")
    signals.wait_all_got(box, 4, "USR1")
    box.wait_event("signal_received", count=2)  # each node has received that of the other
    runs[0].signal(signal.SIGUSR2)  # whoever has received it has received USR1 before
    signals.wait_all_got(box, 4, "USR2")
    assert [signals.got(box, rank) for rank in range(4)] == [["USR1", "USR2"]] * 4
    signals.leave(box, runs, 75)
    assert "SIGUSR1 to the workers" in runs[0].err, runs
    assert [event["is_ending"] for event in box.events("allocation_ends")] == [0, 0]


def test_a_node_whose_workers_have_succeeded_passes_usr1_on_and_serves_the_others(box):
    program = box.write("half.sh", signals.COUNTING.replace(
        "echo up", '[ "$GROUP_RANK" = 1 ] || exit 0\necho up'), 0o755)
    port = launch.free_port()
    runs = [box.start_ctrun("--nnodes=2", f"--node-rank={node}", f"--master-port={port}",
                            before(",USR1"), "--no-python", program, env=end())
            for node in range(2)]
    box.wait_event("agent_state", to="succeeded")
    box.wait_event("allocation_ends", count=2)
    ctrun.wait_until(lambda: signals.got(box, 1) == ["USR1"], lambda: f"{runs}")
    signals.leave(box, runs)


def test_all_nodes_end_before_the_end(box):
    box.env["CTRUN_END_TIME"] = str(int(time.time()) + FAR)
    runs = signals.start_nodes(box, 2, before(), "--requeue-exit=75")
    box.wait_event("allocation_ends", count=2)
    signals.wait_all_got(box, 4, "TERM")
    signals.leave(box, runs, 75)
    assert [signals.got(box, rank) for rank in range(4)] == [["TERM"]] * 4


def test_nothing_is_begun_when_no_worker_runs(box):
    run = box.start_ctrun("--nnodes=2", "--rdzv-endpoint=127.0.0.1:0", "--rdzv-conf=is_host=1",
                          "--rdzv-id=r", before(",USR1"), "--no-python", "true", env=end())
    assert run.wait() == 128 + signal.SIGTERM or run.code == 128 + signal.SIGUSR1, run
    assert box.events("allocation_ends")[0]["is_ending"] == 1
    assert not box.events("worker_started")


def test_a_signal_that_came_first_leaves_no_more_time_than_there_is(box):
    run = box.start_ctrun(f"--stop-before-end={SOON}", "--shutdown-timeout=3600",
                          "--no-python", "sh", "-c",
                          "trap '' TERM; touch up; while :; do sleep 60; done",
                          env={"CTRUN_END_TIME": str(int(time.time()) + 2 * SOON + 1)})
    ctrun.wait_until(lambda: box.path("up").exists(), "up")
    run.signal(signal.SIGTERM)
    assert run.wait() == 128 + signal.SIGTERM, run  # not in an hour


def test_slurm_tells_the_end_and_ctruns_own_name_overrules_it(box):
    slurm = {"SLURM_JOB_ID": "7", "SLURM_JOB_END_TIME": str(int(time.time()) + FAR)}
    run = start(box, before(), env=slurm)
    signals.wait_all_got(box, 2, "TERM")
    signals.leave(box, [run], 128 + signal.SIGTERM)
    run = box.ctrun(f"--stop-before-end={2 * FAR}", "true",
                    env={**slurm, "CTRUN_END_TIME": str(int(time.time()) + 3 * FAR)})
    assert run.code == 0, run


def test_an_end_that_nobody_knows_is_warned_of(box):
    run = box.ctrun("--stop-before-end=120", "true")
    assert run.code == 0 and "CTRUN_END_TIME" in run.err, run
    assert box.ctrun("--stop-before-end=0", "true").err == ""
    run = box.ctrun("true", env={"CTRUN_END_TIME": "soon"})
    assert run.code == 1 and "CTRUN_END_TIME='soon'" in run.err, run


def test_too_little_time_is_told_and_refused_when_nothing_could_run(box):
    run = box.ctrun("true", env={"CTRUN_END_TIME": str(int(time.time()) + 300)})
    assert run.code == 0 and "the allocation ends in" in run.err, run
    assert box.ctrun("true", env=end()).err == ""
    run = box.ctrun(f"--stop-before-end={FAR}", "--no-python", "touch", "ran", env=end())
    assert run.code == 2 and "--stop-before-end=3600: the allocation ends in" in run.err, run
    assert not box.path("ran").exists()
