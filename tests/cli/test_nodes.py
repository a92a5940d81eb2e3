# SPDX-License-Identifier: Apache-2.0
"""Nodes that join, leave and end at different times: several agents on this machine, told apart by
--local-addr, use a ctrund, so that any of them can be lost."""
import json
import os
import re
import signal
import struct

import ctrun
import launch
import pytest
from clock import Clock
from proxy import Proxy

QUICK = "is_host=0,last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=1"
HEARTBEAT = bytes([11]) + struct.pack("<I", 24)  # kind and length of its frame
ALL_REDUCE = ctrun.program("03_all_reduce")


class Meeting:
    """A ctrund, and agents that meet there."""

    def __init__(self, box):
        self.box = box
        self.daemon = box.start(ctrun.program("ctrund"), "--listen=127.0.0.1:0")
        found = ctrun.wait_until(lambda: re.search(r"127\.0\.0\.1:(\d+)",
                                                   self.daemon.out + self.daemon.err),
                                 lambda: f"ctrund tells its port\n{self.daemon}")
        self.endpoint = found.group(0)

    def start(self, number, nnodes, *words, conf=QUICK, env=None):
        """Node `number` at 127.0.0.NUMBER."""
        return self.box.start_ctrun(
            f"--nnodes={nnodes}", "--rdzv-backend=c10d", f"--rdzv-endpoint={self.endpoint}",
            "--rdzv-id=J", f"--local-addr=127.0.0.{number}", f"--rdzv-conf={conf}",
            "--shutdown-timeout=1", *words, env=env)


@pytest.fixture
def meeting(box):
    meeting = Meeting(box)
    yield meeting
    meeting.daemon.signal(signal.SIGTERM)


def start_in_order(box, meeting, numbers, nnodes, *words, env=None):
    """One after the other, so that the first is group rank 0."""
    runs = []
    for count, number in enumerate(numbers, 1):
        runs.append(meeting.start(number, nnodes, *words, env=env))
        if count < len(numbers):
            box.wait_event("agent_state", count=count, to="joining")
    return runs


# First round: writes its environment, and waits to be stopped. Later rounds: a collective of all.
ROUNDS = """#!/bin/sh
env > "$DIR/$CTRUN_GENERATION.$RANK.new"
mv "$DIR/$CTRUN_GENERATION.$RANK.new" "$DIR/$CTRUN_GENERATION.$RANK"
if [ "$CTRUN_GENERATION" = 1 ]; then sleep 60; exit; fi
exec %s
""" % ALL_REDUCE


class Rounds:
    def __init__(self, box):
        self.dir = box.path("rounds")
        self.dir.mkdir()
        self.program = box.write("rounds.sh", ROUNDS, 0o755)
        self.env = {"DIR": str(self.dir)}

    def seen(self, generation):
        """rank -> environment."""
        found = {}
        for path in self.dir.glob(f"{generation}.*"):
            if path.suffix != ".new":
                pairs = (line.partition("=") for line in path.read_text().splitlines())
                found[int(path.suffix[1:])] = {key: value for key, _, value in pairs}
        return found


@pytest.fixture
def rounds(box):
    return Rounds(box)


def masters(found):
    return {(env["MASTER_ADDR"], env["MASTER_PORT"]) for env in found.values()}


@pytest.mark.parametrize("nnodes,replacement", [("2:2", [4]), ("1:2", [])])
def test_torchrun_076_144_the_node_of_rank_0_is_lost(box, meeting, rounds, nnodes, replacement):
    runs = start_in_order(box, meeting, [2, 3], nnodes, rounds.program, env=rounds.env)
    ctrun.wait_until(lambda: len(rounds.seen(1)) == 2, "the first round")
    first = masters(rounds.seen(1))
    assert [address for address, _ in first] == ["127.0.0.2"]
    runs[0].signal(signal.SIGKILL)
    others = [meeting.start(number, nnodes, rounds.program, env=rounds.env)
              for number in replacement]
    survivors = [runs[1]] + others
    assert [run.wait() for run in survivors] == [0] * len(survivors), runs
    second = rounds.seen(2)
    assert sorted(second) == list(range(len(survivors)))
    assert len(masters(second)) == 1 and not masters(second) & first
    assert second[0]["MASTER_ADDR"] == "127.0.0.3"
    assert {env["TORCHELASTIC_RESTART_COUNT"] for env in second.values()} == {"0"}
    assert "".join(run.err for run in runs + others).count("warning: no token") == 1


