# SPDX-License-Identifier: Apache-2.0
"""After SIGKILL of one process of a run all others end, long before the grace time is over: also a
process that a worker put into another session by two forks and that ignores every signal."""
import os
import signal

import ctrun
import pytest

WORKER = """
import os, signal
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for number in range(1, 32):
            if number not in (signal.SIGKILL, signal.SIGSTOP):
                signal.signal(number, signal.SIG_IGN)
        open(os.environ["ORPHANS"] + "/" + os.environ["RANK"], "w").write(str(os.getpid()))
    else:
        os._exit(0)
else:
    os.wait()
while True:
    signal.pause()
"""


def start(box, *options):
    orphans = box.path("orphans")
    orphans.mkdir()
    script = box.write("worker.py", WORKER)
    run = box.start_ctrun("--standalone", "--nproc-per-node=2", *options, script,
                          env={"ORPHANS": str(orphans), "PYTHON_EXEC": ctrun.DEBIAN_PYTHON})
    workers = box.wait_workers(2)
    ctrun.wait_until(lambda: len([p for p in orphans.iterdir() if p.read_text()]) == 2,
                     lambda: f"both orphans run\n{run}")
    for orphan in orphans.iterdir():
        assert os.getsid(int(orphan.read_text())) not in workers.values()
    return run, workers


def agent_of(box, run, workers):
    """The parent of the workers."""
    [agent] = {ctrun.parent_of(pid) for pid in workers.values()}
    assert agent != run.pid and agent in box.pids()
    return agent


@pytest.mark.parametrize("who", ["guard", "agent", "worker"])
def test_t08_t09_nothing_survives_kill_9(box, who):
    run, workers = start(box)
    victim = {"guard": run.pid, "agent": agent_of(box, run, workers), "worker": workers[1]}[who]
    os.kill(victim, signal.SIGKILL)
    box.wait_gone()
    assert run.wait() == 137 if who != "agent" else run.wait() != 0, run


def test_nothing_survives_an_interrupt(box):
    run, _ = start(box)
    run.signal(signal.SIGINT)
    box.wait_gone()
    assert run.wait() == 128 + signal.SIGINT or run.code == 1, run


def test_a_restart_leaves_nothing_of_the_round_before(box):
    run, workers = start(box, "--max-restarts=1")
    agent = agent_of(box, run, workers)
    before = set(box.pids()) - {agent, *ctrun.guards_of(agent)}
    for orphan in box.path("orphans").iterdir():
        orphan.unlink()
    os.kill(workers[0], signal.SIGKILL)
    box.wait_workers(2, restart=1)
    assert not {pid for pid in before if ctrun.is_alive(pid)}
    run.signal(signal.SIGTERM)
    box.wait_gone()
