# SPDX-License-Identifier: Apache-2.0
"""Signals of a real Slurm: the warning before the time limit, and scancel."""
import signal

import ctrun
import jobs
import mnist


def test_t23_usr1_of_the_time_limit_saves_and_requeues(box, slurm):
    cluster = slurm(2, "--set", "AuthInfo=cred_expire=5")
    job = jobs.sbatch(box, cluster, jobs.EXAMPLES / "requeue.sbatch", "--",
                      f"--data={mnist.make_data(box)}", "--json", *jobs.LONG)
    jobs.wait_steps(box)
    # As `#SBATCH --signal=USR1@120` does two minutes before the end, to all tasks.
    cluster.start("login1", "scancel", "-s", "USR1", job).wait(60)
    box.wait_event("guard_ended", count=2, agent_exit_code=75)
    ended = box.events("worker_ended")
    assert [(event["cause"], event["code"]) for event in ended] == [("none", 0)] * 4, ended
    ctrun.wait_until(lambda: "has requeued this job 1 time" in jobs.text(box),
                     lambda: f"the second start\n{jobs.text(box)}", 90)
    cluster.start("login1", "scancel", job).wait(60)
    jobs.wait_job_gone(box, cluster, job)


SAVER = """#!/bin/sh
# saves until the test says that it has
trap 'echo TERM >> term.$RANK' TERM
echo up > up.$RANK
until [ -e saved ] && [ -e term.$RANK ]; do sleep 0.05; done
exit 0 # not as the sleep, which gets the signal too
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


def test_a_run_ends_before_its_allocation_as_slurm_has_told(box, slurm):
    cluster = slurm(2)
    box.write("saver.sh", SAVER, 0o755)
    box.write("saved", "")  # the script waits for SIGTERM only
    # As in ctrun(1), for a Slurm that does not set SLURM_JOB_END_TIME. The shortest time limit is a
    # minute; the test does not wait for its end.
    end = 'CTRUN_END_TIME=$(date -d "$(squeue -h -j $SLURM_JOB_ID -o %e)" +%s)'
    run = cluster.start("login1", "srun", "-N2", "--ntasks-per-node=1", "--time=1", "-D", box.dir,
                        "sh", "-c", f'export {end}; exec "$@"', "-", ctrun.program("ctrun"),
                        "--nproc-per-node=2", "--requeue-exit=75", "--stop-before-end=40",
                        box.path("saver.sh"))
    run.wait(90)
    assert [box.path(f"term.{rank}").read_text() for rank in range(4)] == ["TERM\n"] * 4, run
    near = box.events("allocation_ends")
    assert len(near) == 2 and all(0 < event["left_ms"] <= 40000 for event in near), near
    assert all(0.89 * event["left_ms"] <= event["grace_ms"] <= 36000 for event in near), near
    box.wait_event("guard_ended", count=2, agent_exit_code=75)
    assert run.code == 75, run
    [line] = [line for line in run.err.splitlines() if "SIGTERM to the workers" in line]
    assert any(f"the allocation ends in {(event['left_ms'] + 500) // 1000} s" in line
               and f"up to {(event['grace_ms'] + 500) // 1000} s" in line for event in near), run
