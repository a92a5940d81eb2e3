# SPDX-License-Identifier: Apache-2.0
"""A host is lost, or its cable is cut: ranks of other hosts that wait for it, or for each other,
get an error at once and can save."""
import signal
import sys

import ctrun
import pytest

RING = ctrun.ROOT / "tests" / "lib" / "ring.py"


def start(box, hosts, *options, words=()):
    runs = []
    for n in (1, 2, 3):
        runs.append(hosts.start(f"node{n}", ctrun.program("ctrun"), "--nproc-per-node=1", "--nnodes=3",
                                "--rdzv-endpoint=node1:29400", "--rdzv-id=survivors", *options, RING,
                                box.dir, hosts.ip(f"node{n}"), *words,
                                env={"PYTHON_EXEC": sys.executable}))
        box.wait_event("agent_state", n, to="joining")  # the order of the ranks
    for rank in range(3):
        ctrun.wait_until(box.path(f"0/ready.{rank}").exists, f"rank {rank} waits\n{runs}", 60)
    box.write("0/gone", "2\n")
    return runs


def raised(box, rank):
    path = box.path(f"0/raised.{rank}")
    ctrun.wait_until(path.exists, f"rank {rank} has an error", 60)
    return path.read_text().split()[1:]


@pytest.mark.parametrize("how", ["cut_power", "partition"])
def test_survivors_of_a_lost_host_raise(box, lab, how):
    hosts = lab(3)
    runs = start(box, hosts, "--survivor-grace=100")
    getattr(hosts, how)("node3")
    assert [raised(box, rank) for rank in (0, 1)] == [["store"], ["store"]]
    for rank in (0, 1):
        box.wait_event("worker_ended", rank=rank, cause="stopped")
    for run in runs:
        run.signal(signal.SIGTERM)
    hosts.heal()


def test_survivors_of_a_failed_rank_on_another_host_raise(box, lab):
    hosts = lab(3)
    runs = start(box, hosts, "--survivor-grace=100")
    hosts.sh("node3", f"kill -9 $(cat {box.path('0/ready.2')})")
    assert [raised(box, rank) for rank in (0, 1)] == [["store"], ["store"]]
    assert [run.wait(60) for run in runs] == [137, 137, 137], runs