def test_torchrun_144_a_newcomer_moves_the_store_for_everybody(box, meeting, rounds):
    first = meeting.start(2, "1:2", rounds.program, env=rounds.env)
    ctrun.wait_until(lambda: rounds.seen(1), "the first round")
    second = meeting.start(3, "1:2", rounds.program, env=rounds.env)
    assert [first.wait(), second.wait()] == [0, 0], (first, second)
    assert sorted(rounds.seen(2)) == [0, 1] and len(masters(rounds.seen(2))) == 1
    assert not masters(rounds.seen(1)) & masters(rounds.seen(2))


def test_torchrun_099_149_nodes_end_at_different_times(box, meeting):
    """The first node sends heartbeats while the second one trains: more of them than a node may
    miss."""
    wire = Proxy(int(meeting.endpoint.rpartition(":")[2]))
    direct, meeting.endpoint = meeting.endpoint, f"127.0.0.1:{wire.port}"
    train = ["sh", "-c", '[ "$RANK" = 0 ] || while [ ! -e go ]; do sleep 0.05; done']
    conf = QUICK.replace("attempt=1", "attempt=4")
    runs = [meeting.start(2, "2", *train, conf=conf)]
    box.wait_event("agent_state", to="joining")
    meeting.endpoint = direct
    runs.append(meeting.start(3, "2", *train, conf=conf))
    box.wait_event("agent_state", to="succeeded")
    before = wire.seen.count(HEARTBEAT)
    ctrun.wait_until(lambda: wire.seen.count(HEARTBEAT) >= before + 5, "five more heartbeats")
    box.write("go", "")
    assert [run.wait() for run in runs] == [0, 0], runs
    wire.close()
    assert len(box.events("round_started")) == 2 and not box.events("round_stopped")


def test_torchrun_074_a_run_that_is_over_takes_nobody_in(box, meeting):
    """While a spare has not left yet, the server still knows the run."""
    first = meeting.start(2, "1:1", "sh", "-c", "while [ ! -e go ]; do sleep 0.05; done",
                          conf="is_host=0,keep_alive_interval=20")
    box.wait_event("worker_started")
    spare = meeting.start(3, "1:1", "true", conf="is_host=0")
    box.wait_event("agent_state", count=2, to="joining")
    agents = {ctrun.below(spare.pid)[1]}
    for pid in agents:
        os.kill(pid, signal.SIGSTOP)
    box.write("go", "")
    assert first.wait() == 0, first
    late = meeting.start(4, "1:1", "true", conf="is_host=0")
    assert late.wait(10) == 1 and "error[E_CLOSED]" in late.err, late
    for pid in agents:
        os.kill(pid, signal.SIGCONT)
    assert spare.wait() == 0, spare


def test_torchrun_075_a_signal_leaves_the_run_open_for_a_replacement(box, meeting, rounds):
    runs = start_in_order(box, meeting, [2, 3], "2", rounds.program, env=rounds.env)
    ctrun.wait_until(lambda: len(rounds.seen(1)) == 2, "the first round")
    runs[0].signal(signal.SIGTERM)  # rank 0's node this time
    assert runs[0].wait() == 143
    third = meeting.start(4, "2", rounds.program, env=rounds.env)
    assert [runs[1].wait(), third.wait()] == [0, 0], (runs, third)
    assert sorted(rounds.seen(2)) == [0, 1]


