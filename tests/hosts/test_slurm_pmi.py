# SPDX-License-Identifier: Apache-2.0
"""Nodes get their endpoint through srun's own PMI-2 server (tests/cli has one that misbehaves)."""
import re
import shutil
import subprocess

import ctrun
import pytest

WORLD = 'echo "$RANK/$WORLD_SIZE $(env | grep -c ^PMI_)"'
# On every node: takes the port that ctrun would derive, then runs ctrun.
SQUATTER = """
import json, os, socket, subprocess, sys
plan = [*sys.argv[1:3], "--dry-run", "--json", "--bootstrap=port", "--no-python", "true"]
port = json.loads(subprocess.check_output(plan))["endpoint"]["port"]
taken = socket.socket(socket.AF_INET6)
taken.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
taken.bind(("::", port))
taken.listen()
sys.exit(subprocess.call(sys.argv[1:], pass_fds=[int(os.environ["PMI_FD"])]))
"""


def srun(cluster, *words):
    run = cluster.start("login1", "srun", "-N2", "--mpi=pmi2", *words)
    run.wait(60)
    return run


def lines(run):
    return sorted(run.out.split("\n")[:-1])


def test_tasks_of_every_shape_meet_through_sruns_pmi(box, slurm):
    cluster = slurm(2)
    for shape in (["-n2", ctrun.program("ctrun"), "--nproc-per-node=2"],
                  ["-n4", ctrun.program("ctrun")],
                  ["-n4", ctrun.program("ctrun"), "--nproc-per-node=2"]):
        run = srun(cluster, *shape, "--bootstrap=pmi", "--no-python", "sh", "-c", WORLD)
        assert run.code == 0 and lines(run) == [f"{rank}/4 0" for rank in range(4)], run
        assert run.err.count("sent through srun's PMI") == 1, run


def test_a_node_whose_task_never_comes_is_named(box, slurm):
    """srun's own PMI server: it answers about names while tasks wait at the fence."""
    cluster = slurm(2)
    late = f"[ $SLURM_NODEID = 0 ] || exec sleep 600; exec {ctrun.program('ctrun')} --rdzv-conf=join_timeout=2 --no-python true"
    run = srun(cluster, "-n2", "-K1", "sh", "-c", late)
    assert "error[E_JOIN_TIMEOUT]: srun's PMI: not all 2 tasks" in run.err, run
    assert re.search(r"^  missing    : \w*2: never came$", run.err, re.M), run


def test_a_derived_port_that_is_taken_matters_no_more(box, slurm):
    cluster = slurm(2)
    squat = ["/usr/bin/python3", box.write("squat.py", SQUATTER), ctrun.program("ctrun")]
    run = srun(cluster, *squat, "--nproc-per-node=1", "--no-python", "sh", "-c", WORLD)
    assert run.code == 0 and lines(run) == ["0/2 0", "1/2 0"], run
    run = srun(cluster, "-K", *squat, "--bootstrap=port", "--no-python", "sh", "-c",
               "echo $RANK/$WORLD_SIZE")
    assert run.code == 0 and lines(run) == ["0/2", "1/2"], run


def test_a_second_ctrun_of_the_same_tasks_meets_at_the_derived_port(box, slurm):
    cluster = slurm(2)
    twice = f"{ctrun.program('ctrun')} --no-python true && exec {ctrun.program('ctrun')} " \
            f"--no-python sh -c '{WORLD}'"
    run = srun(cluster, "sh", "-c", twice)
    assert run.code == 0 and lines(run) == ["0/2 0", "1/2 0"], run
    assert run.err.count("srun's PMI cannot be used (the PMI server has closed the connection)") == 2, run


# A sum over all ranks: it differs in a world of one rank. In Debian 12's MPICH (4.0.2, UCX) some
# runs of srun, with and without ctrun, wait for ever in MPI_Finalize for ranks that have left it:
# it gets five seconds.
MPI = """
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>
static void leave(int signal) { (void)signal; _exit(0); }
int main(int argc, char **argv)
{
    int rank, sum;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("%d %d\\n", rank, sum);
    fflush(stdout);
    signal(SIGALRM, leave);
    alarm(5);
    return MPI_Finalize();
}
"""


def test_a_program_of_mpich_has_sruns_pmi_where_each_task_is_a_rank(box, slurm):
    compiler = shutil.which("mpicc.mpich")
    if not compiler:
        pytest.skip("no mpicc.mpich here (package libmpich-dev)")
    program = box.path("reduce")
    subprocess.run([compiler, "-o", program, box.write("reduce.c", MPI)], check=True)
    cluster = slurm(2)
    run = srun(cluster, "-n4", ctrun.program("ctrun"), "--no-python", program)
    assert run.code == 0 and lines(run) == [f"{rank} 6" for rank in range(4)], run
