# SPDX-License-Identifier: Apache-2.0
"""Nodes come, go, fail and return on several hosts (T13, T19, T20, T26)."""
import os
import random
import signal
import time

import beacon
import ctrun
import pytest

ENDPOINT = "--rdzv-endpoint=node1:29400"
SHORT = "--rdzv-conf=keep_alive_interval=1,keep_alive_max_attempt=3,last_call_timeout=30"


@pytest.fixture
def worlds(box):
    return beacon.Beacon(box)


def start(hosts, name, *words, **how):
    return hosts.start(name, ctrun.program("ctrun"), ENDPOINT, "--shutdown-timeout=1", *words,
                       **how)


def wait_world(worlds, runs, *hosts, seconds=20):
    ctrun.wait_until(lambda: worlds.is_world(hosts),
                     lambda: f"a world on {hosts}: {worlds.now()}\n{runs}", seconds)


def test_t13_a_node_of_another_run_is_refused_and_the_run_is_not_touched(box, lab, worlds):
    hosts = lab(3)
    words = ["--nnodes=2:3", "--rdzv-conf=last_call_timeout=1"]
    token = {"CTRUN_TOKEN": "a" * 32}
    ours = [start(hosts, f"node{n}", *words, "--rdzv-id=a", *worlds.program, env=token)
            for n in (1, 2)]
    wait_world(worlds, ours, "node1", "node2")
    for run_id, env, code in (("b", token, "E_WRONG_RUN"), ("a", {"CTRUN_TOKEN": "b" * 32},
                                                            "E_AUTH")):
        other = start(hosts, "node3", *words, f"--rdzv-id={run_id}", "true", env=env)
        assert other.wait(20) == 77, other
        assert f"error[{code}]" in other.err, other
    assert set(worlds.spans()) == {1}
    ctrun.stop(*ours)


def test_t19_nodes_that_never_come_are_waited_for_aloud_and_end_all(box, lab):
    hosts = lab(3)
    began = time.monotonic()
    runs = [start(hosts, f"node{n}", "--nnodes=4", "--rdzv-id=t19",
                  "--rdzv-conf=join_timeout=12", "true") for n in (1, 2, 3)]
    for run in runs:
        assert run.wait(40) == 75, run
        assert "3/4 nodes" in run.err, run
        assert "error[E_JOIN_TIMEOUT]: 3 of 4 nodes joined" in run.err, run
    assert time.monotonic() - began > 11


def test_t20_the_node_too_many_waits_as_a_spare_and_takes_over(box, lab, worlds):
    hosts = lab(3)
    words = ["--nnodes=2:2", SHORT, "--rdzv-id=t20", *worlds.program]
    runs = [start(hosts, f"node{n}", *words) for n in (1, 2)]
    wait_world(worlds, runs, "node1", "node2")
    runs.append(start(hosts, "node3", *words))
    ctrun.wait_until(lambda: "run is full (2/2): spare #1" in runs[2].err,
                     lambda: f"{runs[2]}")
    hosts.cut_power("node2")
    wait_world(worlds, runs, "node1", "node3")
    ctrun.stop(*runs)
    worlds.check()


def test_t20_leaving_and_rejoining_at_random_never_closes_the_run(box, lab, worlds):
    seed = int(os.environ.get("CTRUN_TEST_SEED", random.randrange(2**32)))
    print(f"CTRUN_TEST_SEED={seed}")
    dice = random.Random(seed)
    hosts = lab(3)
    words = ["--nnodes=1:3", SHORT.replace("timeout=30", "timeout=1"), "--rdzv-id=t20r",
             *worlds.program]
    runs = {name: start(hosts, name, *words) for name in ("node1", "node2", "node3")}
    wait_world(worlds, runs, *runs)
    for _ in range(8):
        name = dice.choice(["node2", "node3"])
        if name in runs and len(runs) > 1:
            run = runs.pop(name)
            run.signal(dice.choice([signal.SIGTERM, signal.SIGINT]))
            run.wait(20)
        elif name not in runs:
            runs[name] = start(hosts, name, *words)
        if dice.random() < 0.5:  # else the next one comes during a restart
            wait_world(worlds, runs, *runs)
        assert runs["node1"].code is None, runs
    wait_world(worlds, runs, *runs)
    ctrun.stop(*runs.values())
    worlds.check()


FAILS = r"""#!/bin/sh
# Each restart count has the node that fails; everybody else waits.
echo "$TORCHELASTIC_RESTART_COUNT $RANK $(hostname)" >>"$1/$(hostname).$RANK"
until [ "$(cat "$1"/* | grep -c "^$TORCHELASTIC_RESTART_COUNT ")" = 6 ]; do sleep 0.05; done
set -- node2 node3 node2 node3
shift "$TORCHELASTIC_RESTART_COUNT"
[ "$(hostname)" = "$1" ] || exec sleep 600
exit $((7 + TORCHELASTIC_RESTART_COUNT))
"""


def test_t26_one_budget_one_count_and_a_stable_order_on_all_nodes(box, lab):
    hosts = lab(3)
    folder = box.path("ranks")
    folder.mkdir()
    program = box.write("fails.sh", FAILS, 0o755)
    runs = [start(hosts, f"node{n}", "--nnodes=3", "--nproc-per-node=2", "--max-restarts=3",
                  "--rdzv-id=t26", program, folder) for n in (1, 2, 3)]
    for run in runs:
        assert run.wait(60) == 10, run  # the code of the fourth failure, on every node
        for count in (1, 2, 3):
            assert f"restart {count}/3" in run.err, run
    seen = {}
    for path in folder.iterdir():
        for line in path.read_text().splitlines():
            count, rank, host = line.split()
            seen.setdefault(int(count), {})[int(rank)] = host
    assert sorted(seen) == [0, 1, 2, 3]
    for count, ranks in seen.items():
        assert sorted(ranks) == list(range(6)), (count, ranks)
        assert ranks == seen[0], seen  # no rank moved
