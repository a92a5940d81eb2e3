# SPDX-License-Identifier: Apache-2.0
"""Several tasks on a node become ranks, or one agent; never --nproc-per-node times the tasks."""
import re

import ctrun

WORLD = 'echo "$RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK $(hostname)"'
FOUR = ["0/4 0/2 0 node1", "1/4 1/2 0 node1", "2/4 0/2 1 node2", "3/4 1/2 1 node2"]


def srun(cluster, *words, **how):
    run = cluster.start("login1", "srun", *words, **how)
    run.wait(60)
    return run


def lines(run):
    return sorted(run.out.split("\n")[:-1])


def test_without_nproc_each_task_is_one_rank(box, slurm):
    cluster = slurm(2)
    run = srun(cluster, "-N2", "--ntasks-per-node=2", ctrun.program("ctrun"),
               "--no-python", "sh", "-c", WORLD)
    assert run.code == 0 and lines(run) == FOUR, run
    # Slurm deals the tasks out in turn: the ranks of a node still follow each other.
    run = srun(cluster, "-N2", "--ntasks-per-node=2", "-m", "cyclic",
               ctrun.program("ctrun"), "--no-python", "sh", "-c", WORLD)
    assert run.code == 0 and lines(run) == FOUR, run
    # Uneven: two on node1, one on node2.
    hosts = box.write("hosts", "node2\nnode1\nnode1\n")
    run = srun(cluster, "-m", "arbitrary", "-n3", ctrun.program("ctrun"), "--no-python",
               "sh", "-c", WORLD, env={"SLURM_HOSTFILE": hosts})
    assert run.code == 0, run
    assert lines(run) == ["0/3 0/2 0 node1", "1/3 1/2 0 node1", "2/3 0/1 1 node2"], run


def test_with_nproc_the_tasks_of_a_node_merge_into_one_agent(box, slurm):
    cluster = slurm(2)
    run = srun(cluster, "-N2", "--ntasks-per-node=2", ctrun.program("ctrun"),
               "--nproc-per-node=2", "--no-python", "sh", "-c", WORLD)
    assert run.code == 0 and lines(run) == FOUR, run
    # Each task ends with the run's code.
    run = srun(cluster, "-N2", "--ntasks-per-node=2", ctrun.program("ctrun"),
               "--nproc-per-node=2", "--no-python", "sh", "-c", "exit 6")
    assert run.code == 6, run
    # Slurm prints one line for the tasks of a node that end at nearly the same time.
    ended = [(node, task) for node, first, last in re.findall(
        r"(node\d): tasks? (\d)(?:-(\d))?: Exited with exit code 6", run.err)
        for task in range(int(first), int(last or first) + 1)]
    assert sorted(ended) == [("node1", 0), ("node1", 1), ("node2", 2), ("node2", 3)], run
    # For --dry-run the tasks need not meet, and one of them prints the plan.
    run = srun(cluster, "-N1", "-n2", ctrun.program("ctrun"), "--nproc-per-node=2",
               "--dry-run", "true")
    assert run.code == 0 and run.out.count("backend") == 1, run


GPU = 'echo "$RANK/$WORLD_SIZE $LOCAL_RANK $CUDA_VISIBLE_DEVICES $(hostname)"'


def test_tasks_with_a_gpu_each_are_ranks_with_their_own(box, slurm):
    cluster = slurm(2)
    for nproc in ("--nproc-per-node=2", "--nproc-per-node=gpu"):
        run = srun(cluster, "-N2", "--ntasks-per-node=2", "--gpus-per-task=1",
                   ctrun.program("ctrun"), nproc, "--no-python", "sh", "-c", GPU)
        assert run.code == 0, run
        assert lines(run) == ["0/4 0 0 node1", "1/4 0 1 node1", "2/4 0 0 node2",
                              "3/4 0 1 node2"], run
    # Any other number of workers would share the GPU of the first task.
    run = srun(cluster, "-N2", "--ntasks-per-node=2", "--gpus-per-task=1", ctrun.program("ctrun"),
               "--nproc-per-node=4", "true")
    assert run.code == 2 and "each with 1 GPU that the others do not see" in run.err, run
    # All tasks see all GPUs: one agent a node.
    run = srun(cluster, "-N2", "--ntasks-per-node=2", "--gpus-per-node=2", ctrun.program("ctrun"),
               "--nproc-per-node=gpu", "--no-python", "sh", "-c", GPU)
    assert run.code == 0 and lines(run) == ["0/4 0 0,1 node1", "1/4 1 0,1 node1",
                                            "2/4 0 0,1 node2", "3/4 1 0,1 node2"], run


def test_a_list_of_numbers_gives_each_node_its_own(box, slurm):
    cluster = slurm(2)
    run = srun(cluster, "-N2", "--ntasks-per-node=1", ctrun.program("ctrun"),
               "--nproc-per-node=3,1", "--no-python", "sh", "-c", WORLD)
    assert run.code == 0, run
    assert lines(run) == ["0/4 0/3 0 node1", "1/4 1/3 0 node1", "2/4 2/3 0 node1",
                          "3/4 0/1 1 node2"], run
    run = srun(cluster, "-N2", "--ntasks-per-node=2", ctrun.program("ctrun"),
               "--nproc-per-node=1,3", "--no-python", "sh", "-c", WORLD)
    assert run.code == 0, run
    assert lines(run) == ["0/4 0/1 0 node1", "1/4 0/3 1 node2", "2/4 1/3 1 node2",
                          "3/4 2/3 1 node2"], run


def test_a_merged_node_outlives_a_signal_to_all_of_its_tasks(box, slurm):
    cluster = slurm(1)
    run = cluster.start("login1", "srun", "-N1", "-n2", ctrun.program("ctrun"),
                        "--nproc-per-node=2", "--no-python", ctrun.program("victim"),
                        "on", "USR1", "9", "touch", box.path("ready%r"), "hang")
    ctrun.wait_until(lambda: box.path("ready0").exists() and box.path("ready1").exists(),
                     "both workers wait")
    run.signal(10)  # srun sends it to both tasks; one is the agent, the other sleeps
    assert run.wait(60) == 9, run


def test_a_run_inside_of_a_worker_does_not_meet_the_others_of_its_step(box, slurm):
    run = srun(slurm(2), "-N2", "--ntasks-per-node=1", ctrun.program("ctrun"), "--no-python",
               ctrun.program("ctrun"), "--no-python", "sh", "-c", WORLD)
    assert run.code == 0, run
    assert lines(run) == ["0/1 0/1 0 node1", "0/1 0/1 0 node2"], run
    assert run.err.count("inherited RANK/") == 2, run