def test_torchrun_154_an_interrupt_before_the_first_round_harms_nobody_else(box, meeting, dump):
    first = meeting.start(2, "2", dump.program, env=dump.env)
    box.wait_event("agent_state", to="joining")
    first.signal(signal.SIGINT)
    assert first.wait() == 130
    runs = [meeting.start(number, "2", dump.program, env=dump.env) for number in (3, 4)]
    assert [run.wait() for run in runs] == [0, 0], runs
    assert sorted(dump.environments()) == [0, 1]


def test_torchrun_128_143_twenty_restarts_meet_nothing_of_the_attempt_before(box):
    worker = box.write("again.sh", f"#!/bin/sh\n{ALL_REDUCE} || exit 99\n"
                       '[ "$TORCHELASTIC_RESTART_COUNT" = 20 ] || exit 3\n', 0o755)
    run = box.ctrun("--nproc-per-node=2", "--max-restarts=20", "--min-uptime=0", worker)
    assert run.code == 0, run
    assert len(box.events("round_started")) == 21
    assert not box.events("worker_ended", code=99)


# ---- PyTorch of 2.14 and later ----------------------------------------------------------------

@pytest.fixture
def torch():
    python = os.environ.get("CTRUN_TEST_TORCH")
    if not python:
        pytest.skip("CTRUN_TEST_TORCH names no python with a newer torch")
    return python


OTHER_STORE = """import os, torch.distributed as dist
rank, port = int(os.environ["RANK"]), os.environ["OTHER_PORT"]
dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}?rank={rank}&world_size=2")
values = [None, None]
dist.all_gather_object(values, rank)
assert values == [0, 1], values
"""

LATE_CLIENT = """import os, torch.distributed as dist
store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
store.set(f"debug/{os.environ['RANK']}", "here")
store.wait(["debug/0", "debug/1"])
keys = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]),
                     is_master=False).list_keys()
assert {"debug/0", "debug/1"} <= {key.lstrip("/") for key in keys}, keys
"""


def test_torchrun_155_a_worker_may_host_a_store_of_its_own(box, torch):
    run = box.ctrun("--nproc-per-node=2", box.write("other.py", OTHER_STORE), seconds=120,
                    env={"PYTHON_EXEC": torch, "OTHER_PORT": str(launch.free_port())})
    assert run.code == 0, run


def test_torchrun_156_a_late_client_without_world_size_is_served(box, torch):
    run = box.ctrun("--nproc-per-node=2", box.write("late.py", LATE_CLIENT), seconds=120,
                    env={"PYTHON_EXEC": torch})
    assert run.code == 0, run


def start_daemon(box, port):
    """A ctrund with a journal; it may be started again."""
    daemon = box.start(ctrun.program("ctrund"), f"--listen=127.0.0.1:{port}", "--journal", box.path(""))
    ctrun.wait_until(lambda: "\n" in daemon.out, lambda: str(daemon))
    return daemon


@pytest.fixture
def stopped_daemon(box):
    """The port of a ctrund that stopped when a node of two was waiting there, that node, whose search has begun, and its clock."""
    port, clock = ctrun.free_port(), Clock(box)
    daemon = start_daemon(box, port)
    run = box.start_ctrun(*at_daemon(port, 1), "true", env=clock.env)
    box.wait_event("agent_state", to="joining")
    daemon.signal(signal.SIGTERM)
    daemon.wait()
    ctrun.wait_until(lambda: "no worker has started: looking for it for up to " in run.err, lambda: str(run))
    return port, run, clock


def at_daemon(port, number):
    return ["--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=J", f"--local-addr=127.0.0.{number}",
            "--rdzv-conf=is_host=0,join_timeout=600,keep_alive_interval=1,keep_alive_max_attempt=1"]


