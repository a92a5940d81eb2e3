# SPDX-License-Identifier: Apache-2.0
"""Stock torchrun agents that meet at a ctrund: the c10d backend with an endpoint that none of them
serves. Debian's torch 1.13 always, and the torch of the interpreter that CTRUN_TEST_TORCH names."""
import pathlib
import re
import urllib.request

import ctrun
import pytest
import store_peers

HERE = pathlib.Path(__file__).parent
SCRIPT = ctrun.ROOT / "examples" / "pytorch" / "ddp_gloo.py"


# Since 2.x the agent of rank 0 keeps one worker store for all attempts, with the addresses of workers
# that died in it: restarted ones wait for those. This gives each attempt a store of its own.
NEW_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}


def agent(box, kind, port, run_id, *command, env=()):
    python = store_peers.interpreter(kind)
    torchrun = ([python, str(HERE / "torchrun_113.py")] if kind == "debian"
                else [python, "-m", "torch.distributed.run"])
    return box.start(*torchrun, "--nnodes=2", "--nproc_per_node=1", "--rdzv_backend=c10d",
                     f"--rdzv_endpoint=127.0.0.1:{port}", f"--rdzv_id={run_id}",
                     "--rdzv_conf=is_host=0", "--max_restarts=3", "--monitor_interval=0.1",
                     *map(str, command), env={"OMP_NUM_THREADS": "1", **dict(env)})


def keys(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as reply:
        return int(re.search(r"^ctrund_store_keys (\d+)$", reply.read().decode(), re.M)[1])


def trained(box, kind, port, *more, env=()):
    """Runs a pair, which must end with 0; returns the last lines of both ranks, in order."""
    agents = [agent(box, kind, port, "job", SCRIPT, *more, env=env) for _ in range(2)]
    assert [run.wait(200) for run in agents] == [0, 0], agents
    # Under torchrun workers share a stream: what two print at once may stand in one line.
    lines = sorted(line for run in agents
                   for line in re.findall(r"rank \d+ of \d+: .*?parameters (?:equal|DIFFER)", run.out))
    assert [line[:11] for line in lines] == [f"rank {rank} of 2" for rank in range(2)], agents
    assert all("parameters equal" in line for line in lines), lines
    ctrun.wait_until(lambda: keys(port) == 0, lambda: f"{keys(port)} keys are given back")
    return lines


@pytest.mark.parametrize("kind", ["debian", "newer"])
def test_a_pair_of_torchrun_agents_trains_through_ctrund(box, kind):
    with store_peers.ctrund(box) as port:
        assert all("steps 0 to 40" in line for line in trained(box, kind, port))


@pytest.mark.parametrize("kind", ["debian", "newer"])
def test_a_pair_of_torchrun_agents_restarts_through_ctrund(box, kind):
    with store_peers.ctrund(box) as port:
        lines = trained(box, kind, port, "--checkpoint", box.path("ddp.pt"), "--fail-at=25",
                        env=NEW_STORE)
        assert all("steps 20 to 40" in line for line in lines)
        assert any("restart 1" in line for line in lines)  # torchrun counts them on each node


def found(box, *more, env=()):
    """What the worker of one agent with a newer torch finds in its store in its second attempt:
    "new", or "used" when a key of the first is there."""
    python = store_peers.interpreter("newer")
    run = box.run(python, "-m", "torch.distributed.run", "--nproc_per_node=1", "--rdzv_backend=c10d",
                  *more, "--max_restarts=1", "--monitor_interval=0.1", store_peers.TORCH, "attempt",
                  env={"OMP_NUM_THREADS": "1", **dict(env)}, seconds=120)
    assert run.code == 0, run
    return re.search("attempt 1: (new|used)", run.out)[1]


def test_a_restarted_worker_has_the_store_of_its_agent_whoever_serves_the_rendezvous(box):
    own = found(box, "--rdzv_endpoint=localhost:0", "--rdzv_conf=is_host=1")
    with store_peers.ctrund(box) as port:
        ours = (f"--rdzv_endpoint=127.0.0.1:{port}", "--rdzv_id=attempts", "--rdzv_conf=is_host=0")
        assert found(box, *ours) == own
        assert found(box, *ours, env=NEW_STORE) == "new"
    print(f"a restarted worker finds a {own} store with torchrun alone and at ctrund")


@pytest.mark.parametrize("kind", ["debian", "newer"])
def test_two_runs_of_torchrun_at_one_ctrund_do_not_meet_and_an_id_may_be_used_again(box, kind):
    say = ["--nproc_per_node=1", "--no_python", "sh", "-c", "echo $RANK of $TORCHELASTIC_RUN_ID"]
    with store_peers.ctrund(box) as port:
        for ids in ("a", "a", "a.1", "a.1"), ("a", "a"):  # with torchrun's own store an id can be used once
            agents = [agent(box, kind, port, run_id, *say) for run_id in ids]
            assert [run.wait(200) for run in agents] == [0] * len(ids), agents
            said = sorted(line for run in agents for line in run.out.splitlines())
            assert said == sorted(f"{i % 2} of {run_id}" for i, run_id in enumerate(ids)), agents
            ctrun.wait_until(lambda: keys(port) == 0, lambda: f"{keys(port)} keys are given back")
