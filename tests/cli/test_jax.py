# SPDX-License-Identifier: Apache-2.0
"""--jax: what jax.distributed.initialize() without arguments reads in each worker. tests/interop
and tests/hosts use JAX itself."""
import contextlib
import json
import os
import random
import socket
import sys

import ctrun
import launch
import pytest
from test_nodes import meeting, start_in_order  # noqa: F401 (a fixture)

NAMES = ("JAX_COORDINATOR_ADDRESS", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_STEP_NUM_NODES",
         "SLURM_JOB_ID", "SLURM_STEP_NODELIST")
TELL = f"""import json, os
seen = {{name: os.environ.get(name) for name in {NAMES + ("MASTER_ADDR", "MASTER_PORT", "RANK", "LOCAL_RANK",
                                                          "OMPI_MCA_orte_hnp_uri", "PRTE_LAUNCHED")}}}
print("told", json.dumps(seen), flush=True)
"""


def told(*runs):
    found = [json.loads(line[5:]) for run in runs for line in run.out.splitlines() if line.startswith("told ")]
    return sorted(found, key=lambda seen: int(seen["RANK"]))


def expect(seen, nodes):
    for rank, each in enumerate(seen):
        host, _, port = each["JAX_COORDINATOR_ADDRESS"].rpartition(":")
        assert (host, int(port)) == (each["MASTER_ADDR"], int(each["MASTER_PORT"]) + 1), each
        assert (each["SLURM_PROCID"], each["RANK"], each["SLURM_NTASKS"]) == (str(rank), str(rank), str(len(seen))), each
        assert (each["SLURM_LOCALID"], each["SLURM_STEP_NUM_NODES"]) == (each["LOCAL_RANK"], str(nodes)), each
        assert each["OMPI_MCA_orte_hnp_uri"] is each["PRTE_LAUNCHED"] is None, each


def run_tell(box, *words, env=None):
    return box.ctrun("--standalone", "--nproc-per-node=3", *words, box.write("tell.py", TELL),
                     env={"PYTHON_EXEC": sys.executable, **(env or {})})


@pytest.mark.parametrize("how", [{}, {"env": {"CTRUN_JAX": "1", "OMPI_MCA_orte_hnp_uri": "1.0;tcp://h:1", "PRTE_LAUNCHED": "1"}}])
def test_each_worker_has_its_own_view(box, how):
    run = run_tell(box, *([] if how else ["--jax"]), **how)
    assert run.code == 0, run
    seen = told(run)
    expect(seen, nodes=1)
    assert {each["SLURM_JOB_ID"] for each in seen} == {"1"} and seen[0]["SLURM_STEP_NODELIST"] == seen[0]["MASTER_ADDR"]


def test_without_it_nothing_is_set(box):
    run = run_tell(box, env={"SLURM_PROCID": "0"})
    assert [[each[name] for name in NAMES] for each in told(run)] == [[None, "0", None, None, None, None, None]] * 3, run


def test_what_slurm_says_of_the_job_stays(box):
    run = run_tell(box, "--jax", env={"SLURM_JOB_ID": "77", "SLURM_STEP_NODELIST": "n[1-2]", "SLURM_NTASKS": "1"})
    seen = told(run)
    expect(seen, nodes=1)
    assert {(each["SLURM_JOB_ID"], each["SLURM_STEP_NODELIST"]) for each in seen} == {("77", "n[1-2]")}, run


def test_two_nodes_agree_on_the_coordinator(box):
    port, runs = ctrun.free_port(), []
    for n in range(2):
        runs.append(box.start_ctrun("--nnodes=2", "--nproc-per-node=2", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=jax",
                                    "--jax", box.write("tell.py", TELL), env={"PYTHON_EXEC": sys.executable}))
        box.wait_event("agent_state", n + 1, to="joining")
    assert [run.wait() for run in runs] == [0, 0], runs
    expect(told(*runs), nodes=2)


