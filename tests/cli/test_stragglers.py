# SPDX-License-Identifier: Apache-2.0
"""--stragglers: the rank that the others of its node wait for, and the node that the other nodes
wait for, in ctrunctl status, events and metrics.

The stand-in for torch (tests/lib/fake_torch.py) has a recorder with made-up times; programs of the
SDK have real times. When a rank is named is tested in tests/unit/agent/watch/straggler_test.c,
torch itself in tests/interop/test_stragglers_torch.py."""
import json
import os
import re
import signal
import sys
import time
import urllib.request

import ctrun
import fake_torch
import pytest

# Steps of 100 ms. The time of each rank varies by up to 10 %; each rank of SLOW is later by LATE
# ms.
TORCH = """import os, random, sys
from torch._C import _distributed_c10d
import torch.distributed.distributed_c10d
rank, (begin, late), slow = int(os.environ["RANK"]), map(int, sys.argv[1:3]), list(map(int, sys.argv[3:]))
chance, now = [random.Random(seed) for seed in range(8)], begin
for number in range(1, 131):
    own = [100 + each.uniform(-10, 10) + late * (r in slow) for r, each in enumerate(chance)]
    _distributed_c10d.entries.append(dict(
        pg_id=0, process_group=["0", "default_pg"], collective_seq_id=number, profiling_name="gloo:all_reduce",
        time_created_ns=now + int(own[rank] * 1e6), input_sizes=[[3]], input_dtypes=["Float"], state="completed",
        is_p2p=False))
    now += int(max(own) * 1e6)
os.read(os.pipe()[0], 1)
"""


def start_torch(box, slow, late, *options, recorder="", alone="--standalone"):
    env = {"PYTHON_EXEC": sys.executable, "PYTHONPATH": fake_torch.install(box.dir), "FAKE_RECORDER": recorder}
    return box.start_ctrun(alone, "--nproc-per-node=8", "--stragglers", *options, box.write("train.py", TORCH),
                           str(time.time_ns()), str(late), str(slow), env=env)


@pytest.fixture
def job(box):
    """job(run) ends the run after the test."""
    runs = []

    def start(run):
        runs.append(run)
        return run
    yield start
    for run in runs:
        run.signal(signal.SIGTERM)
        run.wait()


def status(box, *words):
    return box.run(ctrun.program("ctrunctl"), "status", *words)


def test_the_rank_is_named_in_status_events_and_metrics(box, job):
    job(start_torch(box, 5, 20))
    event = box.wait_event("straggler")[0]
    assert (event["rank"], event["local_rank"]) == (5, 5), event
    assert 15000 < event["late_us"] < 25000 and 100 < event["late_permille"] < 250 and event["steps"] == 100, event

    def told_of_all():
        [run] = json.loads(status(box, "--json").out)["runs"]
        return run if all("metrics" in worker for worker in run["workers"]) else None
    run = ctrun.wait_until(told_of_all, "all eight were up at a look", 60)
    assert run["straggler"]["rank"] == 5, run
    assert re.search(r"^  the others wait for rank 5: \d+\.\d ms late on the average, \d+\.\d % of a step "
                     r"\(last 100 steps\); differs in: .", status(box).out, re.M), status(box)
    late = {worker["rank"]: worker["metrics"]["ctrun_rank_late_seconds"] for worker in run["workers"]}
    assert late[5] == max(late.values()) > 0.015 and sorted(late) == list(range(8)), late
    assert all(abs(seconds) < 0.005 for rank, seconds in late.items() if rank != 5), late


def test_a_server_has_the_metric_of_each_rank(box, job):
    daemon, where = box.start_ctrund()
    job(daemon)
    job(start_torch(box, 2, 30, f"--rdzv-endpoint={where}", "--rdzv-id=j",
                    "--rdzv-backend=c10d", "--rdzv-conf=is_host=0", alone="--nnodes=1"))

    def page():
        text = urllib.request.urlopen(f"http://{where}/metrics", timeout=60).read().decode()
        return text if text.count("ctrun_rank_late_seconds{") == 8 else None
    text = ctrun.wait_until(page, "the metric of eight ranks is there")
    found = {int(rank): float(value) for rank, value in
             re.findall(r'^ctrun_rank_late_seconds\{run="j",rank="(\d)"\} (\S+)$', text, re.M)}
    assert found[2] == max(found.values()) > 0.02, text


