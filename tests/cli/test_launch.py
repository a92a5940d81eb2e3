# SPDX-License-Identifier: Apache-2.0
"""ctrun-launch: scripts for torch.distributed.launch, with only the program's name replaced."""
import os
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


def test_a_script_that_calls_torchrun_finds_a_link_of_that_name(box):
    box.write("train.py", WORKER)
    box.path("bin").mkdir()
    box.path("bin/torchrun").symlink_to(ctrun.program("ctrun"))
    run = box.run("sh", "-c", f"PATH={box.path('bin')}:$PATH; torchrun --nproc_per_node=2 train.py --lr 0.5")
    assert run.code == 0 and sorted(run.out.split("\n")) == ["", "worker 0 0 None 0.5", "worker 1 1 None 0.5"], run


# Other forms of such scripts: the arguments in one variable, a wrapper with defaults, an installed
# entry point, a batch system's ranks in a subshell, hosts from a file.
SCRIPTS = {
    "arguments in a variable": """
DISTRIBUTED_ARGS="--nproc_per_node $GPUS --nnodes 2 --node_rank $NODE --master_addr 127.0.0.1 \\
    --master_port $PORT"
ctrun-launch $DISTRIBUTED_ARGS train.py --lr 0.5
""",
    "a wrapper with defaults": """
NNODES=${NNODES:-2} NODE_RANK=${NODE_RANK:-$NODE} MASTER_ADDR=${MASTER_ADDR:-127.0.0.1}
PYTHONPATH="$(dirname "$0")/..":$PYTHONPATH ctrun-launch --nnodes=$NNODES --node_rank=$NODE_RANK \\
    --master_addr=$MASTER_ADDR --nproc_per_node=${GPUS:-1} --master_port=${PORT:-29500} \\
    $(dirname "$0")/train.py "$@" --lr 0.5
""",
    "an entry point by its path": """
OMP_NUM_THREADS=1 ctrun-launch --nproc_per_node=$GPUS --nnodes=2 --node_rank=$NODE \\
    --master_addr="127.0.0.1" --master_port=$PORT --use_env $(command -v train-it) --lr 0.5
""",
    "a subshell per task of a batch system": """
export SLURM_PROCID=$NODE
bash -c 'ctrun-launch --nproc-per-node=$GPUS --nnodes=2 --node-rank=$SLURM_PROCID \\
    --master-addr=127.0.0.1 --master-port=$PORT -m train --lr 0.5'
""",
    "hosts out of a file": """
printf 'a slots=2\\nb slots=2\\n' >hosts.$NODE
n=0
while read -r host slots; do
    [ $n = $NODE ] && exec ctrun-launch --nproc_per_node ${slots#slots=} --nnodes $(wc -l <hosts.$NODE) \\
        --node_rank $n --master_addr 127.0.0.1 --master_port $PORT train.py --lr 0.5 </dev/null
    n=$((n + 1))
done <hosts.$NODE
""",
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_of_other_shapes_run_when_the_name_is_replaced(box, name):
    box.write("train.py", WORKER)
    box.write("train-it", f"#!{ctrun.DEBIAN_PYTHON}\n{WORKER}", 0o755)
    script = box.write("launch.sh", SCRIPTS[name])
    env = {"GPUS": "2", "PORT": str(launch.free_port()),
           "PATH": f"{box.dir}:{os.environ['PATH']}"}
    env["PATH"] = f"{os.path.dirname(ctrun.program('ctrun'))}:{env['PATH']}"
    runs = [box.start("bash", script, env={**env, "NODE": str(node)}) for node in (0, 1)]
    assert [run.wait() for run in runs] == [0, 0], runs
    lines = sorted(line for run in runs for line in run.out.splitlines() if line)
    shown = "None None None None" if "--use_env" in SCRIPTS[name] else "0 1 0 1"
    assert lines == [f"worker {rank} {rank % 2} {shown.split()[rank]} 0.5" for rank in range(4)]


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


def test_ctrun_takes_the_whole_option_and_never_shows_it(box, name):
    assert box.run(name, "--use", "true").code == 2  # two spellings: ambiguous, as in argparse
    assert box.ctrun("--use", "true").code == 2
    for option in ("--use-env", "--use_env"):
        run = box.ctrun(option, "--dry-run", "--json", box.write("x.py", ""), "a")
        assert run.code == 0, run
        assert launch.json.loads(run.out)["workers"][0]["argv"][3:] == ["a"]
    assert not re.search("use.env", box.ctrun("--print-completion", "bash").out)
