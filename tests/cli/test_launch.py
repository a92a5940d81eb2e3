# SPDX-License-Identifier: Apache-2.0
"""ctrun-launch: scripts for torch.distributed.launch, with only the program's name replaced."""
import re

import ctrun
import launch
import pytest

WORKER = """import argparse, os
parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", "--local-rank", type=int)
parser.add_argument("--lr", type=float)
arguments = parser.parse_args()
print("worker", os.environ["RANK"], os.environ["LOCAL_RANK"], arguments.local_rank, arguments.lr)
"""

# What people have in their batch scripts: one launcher a node, in the background.
LOOP = """for i in 0 1; do
    ctrun-launch --nproc_per_node=2 --nnodes=2 --node_rank=$i --master_addr=127.0.0.1 \\
        --master_port=%d %s train.py --lr 0.5 &
    pids="$pids $!"
done
for pid in $pids; do wait $pid || exit; done
"""


@pytest.fixture
def name():
    return ctrun.program("ctrun-launch")


@pytest.mark.parametrize("option,local_ranks", [("", "0101"), ("--use_env", "    ")])
def test_a_loop_over_nodes_runs_when_the_name_is_replaced(box, option, local_ranks):
    box.write("train.py", WORKER)
    run = box.run("sh", "-c", LOOP % (launch.free_port(), option))
    assert run.code == 0, run
    assert sorted(line for line in run.out.splitlines() if line) == [
        f"worker {rank} {rank % 2} {local_ranks[rank].replace(' ', 'None')} 0.5"
        for rank in range(4)]


@pytest.mark.parametrize("words,tail", [
    (["s.py", "a"], ["-u", "s.py", "--local-rank=1", "a"]),
    (["s.py"], ["-u", "s.py", "--local-rank=1"]),
    (["-m", "pkg.mod", "a"], ["-u", "-m", "pkg.mod", "--local-rank=1", "a"]),
    (["sh", "a"], ["--local-rank=1", "a"]),
    (["--use-env", "s.py", "a"], ["-u", "s.py", "a"]),
    (["--use-env", "--no-python", "sh", "a"], ["a"])])
def test_where_the_local_rank_is_put(box, name, words, tail):
    box.write("s.py", "")
    run = box.run(name, "--dry-run", "--json", "--nproc-per-node=2", *words)
    assert run.code == 0, run
    assert launch.json.loads(run.out)["workers"][1]["argv"][1:] == tail


def test_no_python_wants_use_env(box, name):
    run = box.run(name, "--no-python", "true")
    assert run.code == 1 and "you must also set the '--use-env' flag" in run.err


def test_the_option_is_known_under_that_name_only(box, name):
    assert box.run(name, "--use", "true").code == 2  # two spellings: ambiguous, as in argparse
    run = box.ctrun("--use-env", "true")
    assert run.code == 2 and "call ctrun-launch" in run.err
    assert not re.search("use.env", box.ctrun("--print-completion", "bash").out)