def test_a_node_that_waits_for_its_first_round_waits_for_a_ctrund_that_is_stopped(box, stopped_daemon):
    port, run, _ = stopped_daemon
    daemon = start_daemon(box, port)
    other = box.start_ctrun(*at_daemon(port, 2), "true")
    assert run.wait() == other.wait() == 0, run
    assert "the rendezvous is back: rejoining\n" in run.err, run
    daemon.signal(signal.SIGTERM)
    daemon.wait()


def test_a_node_waits_for_a_ctrund_until_its_join_timeout(stopped_daemon):
    _, run, clock = stopped_daemon
    clock.advance(500)
    ctrun.wait_until(lambda: re.search(r"ctrun: waiting 5\d\d s for the rendezvous at ", run.err), lambda: str(run))
    assert run.code is None, run
    clock.advance(100)
    assert run.wait() == 75, run
    assert "error[E_LEADER_LOST]: the rendezvous on " in run.err and "\n  do         : start again while ctrund runs" in run.err, run


def test_a_node_that_waits_for_a_stopped_ctrund_ends_no_sooner_because_another_run_has_its_port(box, stopped_daemon):
    port, run, _ = stopped_daemon
    refused = len(box.events("link_state", why="connected"))
    other = box.start_ctrun("--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=K", "true")
    box.wait_event("link_state", refused + 3, why="connected")  # one of them by the other run's own agent
    other.signal(signal.SIGTERM)
    other.wait()
    daemon = start_daemon(box, port)
    other = box.start_ctrun(*at_daemon(port, 2), "true")
    assert run.wait() == other.wait() == 0, run
    daemon.signal(signal.SIGTERM)
    daemon.wait()


@pytest.mark.parametrize("served, do", [
    (True, "start again while ctrund runs; with ctrund --journal workers keep running if ctrund is back within "),
    (False, "start again; with --ha or --rdzv-backend=etcd a run survives the loss of any node; with ctrund on another host ")])
def test_who_has_lost_a_ctrund_is_not_advised_to_use_one(box, served, do):
    port = ctrun.free_port()
    daemon = start_daemon(box, port) if served else box.start_ctrun(*at_daemon(port, 2), "--rdzv-conf=is_host=1", "sleep", "600")
    run = box.start_ctrun(*at_daemon(port, 1), *(["--nnodes=1"] if served else []), "sleep", "600")
    box.wait_workers(1 if served else 2)
    pids = [] if served else ctrun.below(daemon.process.pid)
    ctrun.kill_at_once(daemon.process.pid, *pids)
    daemon.wait()
    assert run.wait() == 75, run
    assert f"\n  do         : {do}" in run.err, run


def test_a_round_that_waits_for_workers_from_before_a_restart_of_ctrund_says_so(box):
    """The workers that the server knew may live for 10 minutes: nothing else starts meanwhile."""
    port = ctrun.free_port()

    def status(*words):
        return box.run(ctrun.program("ctrunctl"), "status", *words).out

    daemon = start_daemon(box, port)
    run = box.start_ctrun("--nnodes=1", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=J",
                          "--rdzv-conf=is_host=0,keep_alive_interval=60,keep_alive_max_attempt=10",
                          "--max-restarts=1", "sleep", "600")
    box.wait_workers(1)
    daemon.signal(signal.SIGKILL)
    daemon.wait()
    daemon = start_daemon(box, port)
    box.wait_event("link_state", count=2, to="up")
    assert box.run(ctrun.program("ctrunctl"), "restart").code == 0
    said = ctrun.wait_until(lambda: re.search(r"enough nodes have joined \(1\); workers start in .*", run.err), lambda: str(run)).group()
    assert said.endswith("because earlier workers of this run may still run"), said
    assert re.search(r"enough nodes have joined \(1\); workers start in up to [\d.]+ s", status()), status()
    [now] = json.loads(status("--json"))["runs"]
    assert now["waiting"]["joined"] == 1 and now["waiting"]["held_ms"] > 0, now
    for one in (run, daemon):
        one.signal(signal.SIGTERM)
        one.wait()