def test_a_node_without_it_is_refused(box):
    port, runs = ctrun.free_port(), []
    for options in (["--jax"], []):
        runs.append(box.start_ctrun("--nnodes=2", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=jax", *options, "true"))
        box.wait_event("link_state", len(runs))
    assert runs[1].wait() == 77 and "--jax" in runs[1].err and "E_FINGERPRINT" in runs[1].err, runs
    runs[0].signal(15)
    assert runs[0].wait() == 143


def test_the_coordinators_port_is_free_for_rank_0(box):
    script = box.write("bind.py", """import os, socket
if os.environ["RANK"] == "0":
    port = int(os.environ["JAX_COORDINATOR_ADDRESS"].rpartition(":")[2])
    socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True).close()
""")
    run = box.ctrun("--standalone", "--nproc-per-node=2", "--jax", script, env={"PYTHON_EXEC": sys.executable})
    assert run.code == 0, run


def take_ports(stack, *after):
    """A port below those of connections; binds the ports that are so far after it."""
    for base in random.Random(os.getpid()).sample(range(20000, 29000, 10), 100):
        with contextlib.ExitStack() as tried, contextlib.suppress(OSError):
            for n in after:
                tried.enter_context(socket.create_server(("", base + n)))
            stack.push(tried.pop_all())
            return base
    raise AssertionError("no free ports")


def test_a_store_whose_next_port_is_taken_is_not_used(box):
    with contextlib.ExitStack() as stack:
        first = take_ports(stack, 1, 3, 5)
        run = box.ctrun("--nproc-per-node=1", f"--port-range={first}-{first + 9}", "--jax", box.write("tell.py", TELL),
                        env={"PYTHON_EXEC": sys.executable})
        assert run.code == 0, run
        [seen] = told(run)
        assert int(seen["MASTER_PORT"]) - first in (6, 7, 8), (first, seen)


def test_a_fixed_port_whose_next_one_is_taken_is_an_error(box):
    with contextlib.ExitStack() as stack:
        port = take_ports(stack, 1)
        run = box.ctrun("--nnodes=1", "--master-addr=127.0.0.1", f"--master-port={port}", "--jax", "true")
        assert run.code == 77 and re_line(run, f"--jax: port {port + 1} (MASTER_PORT + 1) is needed for JAX's coordinator: "), run


def test_a_fixed_port_at_the_end_of_the_range_is_told_from_a_taken_one(box):
    port = ctrun.free_port()
    run = box.ctrun("--nnodes=1", "--master-addr=127.0.0.1", f"--master-port={port}", f"--port-range={port}-{port}",
                    "--jax", "true")
    assert run.code == 77 and re_line(run, f"port {port + 1} (MASTER_PORT + 1) is needed for JAX's coordinator: "
                                           "it is not in --port-range"), run


def re_line(run, words):
    return [line for line in run.err.splitlines() if "error[E_PORT_BUSY]" in line and words in line]


def test_a_dry_run_shows_them(box):
    plan = launch.plan(box, "--nproc-per-node=2", "--jax", "true")
    assert [worker["env"]["SLURM_PROCID"] for worker in plan["workers"]] == ["0", "1"]


@pytest.mark.parametrize("line, words, env, is_warned", [
    ("jax.distributed.initialize()", [], {}, True), ("distributed.initialize( )", [], {}, True),
    ("jax.distributed.initialize()", ["--jax"], {}, False), ("jax.distributed.initialize()", [], {"CTRUN_JAX": "0"}, False),
    ("jax.distributed.initialize()", ["--nproc-per-node=1"], {}, False),
    ("jax.distributed.initialize('h:1', 2, 0)", [], {}, False), ("# jax.distributed.initialize()", [], {}, False)])
def test_a_call_of_jax_without_it_is_warned_of(box, line, words, env, is_warned):
    script = box.write("s.py", f"import os\nif os.environ.get('x'):\n    from jax import distributed\n    {line}\n    pass\n"
                       if not line.startswith("#") else f"import os  # jax\n{line}\n")
    run = box.ctrun("--standalone", "--nproc-per-node=2", *words, script, env={"PYTHON_EXEC": sys.executable, **env})
    assert run.code == 0 and run.err.count("add --jax") == is_warned, run


def test_of_two_nodes_one_warns(box, meeting):  # noqa: F811
    script = box.write("s.py", "import os\nif os.environ.get('x'):\n    from jax import distributed\n    distributed.initialize()\n")
    runs = start_in_order(box, meeting, (1, 2), 2, script, env={"PYTHON_EXEC": sys.executable})
    assert [run.wait() for run in runs] == [0, 0], runs
    assert [run.err.count("add --jax") for run in runs] == [1, 0], runs
