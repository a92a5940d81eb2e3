# SPDX-License-Identifier: Apache-2.0
"""ctrun runs outside, and each worker in a container: another root file system and, as in Docker,
its own PIDs. unshare(1) and chroot(1) stand in for apptainer, enroot and docker; like the first two
they keep the host's network, the environment and the working directory. The files of ctrun are not
visible inside.

A process with pid 1 and no handler ignores SIGTERM: so some tests have a short grace time."""
import os
import shutil
import signal

import ctrun
import pytest
from torch_job import has_torch

# container.sh [-p] PROGRAM...: with its own root; -p: also as pid 1 of its own PIDs.
CONTAINER = """#!/bin/sh
set -e
if [ "$1" = -p ]; then
    shift
    exec unshare -m -p -f --kill-child "$0" "$@"
fi
[ "$INSIDE" ] || INSIDE=1 exec unshare -m "$0" "$@"
mount --make-rprivate /
mount -t tmpfs tmpfs {root}
for folder in usr etc dev sys; do
    mkdir {root}/$folder
    mount --rbind /$folder {root}/$folder
done
for name in bin sbin lib lib64; do [ ! -e /$name ] || ln -s usr/$name {root}/$name; done
mkdir {root}/proc {root}/tmp
mount -t proc proc {root}/proc
mkdir -p {root}{shared}
mount --bind {shared} {root}{shared}
exec chroot {root} sh -c 'cd "$0" && exec "$@"' "$PWD" "$@"
"""

TRAIN = """import os, torch, torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

@record
def main():
    dist.init_process_group("gloo")
    total = torch.ones(1) + dist.get_rank()
    dist.all_reduce(total)
    dist.barrier()
    if dist.get_rank() == 1:
        raise RuntimeError(f"sum is {total.item()}")
    __import__("time").sleep(60)

main()
"""


@pytest.fixture(params=["root", "root and pids"])
def container(box, request):
    """Words to put in front of a worker's program."""
    if os.geteuid() or box.run("unshare", "-m", "-p", "-f", "true").code:
        pytest.skip("mount and PID namespaces need root")
    root, shared = box.path("root"), box.path("shared")
    root.mkdir()
    shared.mkdir()
    script = box.write("container.sh", CONTAINER.format(root=root, shared=shared), 0o755)
    return ["--no-python", script] + (["-p"] if "pids" in request.param else [])


@pytest.fixture
def inside(box, container):
    """inside(OPTION..., "--", PROGRAM...) starts two workers in containers, in a folder that is the
    same on both sides; the programs named by `copy` are copied there."""
    def start(*words, copy=(), env=None):
        at = words.index("--")
        for name in copy:
            shutil.copy(ctrun.program(name), box.path("shared"))
        return box.start_ctrun("--nproc-per-node=2", "--log-dir=logs", *words[:at], *container,
                               *words[at + 1:], cwd=box.path("shared"), env=env)
    return start


def test_the_environment_and_the_folder_arrive_and_ctrun_is_not_there(box, inside):
    run = inside("--max-restarts=2", "--", "sh", "-c",
                 f'ls "{ctrun.BUILD}" >/dev/null 2>&1 && exit 9; ls >/dev/null && env -0 >$RANK.env',
                 env={"MINE": "kept"})
    assert run.wait() == 0, run
    for rank in (0, 1):
        words = box.path(f"shared/{rank}.env").read_text().split("\0")
        env = dict(word.split("=", 1) for word in words if word)
        assert (env["RANK"], env["LOCAL_RANK"], env["WORLD_SIZE"]) == (str(rank), str(rank), "2")
        assert env["MINE"] == "kept" and env["TORCHELASTIC_MAX_RESTARTS"] == "2"
        assert env["TORCHELASTIC_ERROR_FILE"].startswith(str(box.path("shared/logs")))
        assert env["MASTER_ADDR"] == "127.0.0.1" and int(env["MASTER_PORT"]) > 0


def test_ranks_in_containers_find_each_other(box, inside):
    shutil.copy(ctrun.BUILD / "lib" / "libctrun.so.0", box.path("shared"))
    run = inside("--", "./03_all_reduce", copy=["03_all_reduce"],
                 env={"LD_LIBRARY_PATH": str(box.path("shared"))})
    assert run.wait() == 0, run


def test_pytorch_in_containers_meets_and_its_traceback_comes_out(box, inside):
    if not has_torch(ctrun.DEBIAN_PYTHON):
        pytest.skip(f"{ctrun.DEBIAN_PYTHON} has no torch")
    (box.path("shared") / "train.py").write_text(TRAIN)
    run = inside("--shutdown-timeout=1", "--", ctrun.DEBIAN_PYTHON, "train.py")
    assert run.wait(120) == 1, run
    assert "ctrun: error[E_EXIT]: rank 1 (" in run.err, run
    assert "RuntimeError: sum is 3.0" in run.err and "in main" in run.err, run


def test_a_signal_reaches_the_program_in_the_container(box, inside):
    run = inside("--shutdown-timeout=20", "--", "./victim", "on", "TERM", "0", "touch", "ready.%r",
                 "hang", copy=["victim"])
    for rank in (0, 1):
        ctrun.wait_until(box.path(f"shared/ready.{rank}").exists, f"worker {rank}")
    run.signal(signal.SIGTERM)
    assert run.wait() == 143, run
    assert signal.SIGKILL not in [event["code"] for event in box.events("worker_ended")], run


@pytest.mark.parametrize("whom", ["guard", "agent"])
def test_kill_9_leaves_nothing_in_any_container(box, inside, whom):
    run = inside("--", "./victim", "orphan", "touch", "ready.%r", "hang", copy=["victim"])
    for rank in (0, 1):
        ctrun.wait_until(box.path(f"shared/ready.{rank}").exists, f"worker {rank}")
    pid = run.process.pid if whom == "guard" else box.events("agent_state")[0]["pid"]
    os.kill(pid, signal.SIGKILL)
    run.wait()
    box.wait_gone()


def test_a_crash_in_a_container_is_told_by_its_signal(box, inside):
    crash = ("import ctypes, os; os.environ['LOCAL_RANK'] == '0' and __import__('time').sleep(60); "
             "os.write(2, b'last words'); ctypes.string_at(0)")
    run = inside("--shutdown-timeout=1", "--", ctrun.DEBIAN_PYTHON, "-c", crash)
    assert run.wait() == 139, run
    assert "E_SIGNAL" in run.err and "SIGSEGV" in run.err and "last words" in run.err, run


def test_steps_of_a_worker_in_a_container_reach_its_agent(box, inside):
    """The control folder is visible on both sides."""
    run = inside("--", "./victim", "step", "7", "touch", "ready.%r", "stopped", copy=["victim"],
                 env={"CTRUN_CONTROL_DIR": str(box.path("shared/ctl"))})
    for rank in (0, 1):
        ctrun.wait_until(box.path(f"shared/ready.{rank}").exists, f"worker {rank}")
    run.signal(signal.SIGTERM)
    assert run.wait() == 143, run
    assert {event["step"] for event in box.events("worker_ended")} == {7}, run
    assert "refused" not in run.err, run
