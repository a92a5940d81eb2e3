# SPDX-License-Identifier: Apache-2.0
"""What of this machine will hurt a run, told before its workers start. T29: a container's small
/dev/shm, segments that dead processes left, few open files, a clock that is wrong."""
import ctypes
import mmap
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
    """segments(NAME, ...) makes old files in /dev/shm; what is left of them goes away."""
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


def needs_first_pid_namespace():
    if os.readlink("/proc/self/ns/pid") != "pid:[4026531836]":
        pytest.skip("in a PID namespace nobody's segment is removed")


def test_t29_a_small_dev_shm_is_told_with_its_cure(box):
    if box.run("unshare", "-m", "true").code:
        pytest.skip("no mount namespace can be made here")
    run = box.run("unshare", "-m", "sh", "-c", IN_SMALL_SHM, "sh", ctrun.program("ctrun"),
                  "--nproc-per-node=8", "true")
    assert run.code == 0, run
    assert re.search(r"^ctrun: warning\[E_SHM\]: /dev/shm has 6\d MiB free on \S+; 8 NCCL ranks need "
                     r"about 272 MiB$", run.err, re.M), run
    assert "--shm-size=1g" in run.err and "emptyDir" in run.err


def test_t29_segments_of_the_dead_are_removed_and_told(box):
    needs_first_pid_namespace()
    if box.run("unshare", "-m", "true").code:
        pytest.skip("no mount namespace can be made here")
    leave = ('for i in 1 2 3; do head -c 8388608 /dev/zero > /dev/shm/nccl-$i;'
             ' touch -d @1000 /dev/shm/nccl-$i; done; ' + IN_SMALL_SHM.partition("&&")[2])
    run = box.run("unshare", "-m", "sh", "-c",
                  IN_SMALL_SHM.partition("&&")[0] + "&&" + leave, "sh", "sh", "-c",
                  '"$0" --nproc-per-node=8 true; ls /dev/shm', ctrun.program("ctrun"))
    assert "24 MiB in 3 files of dead processes of yours (removed)" in run.err, run
    assert "nccl" not in run.out


def test_t29_segments_that_another_container_may_use_are_kept_and_told(box):
    if box.run("unshare", "-mpf", "--mount-proc", "true").code:
        pytest.skip("no mount and PID namespaces can be made here")
    leave = ('head -c 8388608 /dev/zero > /dev/shm/nccl-1; touch -d @1000 /dev/shm/nccl-1; '
             + IN_SMALL_SHM.partition("&&")[2])
    run = box.run("unshare", "-mpf", "--mount-proc", "sh", "-c",
                  IN_SMALL_SHM.partition("&&")[0] + "&&" + leave, "sh", "sh", "-c",
                  '"$0" --nproc-per-node=8 true; ls /dev/shm', ctrun.program("ctrun"))
    assert "8 MiB in 1 file of yours that no process here uses; kept" in run.err, run
    assert "nccl-1" in run.out.split(), run


def test_t29_only_old_unused_segments_of_ours_are_removed(box, segments):
    needs_first_pid_namespace()
    mark = box.mark[:8]
    stale = segments(f"nccl-{mark}a")
    held = segments(f"nccl-{mark}b")
    mapped = segments(f"torch_{mark}c")
    young = segments(f"nccl-{mark}d", age=None)
    other = segments(f"mine-{mark}e")
    foreign = segments(f"nccl-{mark}f")
    if os.geteuid() == 0:
        os.chown(foreign, 65534, 65534)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    with open(held, "rb"):
        with open(mapped, "r+b") as file:  # not Python's mmap: that keeps a descriptor
            memory = libc.mmap(None, 4096, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0)
        assert box.ctrun("true").code == 0
        libc.munmap(ctypes.c_void_p(memory), ctypes.c_size_t(4096))
    assert not os.path.exists(stale)
    for path in (held, mapped, young, other):
        assert os.path.exists(path), path
    if os.geteuid() == 0:
        assert os.path.exists(foreign)


def test_t29_few_open_files_are_raised_or_told(box):
    limited = 'ulimit -S -n 256; exec "$@"'
    run = box.run("sh", "-c", limited, "sh", ctrun.program("ctrun"), "sh", "-c", "ulimit -n")
    assert run.code == 0 and int(run.out) > 256, run
    assert "open files" not in run.err
    run = box.run("sh", "-c", limited.replace("-S", ""), "sh", ctrun.program("ctrun"), "true")
    assert run.code == 0 and "may have 256 open files at most" in run.err, run


def test_t29_a_wrong_clock_is_told_and_does_no_harm(box):
    if not shutil.which("faketime"):
        pytest.skip("faketime is not installed")
    if ctrun.SLOW > 1:
        pytest.skip("faketime's preloaded library and sanitizers do not get along")
    daemon = box.start(ctrun.program("ctrund"), "--listen=127.0.0.1:0")
    found = ctrun.wait_until(lambda: re.search(r"^listening on (\S+)$", daemon.out, re.M),
                             lambda: f"the port is told\n{daemon}")
    options = ["--nnodes=2", f"--rdzv-endpoint={found.group(1)}", "--rdzv-id=clock",
               "--log-dir=/dev/null",  # faketime turns waits of condition variables into zero
               "--rdzv-conf=keep_alive_interval=1,keep_alive_max_attempt=2", "--no-python", "sh",
               "-c", "while [ ! -e go ]; do sleep 0.01; done"]
    right = box.start_ctrun(*options)
    wrong = box.start("faketime", "-f", "+3600s", ctrun.program("ctrun"), *options,
                      env={"FAKETIME_DONT_FAKE_MONOTONIC": "1"})
    box.wait_workers(2)
    ctrun.wait_until(lambda: "clock differs by 3600 s (harmless)" in wrong.err,
                     lambda: f"the clock is told\n{wrong}")
    assert "clock differs" not in right.err
    worker = box.wait_workers(2)[0]
    # Twice the two seconds after which a silent node is lost.
    ctrun.wait_until(lambda: age_of(worker) > 4, "the world is old enough")
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