def test_nobody_is_named_where_all_differ_alike(box, job):
    job(start_torch(box, 0, 0))
    box.wait_workers(8)

    def told():
        [run] = json.loads(status(box, "--json").out)["runs"]
        return run if any("metrics" in worker for worker in run["workers"]) else None
    assert "straggler" not in ctrun.wait_until(told, "it was looked")
    assert not box.events("straggler") and "the others wait" not in status(box).out


def test_a_recorder_that_answers_nonsense_costs_nothing_but_the_name(box, job):
    run = job(start_torch(box, 5, 20, "--log-dir=logs", recorder="garbage"))
    box.wait_workers(8)
    answer = ctrun.wait_until(lambda: status(box).out, "the agent answers")
    assert not box.events("straggler") and run.code is None and "running" in answer, answer


def test_a_program_of_the_sdk_is_seen_without_a_recorder(box, job):
    """Rank 1 is late by 20 ms, so that the others wait for it on any machine."""
    job(box.start_ctrun("--standalone", "--nproc-per-node=3", "--stragglers", "--no-python", ctrun.program("stopper"),
                        box.path("up"), "1", "20"))
    event = box.wait_event("straggler", seconds=60, rank=1)[0]
    assert event["late_us"] > 10000, event


@pytest.mark.skipif(os.path.exists("/proc/driver/nvidia/gpus"), reason="there is a driver here")
def test_a_gpu_that_is_slower_than_the_others_is_told(box, job):
    """With our own library of the driver."""
    job(box.start_ctrun("--standalone", "--nproc-per-node=2", "--stragglers", "--no-python", ctrun.program("stopper"),
                        box.path("up"), "1", "20", env={
                            "LD_LIBRARY_PATH": str(ctrun.BUILD / "tests" / "lib" / "fake_nvml"), "FAKE_NVML_HOT": str(box.write("xid", "63"))}))
    ctrun.wait_until(lambda: "its GPU at 1200 of 1980 MHz (others 1980) (heat); Xid 63 of its GPU" in status(box).out,
                     lambda: f"it is told\n{status(box)}", 60)


def start_nodes(box, job, per_node, late, slow, *options):
    """Starts a launcher for each node, the first as group rank 0. None knows that they have the
    same clock."""
    env = {"PYTHON_EXEC": sys.executable, "PYTHONPATH": fake_torch.install(box.dir)}
    daemon, where = box.start_ctrund()
    job(daemon)
    runs, begin = [], str(time.time_ns())
    for number, count in enumerate(per_node, 1):
        runs.append(job(box.start_ctrun(
            f"--nnodes={len(per_node)}", f"--nproc-per-node={count}", f"--rdzv-endpoint={where}", "--rdzv-id=j",
            "--rdzv-backend=c10d", "--rdzv-conf=is_host=0", f"--local-addr=127.0.0.{number}", "--stragglers", *options,
            box.write("train.py", TORCH), begin, str(late), *map(str, slow), env=env)))
        if number < len(per_node):
            box.wait_event("agent_state", count=number, to="joining")
    return runs, where


@pytest.mark.parametrize("per_node, slow", [((3, 3), (3, 4, 5)), ((1, 1), (1,))],
                         ids=["all_ranks_of_one", "one_rank_each"])
def test_a_node_that_the_others_wait_for_is_named_at_group_rank_0(box, job, per_node, slow):
    """No rank of it is later than the other ranks of that node."""
    runs, where = start_nodes(box, job, per_node, 20, slow)
    event = box.wait_event("straggler_node", seconds=60)[0]
    assert event["node"] == 1 and event["rank"] in slow and 15000 < event["late_us"] < 30000 and event["steps"] >= 30, event
    assert not box.events("straggler"), box.events("straggler")
    told = [run for run in json.loads(status(box, "--json").out)["runs"] if "straggler_node" in run]
    assert len(told) == 1 and told[0]["node_rank"] == 0 and told[0]["straggler_node"]["node"] == 1, (told, runs)

    def late():
        page = urllib.request.urlopen(f"http://{where}/metrics", timeout=60).read().decode()
        found = dict(re.findall(r'^ctrun_node_late_seconds\{run="j",node="(\d)"\} (\S+)$', page, re.M))
        return {node: float(value) for node, value in found.items()} if len(found) == 2 else None
    found = ctrun.wait_until(late, "the metric of both nodes is there", 60)
    assert found["1"] > 0.01 > found["0"], found
    assert re.search(r"^  the other nodes wait for \S+, there mostly for rank \d+: \d+\.\d ms late on the average, "
                     r"\d+\.\d % of a step \(last \d+ steps\); differs in: .", status(box).out, re.M), status(box)
