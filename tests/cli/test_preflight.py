# SPDX-License-Identifier: Apache-2.0
"""Problems of this machine are reported before workers start. T29: a container's small /dev/shm,
segments that dead processes left, few open files, a clock that is wrong."""
import os
import pathlib
import re
import shutil
import signal

import ctrun
import pytest

IN_SMALL_SHM = 'mount -t tmpfs -o size=64m tmpfs /dev/shm && exec "$@"'
OLD = 1000  # seconds since 1970


@pytest.fixture
def segments():
    """segments(NAME, ...) makes old files in /dev/shm, which are removed after the test."""
    made = []

    def make(name, age=OLD, size=1 << 20):
        path = f"/dev/shm/{name}"
        with open(path, "wb") as file:
            file.truncate(size)
            file.write(b"x" * 4096)
        made.append(path)
        os.utime(path, (age, age)) if age else None
        return path

    yield make
    for path in made:
        if os.path.exists(path):
            os.unlink(path)


def age_of(pid):
    """Seconds since a process was started."""
    stat = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    now = float(pathlib.Path("/proc/uptime").read_text().split()[0])
    return now - int(stat[19]) / os.sysconf("SC_CLK_TCK")


def test_t29_a_small_dev_shm_is_told_with_its_cure(box):
    ctrun.needs_mounts()
    run = box.run("unshare", "-m", "sh", "-c", IN_SMALL_SHM, "sh", ctrun.program("ctrun"),
                  "--nproc-per-node=8", "true")
    assert run.code == 0, run
    assert re.search(r"^ctrun: warning\[E_SHM\]: /dev/shm has 6\d MiB free on \S+; 8 NCCL ranks need "
                     r"about 272 MiB$", run.err, re.M), run
    assert "--shm-size=1g" in run.err and "emptyDir" in run.err


def test_t29_segments_that_nobody_uses_are_told_and_kept(box):
    if box.run("unshare", "-mpf", "--mount-proc", "true").code:
        pytest.skip("no mount and PID namespaces can be made here")
    leave = ('for i in 1 2 3; do head -c 8388608 /dev/zero > /dev/shm/nccl-$i;'
             ' touch -d @1000 /dev/shm/nccl-$i; done; ' + IN_SMALL_SHM.partition("&&")[2])
    run = box.run("unshare", "-mpf", "--mount-proc", "sh", "-c",
                  IN_SMALL_SHM.partition("&&")[0] + "&&" + leave, "sh", "sh", "-c",
                  '"$0" --nproc-per-node=8 true; ls /dev/shm', ctrun.program("ctrun"))
    assert "24 MiB in 3 files of yours that no process here uses" in run.err, run
    assert run.out.split() == ["nccl-1", "nccl-2", "nccl-3"], run


# Rank 0 makes segments and holds them, rank 1 fails when all is ready.
LEAVE = """
import mmap, os, sys, time
if os.environ["RANK"] == "1":
    while not os.path.exists(sys.argv[1]): time.sleep(0.01)
    sys.exit(3)
held = []
for name in sys.argv[3:]:
    with open("/dev/shm/" + name, "a+b") as file:
        file.truncate(4096)
        held.append(mmap.mmap(file.fileno(), 4096))
open(sys.argv[2], "w").close()
time.sleep(600)
"""


def test_t29_what_the_workers_of_this_run_leave_is_removed_and_nothing_else(box, segments):
    mark = box.mark[:8]
    names = [f"nccl-{mark}a", f"torch_{mark}b", f"nccl-{mark}c", f"nccl-{mark}d", f"mine-{mark}e"]
    nobodys = segments(f"nccl-{mark}f")  # old, of this user, used by no process
    python = segments(f"psm_{mark}g", age=None)
    before = segments(names[2], age=None)  # the worker uses it, but did not make it
    run = box.start_ctrun("--nproc-per-node=2", box.write("leave.py", LEAVE), str(box.path("go")),
                          str(box.path("ready")), *names)
    ctrun.wait_until(box.path("ready").exists, lambda: f"the worker holds them: {run}")
    after = segments(f"nccl-{mark}h", age=None)  # made meanwhile by another process
    for name in names:
        segments(name, age=None, size=4096)  # only so that it is removed
    with open(f"/dev/shm/{names[3]}", "rb"):  # another process of this user uses it
        box.write("go", "")
        assert run.wait() == 3, run
    left = [os.path.exists(f"/dev/shm/{name}") for name in names]
    assert left == [False, False, True, True, True], run
    for path in (nobodys, python, before, after):
        assert os.path.exists(path), path


def test_t29_few_open_files_are_raised_or_told(box):
    limited = 'ulimit -S -n 256; exec "$@"'
    run = box.run("sh", "-c", limited, "sh", ctrun.program("ctrun"), "sh", "-c", "ulimit -n")
    assert run.code == 0 and int(run.out) > 256, run
    assert "open files" not in run.err
    run = box.run("sh", "-c", limited.replace("-S", ""), "sh", ctrun.program("ctrun"), "true")
    assert run.code == 0 and "may have 256 open files at most" in run.err, run


