# SPDX-License-Identifier: Apache-2.0
"""--nproc-per-node as a list: nodes of one run with different numbers of workers."""
import json
import os

import ctrun
import fake_ssh
import pytest

SHOW = ["--no-python", "sh", "-c",
        'echo "${FAKE_HOST:-$GROUP_RANK} $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE '
        '$GROUP_RANK/$GROUP_WORLD_SIZE $ROLE_RANK/$ROLE_WORLD_SIZE"']
STEP = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "n[001-003]",
        "SLURM_STEP_TASKS_PER_NODE": "1(x3)", "SLURM_LOCALID": "0"}


def expected(names, sizes):
    """What SHOW prints of all ranks, counted host by host."""
    world, rank, lines = sum(sizes), 0, []
    for node, (name, size) in enumerate(zip(names, sizes)):
        for local in range(size):
            lines.append(f"{name} {rank}/{world} {local}/{size} {node}/{len(sizes)} "
                         f"{rank}/{world}")
            rank += 1
    return sorted(lines)


def planned(box, *words, env=None):
    run = box.ctrun(*words, "--dry-run", "--json", "true", env=env)
    assert run.code == 0, run
    return json.loads(run.out)["nproc_per_node"]


@pytest.mark.parametrize("text, sizes", [("3,1", [3, 1]), ("1,2x2", [1, 2, 2])])
def test_the_hosts_of_a_list_get_their_numbers_and_ranks_stay_in_a_row(box, text, sizes):
    names = [f"h{n}" for n in range(len(sizes))]
    run = box.ctrun("--hosts", ",".join(names), f"--nproc-per-node={text}", *SHOW,
                    env={"CTRUN_SSH": fake_ssh.local(box), "CTRUN_HOSTS_ENV": "TMPDIR"})
    assert run.code == 0, run
    assert sorted(line.partition(": ")[2] for line in run.out.splitlines()) == expected(
        names, sizes), run


def test_static_nodes_find_their_number_by_their_rank_whoever_comes_first(box):
    port = ctrun.free_port()
    words = ["--nnodes=2", "--nproc-per-node=1,3", f"--master-port={port}"]
    last = box.start_ctrun(*words, "--node-rank=1", *SHOW)
    box.wait_event("link_state", to="connecting")
    first = box.ctrun(*words, "--node-rank=0", *SHOW)
    assert [first.code, last.wait()] == [0, 0], (first, last)
    assert sorted((first.out + last.out).splitlines()) == expected("01", [1, 3])
    assert len(first.out.splitlines()) == 1, first


def test_a_restart_keeps_the_numbers(box):
    script = ("if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then [ $RANK != 3 ] || exit 5; "
              "exec sleep 60; fi; " + SHOW[3])
    run = box.ctrun("--hosts=a,b", "--nproc-per-node=3,1", "--max-restarts=1", "--no-python",
                    "sh", "-c", script,
                    env={"CTRUN_SSH": fake_ssh.local(box), "CTRUN_HOSTS_ENV": "TMPDIR"})
    assert run.code == 0, run
    assert sorted(line.partition(": ")[2] for line in run.out.splitlines()) == expected(
        "ab", [3, 1]), run


def test_slurms_node_id_picks_the_number(box):
    for node, count in enumerate([8, 2, 4]):
        env = {**STEP, "SLURM_NODEID": str(node)}
        assert planned(box, "--nproc-per-node=8,2,4", env=env) == count
        # Also where an endpoint is given: the node is the same one.
        assert planned(box, "--nproc-per-node=8,2,4", "--nnodes=3", "--rdzv-endpoint=h:1",
                       env=env) == count
        assert planned(box, "--nnodes=2:3", env={**env, "PET_NPROC_PER_NODE": "8,2,4"}) == count
    # A spare node has its place in the list, too.
    assert planned(box, "--nnodes=2", "--nproc-per-node=8,2,4",
                   env={**STEP, "SLURM_NODEID": "2"}) == 4


def test_several_tasks_of_a_node_become_one_agent_with_its_number(box):
    env = {**STEP, "SLURM_STEP_TASKS_PER_NODE": "8,2(x2)", "SLURM_NODEID": "1"}
    assert planned(box, "--nproc-per-node=8,2,2", env=env) == 2


@pytest.mark.parametrize("words, env, text", [
    (["--nnodes=2", "--rdzv-endpoint=h:1", "--nproc-per-node=8,2"], {},
     "--nproc-per-node=8,2: a list needs the number of this node"),
    (["--nnodes=3", "--master-port=1", "--nproc-per-node=8,2"], {},
     "--nproc-per-node=8,2: is for 2 nodes, and the run has 3"),
    (["--nproc-per-node=8,2"], {}, "is for 2 nodes, and the run has 1"),
    (["--nproc-per-node=8,2"], {**STEP, "SLURM_NODEID": "0"}, "and the run has 3"),
    (["--nproc-per-node=8,2", "--nnodes=2"], {**STEP, "SLURM_NODEID": "2"},
     "is for 2 nodes, and this is node 2, counted from 0"),
    (["--nproc-per-node=8,2", "--hosts=a,b,c", "--dry-run"], {}, "and the run has 3"),
    # Before any host is called.
    (["--nproc-per-node=8,2", "--hosts=a,b,c"], {"CTRUN_SSH": "false"}, "and the run has 3"),
    # The third one would be a spare without a number of workers.
    (["--nproc-per-node=8,2", "--hosts=a,b,c", "--nnodes=2"], {"CTRUN_SSH": "false"},
     "is for 2 nodes, and the run has 3"),
])
def test_a_list_that_cannot_be_used_is_refused(box, words, env, text):
    run = box.ctrun(*words, "true", env=env)
    assert run.code == 2 and text in run.err, run


@pytest.mark.parametrize("text", ["8,", "0,8", "8x", "8,gpu", "8x2x2", "4097,1"])
def test_a_malformed_list_is_refused_with_its_grammar(box, text):
    run = box.ctrun(f"--nproc-per-node={text}", "true")
    assert run.code == 1 and "NxK, N on each of K nodes" in run.err, run
