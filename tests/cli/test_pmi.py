# SPDX-License-Identifier: Apache-2.0
"""--pmi: programs of MPICH's kind start under ctrun as they do under mpiexec."""
import pathlib
import shutil
import subprocess

import pytest

# What a program of MPICH does, with the descriptors that it has.
CLIENT = """
import fcntl, os, socket, sys, termios
rank, size = os.environ["PMI_RANK"], int(os.environ["PMI_SIZE"])
fds = [int(fd) for fd in os.listdir("/proc/self/fd")]
pmi = socket.socket(fileno=int(os.environ["PMI_FD"]))
lines = pmi.makefile()
def ask(line):
    for piece in line[:7].encode(), line[7:].encode() + b"\\n":
        pmi.sendall(piece)
        while any(fcntl.ioctl(pmi, termios.TIOCOUTQ, b"    ")):
            pass  # until it is read: a line need not come in one piece
    return lines.readline().strip()
assert rank == os.environ["RANK"] and "PMI_PORT" not in os.environ
assert ask("cmd=init pmi_version=1 pmi_subversion=1").endswith("rc=0")
assert sorted(fds)[:3] == [0, 1, 2] and len(fds) == 5, fds  # and the one of listdir()
assert ask(f"cmd=put kvsname=kvs_ctrun key=r{rank} value=card-{rank}-" +
           os.environ["TORCHELASTIC_RESTART_COUNT"]).endswith("msg=success")
assert ask("cmd=barrier_in") == "cmd=barrier_out rc=0"
print(*(ask(f"cmd=get kvsname=kvs_ctrun key=r{other}").rpartition("=")[2]
        for other in range(size)), flush=True)
if sys.argv[1:] == ["fail once"] and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    sys.exit(rank == "1" and 3)
assert ask("cmd=finalize") == "cmd=finalize_ack rc=0"
assert lines.readline() == ""
"""

MPI = """
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
    int rank, size, sum;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("%d/%d %d\\n", rank, size, sum);
    fflush(stdout);
    if (argc > 1 && rank == 1)
        MPI_Abort(MPI_COMM_WORLD, atoi(argv[1]));
    MPI_Barrier(MPI_COMM_WORLD);
    return MPI_Finalize();
}
"""


@pytest.fixture
def program(box):
    """A program of MPICH; skips aloud where there is none."""
    compiler = shutil.which("mpicc.mpich")
    if not compiler:
        pytest.skip("no mpicc.mpich here (package libmpich-dev)")
    path = pathlib.Path(box.path("reduce"))
    made = subprocess.run([compiler, "-o", path, box.write("reduce.c", MPI)],
                          capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"mpicc.mpich cannot compile here (package libmpich-dev): {made.stderr}")
    return str(path)


def test_an_mpi_program_reduces_over_its_ranks(box, program):
    run = box.ctrun("--pmi", "--nproc-per-node=3", "--no-python", program)
    assert run.code == 0, run
    assert sorted(run.out.splitlines()) == ["0/3 3", "1/3 3", "2/3 3"], run
    run = box.ctrun("--pmi", "--no-python", program)
    assert run.code == 0 and run.out == "0/1 0\n", run
    # Without it each is alone.
    run = box.ctrun("--nproc-per-node=2", "--no-python", program)
    assert run.code == 0 and run.out == "0/1 0\n" * 2, run


def test_an_abort_of_one_rank_ends_all_with_its_code(box, program):
    run = box.ctrun("--pmi", "--nproc-per-node=3", "--no-python", program, "9")
    assert run.code == 9, run
    ended = {event["rank"]: event for event in box.events("worker_ended")}
    assert ended[1]["code"] == 9 and len(ended) == 3, ended


def test_workers_exchange_what_they_put(box):
    client = box.write("client.py", CLIENT)
    run = box.ctrun("--pmi", "--nproc-per-node=3", client,
                    env={"PMI_PORT": "login:1", "PMI_FD": "99", "PMI_RANK": "7"})
    assert run.code == 0, run
    assert run.out == "card-0-0 card-1-0 card-2-0\n" * 3, run
    assert "MPI_Finalize" not in run.err, run


def test_a_new_round_has_a_new_server(box):
    client = box.write("client.py", CLIENT)
    run = box.ctrun("--pmi", "--nproc-per-node=2", "--max-restarts=1", client, "fail once")
    assert run.code == 0, run
    assert run.out.count("card-0-0 card-1-0\n") >= 1, run
    assert run.out.endswith("card-0-1 card-1-1\n" * 2), run
    assert "rank 1 ended without MPI_Finalize" not in run.err, run  # it failed


def test_who_speaks_something_else_is_not_served_and_told(box):
    script = ('import os, socket; pmi = socket.socket(fileno=int(os.environ["PMI_FD"]));'
              'pmi.sendall(b"    13cmd=kvs-fence;\\n"); assert pmi.recv(9) == b""')
    run = box.ctrun("--pmi", "--nproc-per-node=1", box.write("other.py", script))
    assert run.code == 0 and "PMI: rank 0: not PMI-1" in run.err, run


def test_a_rank_that_ends_without_goodbye_is_told(box):
    script = ('import os, socket; pmi = socket.socket(fileno=int(os.environ["PMI_FD"]));'
              'os.environ["RANK"] == "0" or'
              ' pmi.sendall(b"cmd=init pmi_version=1 pmi_subversion=1\\n") and pmi.recv(99)')
    run = box.ctrun("--pmi", "--nproc-per-node=2", box.write("other.py", script))
    assert run.code == 0, run
    assert "PMI: rank 1 ended without MPI_Finalize: others may wait for it" in run.err, run
    assert run.err.count("MPI_Finalize") == 1, run


def test_several_nodes_are_refused(box):
    run = box.ctrun("--pmi", "--nnodes=2", "--rdzv-endpoint=h:1", "--no-python", "true")
    assert run.code == 2 and "--pmi: serves the workers of one node" in run.err, run
