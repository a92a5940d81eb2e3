# SPDX-License-Identifier: Apache-2.0
"""Batch jobs of a real Slurm: the examples' scripts, preemption and a requeue."""
import ctrun
import jobs
import mnist
import scripts


def test_the_batch_script_of_the_examples_trains(box, slurm):
    cluster = slurm(2)
    run = cluster.start("login1", "sbatch", "-W", "-D", box.dir, "-o", box.path("out"),
                        jobs.EXAMPLES / "train.sbatch", f"--data={mnist.make_data(box)}", "--json")
    assert run.wait(120) == 0, f"{run}\n{jobs.text(box)}"
    assert any("accuracy" in line for line in jobs.text(box).splitlines()), jobs.text(box)
    assert {event["world_size"] for event in box.events("round_started")} == {4}


def test_a_preempted_job_saves_is_queued_again_and_goes_on(box, slurm):
    cluster = slurm(2, "--set", "AuthInfo=cred_expire=5")
    job = jobs.sbatch(box, cluster, jobs.EXAMPLES / "requeue.sbatch", "-p", "low", "--",
                      f"--data={mnist.make_data(box)}", "--json", *jobs.LONG)
    jobs.wait_steps(box)
    ctrun.wait_until(box.path(f"checkpoint-{job}").exists,
                     lambda: f"a checkpoint\n{jobs.text(box)}")
    high = cluster.start("login1", "srun", "-p", "high", "-N2", "--exclusive", "true")
    assert high.wait(60) == 0, high
    requeued = "has requeued this job 1 time"
    ctrun.wait_until(lambda: requeued in jobs.text(box), lambda: f"the second start\n{jobs.text(box)}", 90)
    assert min(jobs.wait_steps(box, requeued)) > (1, 5), jobs.text(box)  # it continues
    cluster.start("login1", "scancel", job).wait(60)
    jobs.wait_job_gone(box, cluster, job)


def test_a_batch_script_of_torchrun_runs_with_one_word_changed(box, slurm):
    """The endpoint, id and port that the script makes are used."""
    cluster = slurm(2)
    box.write("train.py", scripts.SHOW)
    script = box.write("job.sbatch", scripts.for_ctrun(scripts.STEP))
    run = cluster.start("login1", "sbatch", "-W", "-D", box.dir, "-o", box.path("out"), script,
                        env={"DATA": "d"})
    assert run.wait(120) == 0, f"{run}\n{jobs.text(box)}"
    lines = sorted(line.partition(": ")[2] for line in jobs.text(box).splitlines()
                   if line.endswith("['--data', 'd']"))
    assert lines == [f"{rank} 4 {rank % 2} 2 {rank // 2} ['--data', 'd']" for rank in range(4)]