def test_a_first_start_says_that_it_waits_for_what_another_server_may_have_started(box):
    """The last call is over long before."""
    run = box.start_ctrun("--nnodes=1:2", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{ctrun.free_port()}",
                          "--rdzv-id=J", "--rdzv-conf=last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=1",
                          "true")
    assert run.wait() == 0
    assert len(re.findall(r"enough nodes have joined \(1\); workers start in up to [1-3]\.\d s, because the rendezvous server was "
                          r"started a short time ago and cannot know yet that no earlier workers of this run still run$",
                          run.err, re.M)) == 1, run


def test_a_node_that_finds_a_ctrund_where_it_may_serve_does_not_call_it_a_ctrun(meeting):
    run = meeting.start(1, "1", "--verbose", "true", conf="last_call_timeout=1")
    assert run.wait() == 0 and "served by another process on this machine, a ctrun or a ctrund" in run.err, run
    assert "refused" not in meeting.daemon.err, meeting.daemon  # the probe for a ctrun is none of its agents


@pytest.mark.parametrize("word, code, why", [("./gone.py", 127, "./gone.py: no such file (in "),
                                             ("./folder", 126, "./folder: is a folder without __main__.py")])
def test_a_node_without_the_program_ends_all_nodes_for_that_reason(box, meeting, word, code, why):
    os.mkdir(f"{box.dir}/folder")
    healthy = meeting.start(2, 2, "--max-restarts=3", "sleep", "60")
    box.wait_event("agent_state", count=1, to="joining")
    broken = meeting.start(3, 2, "--max-restarts=3", word)
    assert [healthy.wait(), broken.wait()] == [code, code], (healthy, broken)
    for run in (healthy, broken):
        assert re.search(rf"^ctrun: error\[E_EXEC\]: rank 1 \(\S+\) could not be started: {re.escape(why)}", run.err, re.M), run
        assert "likely" not in run.err and len(box.events("round_started")) == 2, run
    assert broken.err.startswith(f"ctrun: warning[E_EXEC]: {why}") and "this node joins the run" in broken.err, broken


def test_a_node_without_the_program_does_not_join_a_run_that_may_do_without_it(box, meeting):
    run = meeting.start(2, "1:2", "./gone.py")
    assert run.wait() == 127 and run.err.startswith("ctrun: error[E_EXEC]: ./gone.py: no such file"), run
    assert not box.events("agent_state"), run


def test_a_node_without_the_program_that_waits_in_vain_ends_with_127(box, meeting):
    run = meeting.start(2, 2, "--log-dir=D", "./gone.py", conf=f"{QUICK},join_timeout=1")
    assert run.wait() == 127 and "error[E_JOIN_TIMEOUT]" in run.err, run
    assert run.err.splitlines()[-1].startswith("ctrun: error[E_EXEC]: ./gone.py: no such file"), run
    [path] = box.path("D").rglob("summary.json")
    summary = json.loads(path.read_text())
    assert (summary["exit_code"], summary["error"]) == (127, "E_EXEC"), summary


def test_a_node_without_the_program_takes_part_once_it_has_another(box, meeting):
    first = meeting.start(2, 2, "--auth=none", "./gone.py")
    box.wait_event("agent_state", to="joining")
    box.write("there.py", "print('ran', flush=True)")
    answer = box.run(ctrun.program("ctrunctl"), "reload", f"--run={first.pid}", "--", "there.py")
    assert answer.code == 0, answer
    second = meeting.start(3, 2, "--auth=none", "./gone.py")
    assert [first.wait(), second.wait()] == [0, 0] and "ran" in first.out, (first, second)


def test_a_node_without_the_program_of_a_role_ends_at_once(box, meeting):
    run = meeting.start(2, 2, "--role=a=1:true", "--role=b=1:./gone")
    assert run.wait() == 127 and run.err.startswith("ctrun: error[E_EXEC]: --role=b: ./gone: no such file"), run