@pytest.mark.plain("faketime's preloaded library and sanitizers do not get along")
@pytest.mark.skipif(not shutil.which("faketime"), reason="faketime is not installed")
def test_t29_a_wrong_clock_is_told_and_does_no_harm(box):
    daemon, endpoint = box.start_ctrund()
    options = ["--nnodes=2", f"--rdzv-endpoint={endpoint}", "--rdzv-id=clock",
               "--log-dir=/dev/null",  # faketime turns waits of condition variables into zero
               "--rdzv-conf=keep_alive_interval=1,keep_alive_max_attempt=4", "--no-python", "sh",
               "-c", "while [ ! -e go ]; do sleep 0.05; done"]
    right = box.start_ctrun(*options)
    wrong = box.start("faketime", "-f", "+3600s", ctrun.program("ctrun"), *options,
                      env={"FAKETIME_DONT_FAKE_MONOTONIC": "1"})
    box.wait_workers(2)
    ctrun.wait_until(lambda: "clock differs by 3600 s (harmless)" in wrong.err,
                     lambda: f"the clock is told\n{wrong}")
    assert "clock differs" not in right.err
    worker = box.wait_workers(2)[0]
    # Twice the four seconds after which a silent node is lost.
    ctrun.wait_until(lambda: age_of(worker) > 8, "the world is old enough")
    assert right.code is None and wrong.code is None, (right, wrong)
    box.write("go", "")
    assert [right.wait(), wrong.wait()] == [0, 0], (right, wrong)
    assert len(box.events("round_changed", to="running")) <= 1
    daemon.signal(signal.SIGTERM)
    assert daemon.wait() == 0


def test_more_workers_than_gpus_is_a_warning(box):
    run = box.ctrun("--nproc-per-node=3", "true", env={"CUDA_VISIBLE_DEVICES": "0,1"})
    assert run.code == 0
    assert re.search(r"^ctrun: warning\[E_RESOURCES\]: \S+ has 2 usable GPUs, 3 workers are asked for$",
                     run.err, re.M), run
    assert "CUDA_VISIBLE_DEVICES=0,1" in run.err
    assert "E_RESOURCES" not in box.ctrun("--nproc-per-node=2", "true",
                                          env={"CUDA_VISIBLE_DEVICES": "0,1"}).err


SLURM = {"SLURM_JOB_ID": "771", "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "gpu[1-2]",
         "SLURM_JOB_NODELIST": "gpu[1-2]", "SLURM_NNODES": "2", "SLURM_STEP_NUM_NODES": "2",
         "SLURM_NODEID": "0", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "2",
         "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
         "SLURM_TASKS_PER_NODE": "1(x2)", "SLURMD_NODENAME": "gpu1"}


@pytest.mark.parametrize("endpoint", ["127.0.0.1:29400", "localhost:29400", "[::1]:29400"])
def test_a_loopback_endpoint_for_nodes_of_a_batch_job_is_refused(box, endpoint):
    run = box.ctrun("--nnodes=2", f"--rdzv-endpoint={endpoint}", "true", env=SLURM)
    assert run.code == 77, run
    assert run.err.startswith("ctrun: error[E_LOOPBACK]: 2 nodes are asked for, but the rendezvous "
                              "address '"), run
    assert "(this machine only)" in run.err and "leave the endpoint out" in run.err
    assert not box.events("worker_started")


@pytest.mark.parametrize("addr, warns", [("192.0.2.7", 1), ("127.0.0.1", 0)])
def test_an_address_that_this_node_does_not_have_is_named_where_it_is_alone(box, addr, warns):
    run = box.ctrun("--nproc-per-node=2", f"--local-addr={addr}", "true")
    assert run.code == 0 and run.err.count(f"--local-addr={addr}: no interface of this node has that address") == warns, run


WITHOUT_PROC = 'mount -t tmpfs none /proc && exec "$@"'


@pytest.mark.plain("the sanitizers read /proc themselves")
def test_a_machine_without_proc_is_refused(box):
    """Processes that a worker leaves behind could neither be found nor killed."""
    ctrun.needs_mounts()
    run = box.run("unshare", "-m", "sh", "-c", WITHOUT_PROC, "sh", ctrun.program("ctrun"), "--nproc-per-node=2",
                  "--no-python", "sh", "-c", "echo rank $RANK")
    assert run.code == 1 and run.out == "", run
    assert run.err == ("ctrun: error[E_RESOURCES]: /proc is not mounted here; ctrun finds the processes of workers there "
                       "(mount -t proc proc /proc)\n"), run


@pytest.mark.plain("the sanitizers read /proc themselves")
@pytest.mark.parametrize("words, warns", [([], True), (["--mount-proc"], False)])
def test_a_proc_of_another_pid_namespace_is_warned_of(box, words, warns):
    ctrun.needs_mounts()
    run = box.run("unshare", "-p", "-f", *words, ctrun.program("ctrun"), "--no-python", "true")
    assert run.code == 0 and ("/proc shows the processes of another PID namespace" in run.err) == warns, run
