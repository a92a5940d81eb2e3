# SPDX-License-Identifier: Apache-2.0
"""Scripts that start torchrun, as users write them, the same with one word changed, and what they
need to run."""
import os
import subprocess

import ctrun

# Torchrun of PyTorch 1.13 takes port 29400 for --standalone, which other programs of this machine may have.
ALONE = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"] if os.geteuid() == 0 else []

SHOW = """import os, sys
words = [word for word in sys.argv[1:] if not word.startswith("--local")]
names = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK"]
line = " ".join(os.environ[name] for name in names) + f" {words}\\n"
os.write(1, line.encode())
"""

SINGLE = """#!/bin/bash
# one node, two processes; torchrun is started below
set -eu
export MASTER_ADDR=localhost
export MASTER_PORT=$PORT   # any
LR="0.1"; if [ -n "$LR" ]; then torchrun --standalone --nproc_per_node=2 \\
    show.py --lr "$LR" 'a  b' "$(echo "c  d")" # keep me
fi
echo done
"""

LOOP = """#!/bin/sh
NNODES=2
for rank in 0 1; do
\tpython -m torch.distributed.launch --nproc_per_node=2 --nnodes=$NNODES \\
\t    --node_rank=$rank --master_addr="127.0.0.1" --master_port=$PORT \\
\t    show.py --epochs 3 &
done
wait
"""

USE_ENV = """#!/bin/bash
GPUS=3
OMP_NUM_THREADS=1 python -m torch.distributed.launch --use_env --nproc_per_node $GPUS \\
  --master_port=$PORT show.py --use_env 2>&1 | cat
"""

ARGS = """#!/bin/bash
GPUS_PER_NODE=2
DISTRIBUTED_ARGS="
    --nproc_per_node $GPUS_PER_NODE \\
    --nnodes 1 --node_rank 0 \\
    --master_addr localhost --master_port $PORT
"
MODEL_ARGS=(--layers 2 --name "x y")
torchrun $DISTRIBUTED_ARGS show.py "${MODEL_ARGS[@]}"
"""

SSH = """#!/bin/bash
i=0
for host in alpha beta; do
    ssh -n "$host" "cd $PWD && torchrun --nnodes=2 --nproc_per_node=1 \\
        --node_rank=$i --master_addr=127.0.0.1 --master_port=$PORT show.py $i" &
    i=$((i + 1))
done
wait
"""

SHELLS = """#!/bin/sh
run() {
    bash -c 'exec torchrun --standalone --nproc_per_node=2 show.py in "quotes"'
}
run || { echo "torchrun failed" >&2; exit 1; }
"""

# name: script, its ranks as (world, local world, nodes)
SCRIPTS = {
    "single": (SINGLE, (2, 2, 1)),
    "loop": (LOOP, (4, 2, 2)),
    "use_env": (USE_ENV, (3, 3, 1)),
    "args": (ARGS, (2, 2, 1)),
    "ssh": (SSH, (2, 1, 2)),
    "shells": (SHELLS, (2, 2, 1)),
}

STEP = """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
nodes=( $(scontrol show hostnames "$SLURM_JOB_NODELIST") )
head_node=${nodes[0]}
export MASTER_ADDR=$head_node  MASTER_PORT=$((10000 + SLURM_JOB_ID % 50000))
export LOGLEVEL=INFO

srun --label torchrun \\
    --nnodes "$SLURM_NNODES" --nproc_per_node=2 \\
    --rdzv_id "$SLURM_JOB_ID" \\
    --rdzv-backend=c10d \\
    --rdzv-endpoint "$MASTER_ADDR:$MASTER_PORT" \\
    train.py --data "$DATA"
"""

def for_ctrun(script):
    """As the table of ctrun-torchrun(7) says."""
    return (script.replace("python -m torch.distributed.launch", "ctrun-launch")
            .replace("torchrun", "ctrun"))


def port():
    return str(ctrun.free_port())


def stage(box):
    """Writes the worker, both launchers of Debian's torch, and an ssh that runs the command
    here."""
    box.write("show.py", SHOW)
    box.path("bin").mkdir()
    torchrun = ctrun.ROOT / "tests" / "interop" / "torchrun_113.py"
    launch = box.write("launch_113.py", torchrun.read_text().replace(
        "from torch.distributed.run import", "from torch.distributed.launch import"))
    box.write("bin/torchrun", f'#!/bin/sh\nexec {ctrun.DEBIAN_PYTHON} {torchrun} "$@"\n', 0o755)
    box.write("bin/python", f'#!/bin/sh\n[ "$1 $2" = "-m torch.distributed.launch" ] || exit 9\n'
              f'shift 2; exec {ctrun.DEBIAN_PYTHON} {launch} "$@"\n', 0o755)
    box.write("bin/ssh", '#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift; done\nshift\n'
              'exec sh -c "$*"\n', 0o755)
    return box


def has_torch():
    probe = "import importlib.util as u; raise SystemExit(u.find_spec('torch') is None)"
    return subprocess.run([ctrun.DEBIAN_PYTHON, "-c", probe]).returncode == 0


def ranks(box, script):
    """Runs it. Returns what its workers printed of their ranks, their arguments, and the Run."""
    env = {"PATH": f"{box.path('bin')}:{box.env['PATH']}", "PORT": port()}
    shell = "bash" if "bash" in script.splitlines()[0] else "sh"
    run = box.run(*ALONE, shell, box.write("now.sh", script), env=env)
    assert run.code == 0, run
    lines = [line for line in run.out.splitlines() if line[:1].isdigit()]
    return sorted(line.split(" ", 5)[:5] for line in lines), sorted(
        line.split(" ", 5)[5] for line in lines), run


def expected(name):
    _, (world, local, nodes) = SCRIPTS[name]
    return sorted([str(node * local + rank), str(world), str(rank), str(local), str(node)]
                  for node in range(nodes) for rank in range(local))
