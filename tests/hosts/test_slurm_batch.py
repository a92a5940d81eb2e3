# SPDX-License-Identifier: Apache-2.0
"""Batch jobs of a real Slurm: the examples' scripts, preemption, a requeue, scancel."""
import json
import signal

import ctrun
import mnist

EXAMPLES = ctrun.ROOT / "examples" / "slurm"
# More steps than can pass before the test does what ends them.
LONG = ("--epochs=1000", "--global-batch=32", "--save-steps=5", "--log-interval=1", "--threads=1")


def sbatch(box, cluster, script, *words):
    """The job's number, once it is queued."""
    run = cluster.start("login1", "sbatch", "--parsable", "-D", box.dir, "-o", box.path("out"),
                        *words[:words.index("--")], script, *words[words.index("--") + 1:])
    assert run.wait(60) == 0, run
    return run.out.split(";")[0].strip()


def text(box):
    path = box.path("out")
    return path.read_text(errors="replace") if path.exists() else ""


def steps(box):
    lines = [json.loads(line) for line in text(box).splitlines() if line.startswith("{")]
    return [line["step"] for line in lines if "step" in line and "loss" in line]


def wait_job_gone(box, cluster, job):
    def gone():
        run = cluster.start("login1", "squeue", "-h", "-j", job)
        run.wait(60)
        return not run.out.strip()

    ctrun.wait_until(gone, lambda: f"job {job} ended\n{text(box)}", 60)


def wait_steps(box, above=0):
    return ctrun.wait_until(lambda: [step for step in steps(box) if step > above],
                            lambda: f"a step after {above}\n{text(box)}", 60)


def test_the_batch_script_of_the_examples_trains(box, slurm):
    cluster = slurm(2)
    run = cluster.start("login1", "sbatch", "-W", "-D", box.dir, "-o", box.path("out"),
                        EXAMPLES / "train.sbatch", f"--data={mnist.make_data(box)}", "--json")
    assert run.wait(120) == 0, f"{run}\n{text(box)}"
    assert any("accuracy" in line for line in text(box).splitlines()), text(box)
    assert {event["world_size"] for event in box.events("round_started")} == {4}


def test_a_preempted_job_saves_is_queued_again_and_goes_on(box, slurm):
    cluster = slurm(2, "--set", "AuthInfo=cred_expire=5")
    job = sbatch(box, cluster, EXAMPLES / "requeue.sbatch", "-p", "low", "--",
                 f"--data={mnist.make_data(box)}", "--json", *LONG)
    wait_steps(box)
    ctrun.wait_until(box.path(f"checkpoint-{job}").exists, lambda: f"a checkpoint\n{text(box)}")
    high = cluster.start("login1", "srun", "-p", "high", "-N2", "--exclusive", "true")
    assert high.wait(60) == 0, high
    done = max(steps(box))
    ctrun.wait_until(lambda: "has requeued this job 1 time" in text(box),
                     lambda: f"the second start\n{text(box)}", 90)
    after = wait_steps(box, above=done)
    assert min(after) > done, text(box)  # nothing began anew
    cluster.start("login1", "scancel", job).wait(60)
    wait_job_gone(box, cluster, job)


def test_t23_usr1_of_the_time_limit_saves_and_requeues(box, slurm):
    cluster = slurm(2, "--set", "AuthInfo=cred_expire=5")
    job = sbatch(box, cluster, EXAMPLES / "requeue.sbatch", "--",
                 f"--data={mnist.make_data(box)}", "--json", *LONG)
    wait_steps(box)
    # What `#SBATCH --signal=USR1@120` does two minutes before the end: to all tasks.
    cluster.start("login1", "scancel", "-s", "USR1", job).wait(60)
    box.wait_event("guard_ended", count=2, agent_exit_code=75)
    ended = box.events("worker_ended")
    assert [(event["cause"], event["code"]) for event in ended] == [("none", 0)] * 4, ended
    ctrun.wait_until(lambda: "has requeued this job 1 time" in text(box),
                     lambda: f"the second start\n{text(box)}", 90)
    cluster.start("login1", "scancel", job).wait(60)
    wait_job_gone(box, cluster, job)


SAVER = """#!/bin/sh
# saves until the test says that it has
trap 'echo TERM >> term.$RANK' TERM
echo up > up.$RANK
until [ -e saved ] && [ -e term.$RANK ]; do sleep 0.02; done
"""


def test_t22_scancel_gives_the_workers_one_sigterm_and_slurms_time(box, slurm):
    cluster = slurm(2, "--kill-wait", "40")
    box.write("saver.sh", SAVER, 0o755)
    run = cluster.start("login1", "srun", "-N2", "--ntasks-per-node=1", "-D", box.dir,
                        ctrun.program("ctrun"), "--nproc-per-node=2", box.path("saver.sh"))
    ctrun.wait_until(lambda: all(box.path(f"up.{rank}").exists() for rank in range(4)),
                     lambda: f"up\n{run}", 60)
    for _ in range(2):  # the second one changes nothing
        cluster.start("login1", "scancel", "1").wait(60)
        ctrun.wait_until(lambda: all(box.path(f"term.{rank}").exists() for rank in range(4)),
                         lambda: f"SIGTERM everywhere\n{run}")
    ctrun.wait_until(lambda: "for checkpoints" in run.err, lambda: str(run))
    box.write("saved", "")
    box.wait_event("guard_ended", count=2, agent_exit_code=128 + signal.SIGTERM)
    run.wait(60)
    assert [box.path(f"term.{rank}").read_text() for rank in range(4)] == ["TERM\n"] * 4
    (line,) = [line for line in run.err.splitlines() if "for checkpoints" in line]
    assert "SIGTERM from pid" in line and "(slurmstepd)" in line, run
    assert "up to 36 s" in line and "Slurm kills after 40 s" in line, run
