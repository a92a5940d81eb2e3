# SPDX-License-Identifier: Apache-2.0
"""Two hosts train together; a worker killed on one restarts both; after a power cut the other one
continues alone."""
import os
import signal

import ctrun
import jax_job

TRAIN = ["--json", "--threads=1", "--save-steps=5", "--log-interval=1"]


def start(box, lab, host, *options, mnist=()):
    return lab.start(host, ctrun.program("ctrun"), "--nproc-per-node=2",
                     "--rdzv-endpoint=node1:29400", "--rdzv-id=hosts", *options,
                     ctrun.program("ctrun-mnist"), *TRAIN, *mnist)


def steps(run):
    return [line["step"] for line in ctrun.json_lines(run.out) if "step" in line and "loss" in line]


def workers_of(box, node_rank, restart):
    """Workers of a node, global rank -> pid as seen from outside."""
    found = {}
    for rank, pid in box.workers(restart).items():
        if ctrun.environment(pid).get("GROUP_RANK") == node_rank:
            found[rank] = pid
    return found


def test_two_hosts_train_together(box, lab):
    hosts = lab(2)
    runs = [start(box, hosts, f"node{n}", "--nnodes=2", mnist=["--limit-steps=10"])
            for n in (1, 2)]
    assert [run.wait(180) for run in runs] == [0, 0], runs
    assert len(steps(runs[0])) == 10 and not steps(runs[1]), runs


def test_a_worker_killed_on_node2_restarts_both_nodes(box, lab):
    hosts = lab(2)
    runs = [start(box, hosts, f"node{n}", "--nnodes=2", "--max-restarts=1",
                  mnist=["--epochs=1000", "--save", box.path("ck"), "--resume"])
            for n in (1, 2)]
    box.wait_workers(4, seconds=60)
    ctrun.wait_until(box.path("ck").exists, lambda: f"a checkpoint\n{runs}", 120)
    os.kill(workers_of(box, "1", 0)[3], signal.SIGKILL)
    again = box.wait_workers(4, restart=1, seconds=60)
    assert sorted(again) == [0, 1, 2, 3]
    before = len(steps(runs[0]))
    ctrun.wait_until(lambda: len(steps(runs[0])) > before, lambda: f"a step after the restart\n{runs}", 60)
    runs[0].signal(signal.SIGUSR1)  # all workers end with 0
    assert [run.wait(60) for run in runs] == [0, 0], runs
    for run in runs:  # every node prints the cause
        assert "rank 3" in run.err and "node2" in run.err and "SIGKILL" in run.err, run


def test_after_a_power_cut_the_other_node_goes_on_alone(box, lab):
    hosts = lab(2)
    runs = [start(box, hosts, f"node{n}", "--nnodes=1:2", "--rdzv-conf=last_call_timeout=20",
                  mnist=["--epochs=1000", "--save", box.path("ck"), "--resume"])
            for n in (1, 2)]
    box.wait_workers(4, seconds=60)
    ctrun.wait_until(box.path("ck").exists, lambda: f"a checkpoint\n{runs}", 120)
    hosts.cut_power("node2")

    def alone():
        found = box.workers()
        sizes = {ctrun.environment(pid).get("WORLD_SIZE") for pid in found.values()}
        return found if len(found) == 2 and sizes == {"2"} else None

    ctrun.wait_until(alone, lambda: f"node1 alone with a world of 2\n{runs[0]}", 20)
    before = len(steps(runs[0]))
    ctrun.wait_until(lambda: len(steps(runs[0])) > before, "node1 trains on", 30)
    assert "node2" in runs[0].err, runs[0]
    runs[0].signal(signal.SIGTERM)
    runs[0].wait(30)


def test_jax_without_arguments_meets_on_two_hosts(box, lab):
    python, hosts = jax_job.interpreter(), lab(2)
    runs = [hosts.start(f"node{n}", ctrun.program("ctrun"), "--nnodes=2", "--nproc-per-node=2", "--rdzv-id=jax",
                        "--rdzv-endpoint=node1:29400", "--jax", jax_job.SCRIPT, env={"PYTHON_EXEC": python}) for n in (1, 2)]
    assert [run.wait(200) for run in runs] == [0, 0], runs
    assert jax_job.worlds(*runs) == jax_job.expected(4), runs
