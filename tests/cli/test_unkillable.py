# SPDX-License-Identifier: Apache-2.0
"""T10: a worker that SIGKILL does not end, because its cgroup (v1 freezer) is frozen."""
import json
import os
import pathlib
import re
import signal
import uuid

import ctrun
import pytest

STOPPER = ctrun.program("stopper")
FREEZER = pathlib.Path("/sys/fs/cgroup/freezer")


@pytest.fixture
def freezer():
    group = FREEZER / f"ctrun-test-{uuid.uuid4().hex[:8]}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no v1 freezer cgroup can be made here: {error}")
    if not (group / "freezer.state").exists():
        group.rmdir()
        pytest.skip("no v1 freezer here")
    yield group
    (group / "freezer.state").write_text("THAWED")
    ctrun.wait_removed(group)


WORKER = ["--no-python", "sh", "-c", "[ $RANK = 1 ] || exec sleep 600;"
          "while [ ! -e go ]; do sleep 0.05; done; exit 5"]


def test_a_frozen_worker_is_told_when_a_signal_ends_the_run(box, freezer):
    run = box.start_ctrun("--shutdown-timeout=1", "--no-python", "sleep", "600")
    frozen = box.wait_workers(1)[0]
    (freezer / "cgroup.procs").write_text(str(frozen))
    (freezer / "freezer.state").write_text("FROZEN")
    ctrun.wait_until(lambda: (freezer / "freezer.state").read_text() == "FROZEN\n", "it is frozen")
    run.signal(signal.SIGTERM)
    assert run.wait(40) == 143, run
    assert re.search(rf"^ctrun: error\[E_UNKILLABLE\]: pid {frozen} did not die after SIGKILL: state D, ",
                     run.err, re.M), run
    assert "ctrun: stopped by SIGTERM (15); do not reuse this node\n" in run.err, run
    (freezer / "freezer.state").write_text("THAWED")
    box.wait_gone()


def test_t10_a_frozen_worker_is_given_up_with_76_and_other_nodes_are_free(box, freezer):
    daemon, endpoint = box.start_ctrund()
    runs = []
    for n in range(2):
        runs.append(box.start_ctrun("--nnodes=2", f"--rdzv-endpoint={endpoint}",
                                    "--nproc-per-node=2", "--shutdown-timeout=1",
                                    "--max-restarts=3", *WORKER, env={"SLURM_JOB_ID": "771"}))
        box.wait_event("agent_state", n + 1, to="joining")  # the order of the ranks
    run = runs[0]
    frozen = box.wait_workers(4)[0]
    (freezer / "cgroup.procs").write_text(str(frozen))
    (freezer / "freezer.state").write_text("FROZEN")
    ctrun.wait_until(lambda: (freezer / "freezer.state").read_text() == "FROZEN\n", "it is frozen")
    box.write("go", "")
    assert run.wait(40) == 76
    assert re.search(rf"^ctrun: error\[E_UNKILLABLE\]: pid {frozen} \(rank 0\) on \S+ did not die "
                     r"after SIGKILL$", run.err, re.M), run
    assert re.search(rf"^  it is in   : state D, kernel \S+, frozen by cgroup /{freezer.name}$",
                     run.err, re.M), run
    assert "giving up on it; exit 76 (do not reuse this node)" in run.err
    assert re.search(rf'^  do         : drain (\S+): scontrol update nodename=\1 state=drain '
                     rf'reason="ctrun unkillable {frozen}"$', run.err, re.M), run
    assert "also failed: rank 1" in run.err
    assert runs[1].wait(10) == 5, runs[1]  # of the root cause; it did not wait for the frozen worker
    assert "rank 1 (" in runs[1].err, runs[1]
    assert len(box.events("round_started")) == 2  # on two nodes
    (freezer / "freezer.state").write_text("THAWED")
    daemon.signal(signal.SIGTERM)
    assert daemon.wait() == 0
    box.wait_gone()


# Rank 0 leaves a process behind in the first round only.
LEAVER = ["--no-python", "sh", "-c", """
if [ $RANK = 0 ] && [ ! -e left ]; then sleep 600 & echo $! > new; mv new left; exec sleep 600; fi
while [ ! -e go ]; do sleep 0.01; done; exit 5"""]


def test_a_process_left_behind_that_cannot_be_killed_ends_the_run_as_well(box, freezer):
    daemon, endpoint = box.start_ctrund()
    runs = []
    for n in range(2):
        runs.append(box.start_ctrun("--nnodes=1:2", f"--rdzv-endpoint={endpoint}", "--shutdown-timeout=1",
                                    "--max-restarts=3", *LEAVER))
        box.wait_event("agent_state", n + 1, to="joining")  # the order of the ranks
    ctrun.wait_until(box.path("left").exists, "rank 0 has started a process")
    left = box.path("left").read_text().strip()
    (freezer / "cgroup.procs").write_text(left)
    (freezer / "freezer.state").write_text("FROZEN")
    ctrun.wait_until(lambda: (freezer / "freezer.state").read_text() == "FROZEN\n", "it is frozen")
    box.write("go", "")
    says = rf"pid {left} on \S+, which a worker left behind, did not die after SIGKILL: state D, "
    assert runs[0].wait(40) == 76, runs[0]
    assert re.search(rf"^ctrun: error\[E_UNKILLABLE\]: {says}", runs[0].err, re.M), runs[0]
    assert runs[1].wait(10) == 5, runs[1]  # of the root cause
    assert re.search(rf"^  after it   : {says}", runs[1].err, re.M), runs[1]
    assert len(box.events("round_started")) == 2  # on two nodes: no world without the first one
    (freezer / "freezer.state").write_text("THAWED")
    daemon.signal(signal.SIGTERM)
    assert daemon.wait() == 0
    box.wait_gone()


def test_what_all_nodes_tell_of_a_worker_that_cannot_be_killed_has_its_last_calls(box, freezer):
    daemon, endpoint = box.start_ctrund()
    runs = []
    for n in range(2):
        runs.append(box.start_ctrun("--nnodes=2", f"--rdzv-endpoint={endpoint}", "--rdzv-id=calls", "--nproc-per-node=1",
                                    "--shutdown-timeout=1", f"--log-dir=logs{n}", STOPPER, box.path("up")))
        box.wait_event("agent_state", n + 1, to="joining")  # the order of the ranks
    for rank in range(2):
        ctrun.wait_until(box.path(f"up.{rank}").exists, f"rank {rank} is up", 30)
    frozen, killed = [e["worker_pid"] for e in sorted(box.wait_event("worker_started", 2), key=lambda e: e["rank"])]
    (freezer / "cgroup.procs").write_text(str(frozen))
    (freezer / "freezer.state").write_text("FROZEN")
    ctrun.wait_until(lambda: (freezer / "freezer.state").read_text() == "FROZEN\n", "it is frozen")
    os.kill(killed, signal.SIGKILL)
    assert runs[0].wait(40) == 76, runs[0]
    assert runs[1].wait(10) == 128 + signal.SIGKILL, runs[1]
    for node in range(2):
        [path] = box.path(f"logs{node}").glob("*/summary.json")
        [failure] = [f for f in json.loads(path.read_text())["failures"] if f["cause"] == "unkillable"]
        assert any(f["label"] == "calls" and re.match("rank 0: (in|left) ", f["text"]) for f in failure["facts"]), \
            (node, failure["facts"])
    (freezer / "freezer.state").write_text("THAWED")
    daemon.signal(signal.SIGTERM)
    assert daemon.wait() == 0
    box.wait_gone()
