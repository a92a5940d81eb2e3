# SPDX-License-Identifier: Apache-2.0
"""Several launchers of one job on this machine: which one serves, which ones wait, and their
ranks."""
import json
import os
import re
import signal
import socket
import struct

import ctrun
import launch
import pytest
import schema
from clock import Clock


@pytest.fixture
def endpoint():
    return f"localhost:{launch.free_port()}"


def codes(runs):
    return [run.wait() for run in runs]


def test_torchrun_058_two_plain_runs_at_once(box, dump):
    runs = [box.start_ctrun("sh", "-c", f"touch {i}; while [ ! -e {1 - i} ]; do sleep 0.05; done")
            for i in (0, 1)]
    assert codes(runs) == [0, 0]


def test_torchrun_059_049_master_port_is_used(box, dump):
    port = launch.free_port()
    assert box.ctrun(f"--master-port={port}", dump.program, env=dump.env).code == 0
    env = dump.environments()[0]
    assert (env["MASTER_ADDR"], env["MASTER_PORT"]) == ("127.0.0.1", str(port))


@pytest.mark.parametrize("words", [["--master-port={port}"],
                                   ["--nnodes=2", "--rdzv-endpoint=localhost:{port}"],
                                   ["--rdzv-backend=c10d", "--rdzv-conf=is_host=1",
                                    "--rdzv-endpoint=localhost:{port}"]])
def test_torchrun_059_065_a_taken_port_is_an_error_that_names_its_owner(box, words):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        port = s.getsockname()[1]
        run = box.ctrun(*(word.format(port=port) for word in words), "true")
    assert run.code == 77, run
    lines = run.err.splitlines()
    assert lines[0].startswith(f"ctrun: error[E_PORT_BUSY]: port {port} on ")
    assert any(line.startswith("  by         : pid ") for line in lines)
    assert "  is it ours : no rendezvous server answers there" in lines, run
    assert not box.events("worker_started")


def test_a_port_that_is_taken_though_nobody_listens_there_is_blamed_on_nobody(box):
    with socket.socket() as s:  # as the port of a connection is
        s.bind(("127.0.0.1", 0))
        run = box.ctrun(f"--master-port={s.getsockname()[1]}", "true")
    assert run.code == 77 and "\n  by         : no process listens now: a connection uses the port" in run.err, run


def test_a_port_that_another_run_of_the_same_name_has_is_not_reported_as_another_programs(box, endpoint):
    """Both have the default run id."""
    words = ["--nnodes=2", "--rdzv-backend=c10d", "--rdzv-conf=is_host=1", f"--rdzv-endpoint={endpoint}"]
    first = box.start_ctrun(*words, "true")
    box.wait_event("agent_state", to="joining")
    run = box.ctrun(*words, "true")
    assert run.code == 77 and "E_PORT_BUSY" in run.err, run
    assert "  is it ours : perhaps: a rendezvous server answers there" in run.err, run
    first.signal(signal.SIGTERM)
    first.wait()


def test_two_nodes_of_one_rank_are_told_of_their_option(box, endpoint):
    """Both nodes have the same command line, which is right without the static backend."""
    words = ["--nnodes=2", "--node-rank=0", "--master-addr=127.0.0.1", f"--master-port={endpoint.split(':')[-1]}"]
    first = box.start_ctrun(*words, "true")
    box.wait_event("agent_state", to="joining")
    run = box.ctrun(*words, "true")
    assert run.code == 77 and "do         : give each node of one job its own --node-rank; else use another port" in run.err, run
    first.signal(signal.SIGTERM)
    first.wait()


@pytest.mark.parametrize("words, instead", [
    (["--node-rank=0", "--master-addr=127.0.0.1", "--master-port={port}"], " in place of --node-rank and --master-addr"),
    (["--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-conf=is_host=1"], "")])
def test_who_would_serve_where_a_ctrund_does_is_told_how_to_meet_there(box, words, instead):
    daemon, endpoint = box.start_ctrund()
    run = box.ctrun("--nnodes=2", *(word.format(port=endpoint.split(":")[-1]) for word in words), "true")
    assert run.code == 77, run
    assert (f"\n  do         : to meet at that ctrund give --rdzv-backend=c10d --rdzv-endpoint={endpoint} --rdzv-conf=is_host=0"
            f"{instead}\n") in run.err, run
    daemon.signal(signal.SIGTERM)
    daemon.wait()


def test_who_was_refused_and_who_never_came_is_a_table(box, endpoint):
    clock = Clock(box)
    for name in ("ours", "theirs"):
        box.write(name, name * 10, 0o600)
    words = ["--nnodes=3", f"--rdzv-endpoint={endpoint}", "--rdzv-id=r"]
    first = box.start_ctrun(*words, "--rdzv-token-file=ours", "--rdzv-conf=join_timeout=600", "true", env=clock.env)
    box.wait_event("agent_state", to="joining")
    other = box.ctrun(*words, "--rdzv-token-file=theirs", "--rdzv-conf=is_host=0", "true")
    assert other.code == 77 and "E_AUTH" in other.err, other
    named = box.ctrun("--nnodes=3", f"--rdzv-endpoint={endpoint}", "--rdzv-id=another",
                      "--rdzv-token-file=ours", "--rdzv-conf=is_host=0", "true")
    assert named.code == 77 and "E_WRONG_RUN" in named.err, named
    clock.advance(600)
    assert first.wait() == 75
    at = first.err.index("ctrun: error[E_JOIN_TIMEOUT]: 1 of 3 nodes joined in 600.0 s")
    table = first.err[at:].splitlines()
    assert table[1].startswith("  joined     : "), first
    assert re.fullmatch(r"  missing    : .*: last contact [\d.]+ s ago: refused with E_WRONG_RUN: it has another run id",
                        table[2]), first
    assert re.fullmatch(r" {15}127\.0\.0\.1 \(calls itself .*\): last contact [\d.]+ s ago: refused "
                        r"with E_AUTH: its user, token or proof was refused", table[3]), first
    assert table[4].startswith("  do         : "), first


@pytest.fixture
def full(box):
    """The endpoint of a ctrund whose connections are taken: three nodes wait there for a fourth."""
    daemon = box.start(ctrun.program("ctrund"), "--listen=127.0.0.1:0", "--max-connections=4")
    found = ctrun.wait_until(lambda: re.search(r"^listening on (\S+)$", daemon.out, re.M), lambda: f"it listens\n{daemon}")
    holders = [box.start_ctrun("--nnodes=4", f"--rdzv-endpoint={found[1]}", "--rdzv-id=first", "--no-python", "true")
               for _ in range(3)]
    box.wait_event("agent_state", to="joining", count=3)
    yield found[1], holders
    for run in holders:
        run.signal(signal.SIGTERM)
        run.wait()
    daemon.signal(signal.SIGTERM)
    daemon.wait()


def test_a_node_waits_for_a_place_at_a_full_server(box, full):
    """On the host of the server, too, where it finds the port taken."""
    endpoint, holders = full
    late = box.start_ctrun("--nnodes=1:2", f"--rdzv-endpoint={endpoint}", "--rdzv-id=second",
                           "--rdzv-conf=last_call_timeout=1", "--no-python", "true")
    ctrun.wait_until(lambda: "the rendezvous server is full (4 connections); raise its limit" in late.err,
                     lambda: f"it says why it waits\n{late}")
    holders[0].signal(signal.SIGTERM)
    assert late.wait() == 0, late


def test_a_node_that_finds_no_place_until_its_join_timeout_may_be_started_again(box, full):
    late = box.ctrun("--nnodes=1:2", f"--rdzv-endpoint={full[0]}", "--rdzv-id=second", "--rdzv-conf=join_timeout=2",
                     "--no-python", "true")
    assert late.code == 75, late
    assert re.match(r"ctrun: error\[E_RESOURCES\]: \S+ finds no room at the rendezvous at 127\.0\.0\.1:\d+\n"
                    r"  last try   : 127\.0\.0\.1:\d+: the rendezvous server is full \(4 connections\); .*\n"
                    r"  do         : raise that limit, ", late.err), late


def test_a_host_that_is_lost_and_soon_back_is_named(box, endpoint):
    """After a power cut the same command starts soon: without the name one would see only its
    return."""
    words = ["--nnodes=2:2", "--nproc-per-node=2", f"--rdzv-endpoint={endpoint}", "--rdzv-id=r"]
    script = f"touch {box.path('up')}$RANK; while :; do sleep 0.05; done"
    host = box.start_ctrun(*words, "sh", "-c", script)
    box.wait_event("agent_state", to="joining")
    other = box.start_ctrun(*words, "--rdzv-conf=is_host=0", "sh", "-c", script)
    ctrun.wait_until(lambda: all(box.path(f"up{rank}").exists() for rank in range(4)), lambda: f"all up\n{other}")
    agent = next(ctrun.parent_of(pid) for pid in box.workers().values() if ctrun.environment(pid)["GROUP_RANK"] == "0")
    ctrun.kill_at_once(host.pid, agent)
    ctrun.wait_until(lambda: not ctrun.is_alive(agent), "its port is free")
    again = box.start_ctrun(*words, "sh", "-c", script)
    told = r"(lost the rendezvous|E_LEADER_LOST\]): the .*127\.0\.0\.1.*; ranks 0-1 ran on \S+"
    ctrun.wait_until(lambda: re.search(told, other.err), lambda: f"the lost node is named\n{other}")
    assert "continues without this node" not in other.err, other
    for run in (again, other):  # `other` continues with `again` when that came in time
        if run.code is None:
            run.signal(signal.SIGTERM)
    codes([again, other, host])


def test_a_node_that_loses_the_server_tells_that_its_own_workers_had_succeeded(box, endpoint):
    """Its exit code cannot tell: whether the run succeeds depends on the others."""
    words = ["--nnodes=2", f"--rdzv-endpoint={endpoint}", "--rdzv-id=r", "sh", "-c",
             "[ $GROUP_RANK = 1 ] || while :; do sleep 0.05; done"]
    host = box.start_ctrun(*words)
    box.wait_event("agent_state", to="joining")
    other = box.start_ctrun("--rdzv-conf=is_host=0", *words)
    agent = box.wait_event("worker_started", rank=0)[0]["pid"]
    box.wait_event("agent_state", to="succeeded")
    ctrun.kill_at_once(host.pid, agent)
    assert other.wait() == 75, other
    assert re.search(r"E_LEADER_LOST\]: .*; the workers of this node had succeeded before", other.err), other
    host.wait()


def test_a_node_tells_why_the_node_of_the_server_has_left(box, endpoint):
    """The refused connection is only a consequence. No worker keeps running meanwhile: all were stopped."""
    words = ["--nnodes=2", f"--rdzv-endpoint={endpoint}", "--rdzv-id=r"]
    host = box.start_ctrun(*words, "sh", "-c", "while :; do sleep 0.05; done")
    box.wait_event("agent_state", to="joining")
    other = box.start_ctrun(*words, "--rdzv-conf=is_host=0", "sh", "-c",
                            "trap '' TERM; touch up; while :; do sleep 0.05; done")
    ctrun.wait_until(lambda: box.path("up").exists(), lambda: f"its worker is up\n{other}")
    host.signal(signal.SIGTERM)
    assert codes([host, other]) == [143, 75], other
    assert re.search(r"E_LEADER_LOST\]: the rendezvous on (\S+) is gone: .*; \1 has left: SIGTERM from pid ", other.err), other
    assert "; reconnecting for up to " in other.err and "keep running" not in other.err, other


def test_a_failure_that_no_round_followed_is_told_with_the_reason_on_every_node(box, endpoint):
    """A node leaves after the failure: the exit code is not that of the first cause."""
    clock = Clock(box)
    clock.advance(2 * 9 * 600)  # the machine was started longer ago than workers of an earlier run may live
    words = ["--nnodes=3", f"--rdzv-endpoint={endpoint}", "--rdzv-id=r", "--max-restarts=1",
             "--rdzv-conf=join_timeout=600,keep_alive_interval=600,keep_alive_max_attempt=9"]
    first = box.start_ctrun(*words, "sh", "-c", "while [ ! -e up ]; do sleep 0.05; done; exit 3", env=clock.env)
    box.wait_event("agent_state", to="joining")
    words[-1] += ",is_host=0"
    calm = box.start_ctrun(*words, "sh", "-c", "while :; do sleep 0.05; done", env=clock.env)
    gone = box.start_ctrun(*words, "sh", "-c", "trap '' TERM; touch up; while :; do sleep 0.05; done", env=clock.env)
    ctrun.wait_until(lambda: "restart 1/1" in gone.err, lambda: f"a rank has failed\n{gone}")
    for _ in range(3):
        gone.signal(signal.SIGINT)
    assert gone.wait() == 130
    clock.advance(600)
    assert codes([first, calm]) == [75, 75]
    for run in (first, calm):
        assert re.search(r"error\[E_EXIT\]: rank \d \(\S+, pid \d+\) exited with 3, ", run.err), run
        assert "\n  after it   : no new round began: 2 of 3 nodes joined in 600.0 s (RendezvousTimeoutError)\n  joined     : " in run.err, run
        assert "\n  missing    : " in run.err, run


def test_ctrl_c_while_a_name_is_looked_up_is_no_error(box):
    run = box.start_ctrun("--nnodes=2", "--rdzv-endpoint=nosuch.invalid:29400", "true")
    ctrun.wait_until(lambda: "waiting for DNS" in run.err, lambda: f"it waits\n{run}")
    run.signal(signal.SIGINT)
    assert run.wait() == 130
    assert run.err.splitlines()[-1] == "ctrun: stopped by SIGINT (2); no process of the run is left on this node"


def test_torchrun_060_048_static_two_nodes(box, dump):
    port = launch.free_port()
    runs = [box.start_ctrun("--nnodes=2", f"--node-rank={rank}", "--nproc-per-node=2",
                            "--master-addr=127.0.0.1", f"--master-port={port}", dump.program,
                            env=dump.env) for rank in (1, 0)]
    assert codes(runs) == [0, 0], runs
    found = dump.environments()
    assert [found[rank]["GROUP_RANK"] for rank in range(4)] == ["0", "0", "1", "1"]
    assert {(e["MASTER_ADDR"], e["MASTER_PORT"]) for e in found.values()} == {
        ("127.0.0.1", str(port))}


def test_torchrun_061_static_waits_for_max(box, dump):
    port = launch.free_port()
    first = box.start_ctrun("--nnodes=1:2", "--rdzv-backend=static", "--node-rank=0",
                            f"--master-port={port}", dump.program, env=dump.env)
    box.wait_event("agent_state", to="joining")
    assert first.code is None and not dump.environments()
    second = box.start_ctrun("--nnodes=1:2", "--rdzv-backend=static", "--node-rank=1",
                             f"--master-port={port}", dump.program, env=dump.env)
    assert codes([first, second]) == [0, 0]
    assert sorted(dump.environments()) == [0, 1]


def test_torchrun_043_roles_rank_as_in_the_specification(box, dump):
    port = launch.free_port()
    runs = [box.start_ctrun("--nnodes=3", f"--node-rank={node}", f"--role={role}",
                            f"--nproc-per-node={count}", f"--master-port={port}", dump.program,
                            env=dump.env)
            for node, role, count in ((0, "a", 2), (1, "b", 3), (2, "a", 1))]
    assert codes(runs) == [0, 0, 0], runs
    found = dump.environments()
    assert sorted(found) == list(range(6))
    assert [found[r]["ROLE_RANK"] for r in range(6)] == ["0", "1", "0", "1", "2", "2"]
    assert {e["ROLE_WORLD_SIZE"] for e in found.values()} == {"3"}
    assert [found[r]["ROLE_NAME"] for r in range(6)] == ["a", "a", "b", "b", "b", "a"]


def test_torchrun_039_040_041_042_064_066_078_two_agents_one_world(box, dump, endpoint):
    """Both own the endpoint's address; one serves, the other is its client."""
    runs = [box.start_ctrun("--nnodes=2", f"--nproc-per-node={count}",
                            f"--rdzv-endpoint={endpoint}", "--rdzv-id=J", dump.program,
                            env=dump.env) for count in (1, 3)]
    assert codes(runs) == [0, 0], runs
    found = dump.environments()
    assert sorted(found) == [0, 1, 2, 3]
    groups = {}
    for rank, env in found.items():
        assert env["WORLD_SIZE"] == "4" and env["GROUP_WORLD_SIZE"] == "2"
        groups.setdefault(env["GROUP_RANK"], set()).add(rank - int(env["LOCAL_RANK"]))
        assert int(env["LOCAL_RANK"]) in range(int(env["LOCAL_WORLD_SIZE"]))
        assert env["TORCHELASTIC_RUN_ID"] == "J"
    assert sorted(groups) == ["0", "1"] and all(len(bases) == 1 for bases in groups.values())
    assert len({(e["MASTER_ADDR"], e["MASTER_PORT"]) for e in found.values()}) == 1


def test_torchrun_067_a_range_starts_at_once_when_full(box, dump, endpoint):
    runs = [box.start_ctrun("--nnodes=1:2", f"--rdzv-endpoint={endpoint}",
                            "--rdzv-conf=last_call_timeout=500", dump.program, env=dump.env)
            for _ in range(2)]
    assert codes(runs) == [0, 0], runs
    assert len(dump.environments()) == 2


def test_torchrun_068_a_range_starts_after_the_last_call(box, dump, endpoint):
    run = box.ctrun("--nnodes=1:2", f"--rdzv-endpoint={endpoint}",
                    "--rdzv-conf=last_call_timeout=1", dump.program, env=dump.env)
    assert run.code == 0 and dump.environments()[0]["GROUP_WORLD_SIZE"] == "1"


def test_torchrun_069_too_few_nodes_end_with_a_timeout(box, endpoint):
    run = box.ctrun("--nnodes=2", f"--rdzv-endpoint={endpoint}", "--rdzv-conf=join_timeout=1",
                    "true", env={"TORCHELASTIC_ERROR_FILE": str(box.path("own"))})
    assert run.code == 75, run
    first, second = run.err.splitlines()[:2]
    assert first.startswith("ctrun: run 'none': 1 of 2 nodes have joined; they meet at localhost ")
    assert second.startswith("ctrun: error[E_JOIN_TIMEOUT]: 1 of 2 nodes joined")
    assert "RendezvousTimeoutError" in run.err
    assert re.search("likely +: the rendezvous address 'localhost' is loopback", run.err), run
    said = json.loads(box.path("own").read_text())["message"]["message"]
    assert said == "RendezvousTimeoutError: 1 of 2 nodes joined in 1.0 s", said


def test_torchrun_070_agents_start_in_any_order(box, dump, endpoint):
    client = box.start_ctrun("--nnodes=2", f"--rdzv-endpoint={endpoint}", "--rdzv-conf=is_host=0",
                             dump.program, env=dump.env)
    box.wait_event("link_state", to="connecting")
    host = box.start_ctrun("--nnodes=2", f"--rdzv-endpoint={endpoint}", dump.program, env=dump.env)
    assert codes([client, host]) == [0, 0], [client, host]


def test_torchrun_071_158_a_newcomer_is_taken_in_without_using_a_restart(box, dump, endpoint):
    box.write("stay.sh", '#!/bin/sh\n"$DUMP"\n[ "$WORLD_SIZE" = 2 ] && exit 0\nsleep 60\n', 0o755)
    env = {**dump.env, "DUMP": dump.program}
    words = ["--nnodes=1:2", f"--rdzv-endpoint={endpoint}", "--rdzv-conf=last_call_timeout=1",
             "--shutdown-timeout=5", "stay.sh"]
    first = box.start_ctrun(*words, env=env)
    ctrun.wait_until(lambda: dump.environments(), "the first round")
    second = box.start_ctrun(*words, env=env)
    assert codes([first, second]) == [0, 0], [first, second]
    found = dump.environments()
    assert sorted(found) == [0, 1]
    assert {e["TORCHELASTIC_RESTART_COUNT"] for e in found.values()} == {"0"}
    assert len({(e["MASTER_ADDR"], e["MASTER_PORT"]) for e in found.values()}) == 1


def test_torchrun_087_a_newcomer_leaves_the_restarts_as_they_were(box, endpoint):
    box.write("once.sh", '#!/bin/sh\n[ "$WORLD_SIZE" = 2 ] || exec sleep 60\n'
              '[ "$TORCHELASTIC_RESTART_COUNT.$RANK" = 0.1 ] && exit 3\nexit 0\n', 0o755)
    words = ["--nnodes=1:2", f"--rdzv-endpoint={endpoint}", "--rdzv-conf=last_call_timeout=1",
             "--shutdown-timeout=5", "--max-restarts=1", "once.sh"]
    first = box.start_ctrun(*words)
    box.wait_event("worker_started")
    second = box.start_ctrun(*words)
    assert codes([first, second]) == [0, 0], [first, second]
    rounds = {e["generation"]: e["restart_count"] for e in box.events("round_started")}
    assert rounds == {1: 0, 2: 0, 3: 1}


def run_with_spare(box, endpoint, *words):
    words = ["--nnodes=1:1", "--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}", "--log-dir=logs", *words]
    first = box.start_ctrun(*words, "sh", "-c", "while [ ! -e go ]; do sleep 0.05; done")
    box.wait_event("worker_started")
    spare = box.start_ctrun(*words, "sh", "-c", "exit 9")
    box.wait_event("agent_state", count=2, to="joining")
    box.write("go", "")
    assert first.wait() == 0 and "spare" not in first.err, first
    code = spare.wait()
    assert len(box.events("worker_started")) == 1
    ends = [json.loads(path.read_text()) for path in box.path("logs").glob("*/summary.json")]
    assert sorted(end["exit_code"] for end in ends) == [0, code], ends
    return spare, next((end for end in ends if end["exit_code"]), None)


def test_torchrun_072_073_157_a_spare_node_waits_and_ends_with_0(box, endpoint):
    spare, _ = run_with_spare(box, endpoint, "--rdzv-id=J")
    assert spare.code == 0, spare
    assert spare.err.endswith("ctrun: the run has succeeded without this node, a spare: it started no workers\n")


def test_a_spare_without_a_run_id_may_be_another_job_and_does_not_end_with_0(box, endpoint):
    spare, end = run_with_spare(box, endpoint)
    assert spare.code == 75, spare
    assert len(re.findall(r"error\[", spare.err)) == 1 and "without this node, a spare: it started no workers" in spare.err
    assert spare.err.endswith("a job of its own needs its own --rdzv-id; a spare needs the run's\n"), spare
    assert end["error"] == "E_SPARE", end


def test_every_event_of_agents_and_guards_has_the_run_and_the_machine(box, endpoint):
    runs = [box.start_ctrun("--nnodes=2", f"--rdzv-endpoint={endpoint}", "--rdzv-id=J", "true") for _ in range(2)]
    assert codes(runs) == [0, 0], runs
    found = box.events()
    assert {"worker_started", "agent_state", "round_changed", "guard_ended"} <= {event["event"] for event in found}
    assert {(event.get("run_id"), event.get("host")) for event in found} == {("J", os.uname().nodename)}, found
    schema.check_events(box)


def test_torchrun_086_098_a_failure_on_one_node_restarts_both(box, dump, endpoint):
    box.write("flaky.sh", '#!/bin/sh\n"$DUMP"\n'
              'if [ "$TORCHELASTIC_RESTART_COUNT" = 1 ]; then exit 0; fi\n'
              'if [ "$RANK" = 1 ]; then exit 6; fi\nsleep 60\n', 0o755)
    runs = [box.start_ctrun("--nnodes=2", "--max-restarts=1", f"--rdzv-endpoint={endpoint}",
                            "flaky.sh", env={**dump.env, "DUMP": dump.program})
            for _ in range(2)]
    assert codes(runs) == [0, 0], runs
    assert sorted(dump.environments(1)) == [0, 1]
    for run in runs:
        assert "restart 1/1: rank 1 on " in run.err


def test_a_failure_without_restarts_ends_both_nodes_alike(box, endpoint):
    runs = [box.start_ctrun("--nnodes=2", f"--rdzv-endpoint={endpoint}", "sh", "-c",
                            'if [ "$RANK" = 1 ]; then exit 6; fi; sleep 60') for _ in range(2)]
    assert codes(runs) == [6, 6], runs
    for run in runs:
        assert "ctrun: error[E_EXIT]: rank 1 (" in run.err


def test_torchrun_075_after_a_signal_a_replacement_may_join(box, dump, endpoint):
    box.write("stay.sh", '#!/bin/sh\n"$DUMP"\n[ -e finish ] && exit 0\nsleep 60\n', 0o755)
    words = ["--nnodes=2", f"--rdzv-endpoint={endpoint}", "stay.sh"]
    env = {**dump.env, "DUMP": dump.program}
    host = box.start_ctrun(*words, env=env)
    box.wait_event("agent_state", to="joining")
    other = box.start_ctrun(*words, env=env)
    ctrun.wait_until(lambda: len(dump.environments()) == 2, "the first round")
    other.signal(signal.SIGTERM)
    assert other.wait() == 143
    box.write("finish", "")
    replacement = box.start_ctrun(*words, env=env)
    assert codes([host, replacement]) == [0, 0], [host, replacement]


def test_torchrun_077_a_lost_node_is_noticed_and_the_rest_goes_on(box, dump, endpoint):
    box.write("stay.sh", '#!/bin/sh\n"$DUMP"\n[ "$WORLD_SIZE" = 1 ] && exit 0\nsleep 60\n', 0o755)
    words = ["--nnodes=1:2", f"--rdzv-endpoint={endpoint}", "stay.sh"]
    env = {**dump.env, "DUMP": dump.program}
    host = box.start_ctrun(*words, env=env)
    box.wait_event("agent_state", to="joining")
    other = box.start_ctrun(*words, env=env)
    ctrun.wait_until(lambda: len(dump.environments()) == 2, "the first round")
    other.signal(signal.SIGKILL)
    assert host.wait(30) == 0, host


def test_torchrun_079_local_addr_is_what_others_see(box, dump):
    run = box.ctrun("--local-addr=127.0.0.5", dump.program, env=dump.env)
    assert run.code == 0 and dump.environments()[0]["MASTER_ADDR"] == "127.0.0.5"


def test_torchrun_080_another_run_at_the_endpoint_is_refused_by_name(box, endpoint):
    first = box.start_ctrun("--nnodes=2", f"--rdzv-endpoint={endpoint}", "--rdzv-id=exp-a", "true")
    box.wait_event("agent_state", to="joining")
    other = box.ctrun("--nnodes=2", f"--rdzv-endpoint={endpoint}", "--rdzv-id=exp-b", "true")
    assert other.code == 77, other
    assert "error[E_WRONG_RUN]" in other.err
    assert "belongs to run 'exp-a' of u" in other.err and "(1/2 nodes, up " in other.err
    assert "you are run 'exp-b'" in other.err
    first.signal(signal.SIGTERM)
    assert first.wait() == 143


@pytest.mark.parametrize("words", [["--nnodes=1:2"], ["--nnodes=2", "--max-restarts=3"]])
def test_a_node_that_was_started_otherwise_is_refused_with_what_to_compare(box, endpoint, words):
    first = box.start_ctrun("--nnodes=2", f"--rdzv-endpoint={endpoint}", "true")
    box.wait_event("agent_state", to="joining")
    other = box.ctrun(*words, f"--rdzv-endpoint={endpoint}", "true")
    assert other.code == 77, other
    assert len(other.err.splitlines()) == 1 and "error[E_FINGERPRINT]" in other.err, other
    assert other.err.startswith("ctrun: error[E_FINGERPRINT]: this node was not started like the others"), other
    assert re.search(r"the run has --nnodes=2:2 --max-restarts=0 \(its other settings are not known here\); refused by the "
                     r"rendezvous at \S+:\d+; this node has --nnodes=", other.err), other
    # Workers, role and program are each node's own business; the refused one did no harm.
    second = box.ctrun("--nnodes=2", f"--rdzv-endpoint={endpoint}", "--nproc-per-node=2",
                       "--role=other", "--shutdown-timeout=3", "sh", "-c", "exit 0")
    assert second.code == 0 and first.wait() == 0, (first, second)


WAIT = "import time, pathlib, sys\nwhile not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.01)"


@pytest.mark.parametrize("words", [["--nnodes=2"], ["--nnodes=1:2"], ["--rdzv-backend=static"]])
def test_two_unlike_jobs_at_one_endpoint_do_not_become_one(box, endpoint, words):
    a, b = (box.write(name, WAIT) for name in ("a.py", "b.py"))
    words = [*words, f"--rdzv-endpoint={endpoint}", "--rdzv-conf=join_timeout=60"]
    first = box.start_ctrun(*words, a, box.path("end"))
    box.wait_event("agent_state", to="joining")
    other = box.ctrun(*words, b, box.path("end"))
    box.path("end").touch()
    first.signal(signal.SIGTERM)
    first.wait()
    assert other.code == 77 and not other.out, (other, first)
    if words[0] == "--rdzv-backend=static":  # without --nnodes even the same program is another job
        assert re.search(r"error\[E_(OTHER_JOB|PORT_BUSY)\]", other.err), other
        return
    assert re.search(r"error\[E_OTHER_JOB\]: .*'a.py' of uid \d+ was started on .* here "
                     r"'b.py' of uid", other.err), other
    assert "error=E_OTHER_JOB" in first.err, first


def write_two_jobs(box):
    """Two programs of one name that are not the same file."""
    for name in ("a", "b"):
        box.path(name).mkdir()
    return [box.write(f"{name}/train.py", WAIT + f"\n# {name}") for name in ("a", "b")]


def test_two_files_of_one_name_at_one_endpoint_do_not_become_one_job(box):
    daemon, endpoint = box.start_ctrund()
    a, b = write_two_jobs(box)
    words = ["--nnodes=2", f"--rdzv-endpoint={endpoint}", "--rdzv-conf=join_timeout=60"]
    first = box.start_ctrun(*words, a, box.path("end"))
    box.wait_event("agent_state", to="joining")
    other = box.ctrun(*words, b, box.path("end"))
    assert other.code == 77, other
    assert re.search(r"error\[E_OTHER_JOB\]: .*'train.py' of uid \d+ was started on .* here another file 'train.py' of "
                     r"uid \d+ was started: .*--rdzv-id", other.err), other
    box.path("end").touch()
    assert box.ctrun(*words, a, box.path("end")).code == 0 and first.wait() == 0, first
    daemon.signal(signal.SIGTERM)
    assert daemon.wait() == 0


def test_one_run_id_says_that_unlike_programs_belong_together(box, endpoint):
    for name in ("a.py", "b.py"):
        box.write(name, "")
    for names in (("a.py", "b.py"), write_two_jobs(box)):
        box.path("end").touch()
        runs = [box.start_ctrun("--nnodes=2", f"--rdzv-endpoint={endpoint}", "--rdzv-id=one", name, box.path("end"))
                for name in names]
        assert codes(runs) == [0, 0], runs
    assert "is not the file that" in runs[0].err + runs[1].err, runs


def test_two_starts_without_nnodes_are_two_jobs_and_told_so(box, endpoint):
    words = ["--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}", "sh", "-c",
             "while [ ! -e end ]; do sleep 0.05; done"]
    first = box.start_ctrun(*words)
    box.wait_event("worker_started")
    other = box.ctrun(*words)
    assert other.code == 77 and "error[E_OTHER_JOB]" in other.err, other
    assert "--nnodes was not given here" in other.err, other
    box.path("end").touch()
    assert first.wait() == 0, first


def test_torchrun_125_info_prints_the_rank_table(box):
    run = box.ctrun("--nproc-per-node=2", "true", env={"LOGLEVEL": "INFO"})
    assert run.code == 0
    for key in ("restart_count=0", "master_addr=", "master_port=", "group_rank=0",
                "global_ranks=0-1", "global_world_size=2"):
        assert key in run.err


def test_an_unreachable_endpoint_says_what_was_tried(box):
    run = box.ctrun("--nnodes=2", f"--rdzv-endpoint=127.0.0.1:{launch.free_port()}",
                    "--rdzv-conf=is_host=0,read_timeout=1", "true")
    assert run.code == 75
    lines = run.err.splitlines()
    assert lines[0].startswith("ctrun: error[E_UNREACHABLE]: ")
    assert [line[:13] for line in lines[1:]] == [
        "  last try   ", "  asked for  ", "  this node  ", "  do         "]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes network namespaces")
@pytest.mark.parametrize("host, code, last_try, likely, do", [
    ("192.0.2.1", "E_UNREACHABLE]: {} cannot reach the rendezvous at", "No route to host: no machine answers at that address, "
     "or a firewall or router rejects connections to it", [], "check that address, and the network and firewalls on the way to it"),
    ("192.0.2.2", "E_UNREACHABLE]: {} cannot reach the rendezvous at",
     "Network is unreachable: this node, or a router, has no route to that address", [],
     "check that address, and the network and firewalls on the way to it"),
    ("192.0.2.3", "E_NO_HOST]: no rendezvous accepts connections at", "Connection refused",
     ["  likely     : no ctrun listens there: not started yet, ended, or started elsewhere; or a firewall rejects the connection"],
     "start ctrun (or ctrund) on the host that owns that address")])
def test_each_error_of_connect_is_followed_by_what_it_means(box, host, code, last_try, likely, do):
    """A route that answers "unreachable", none, and one to this kernel, where nobody listens."""
    network = 'ip link set lo up && ip route add unreachable 192.0.2.1 && ip route add local 192.0.2.3 dev lo && exec "$@"'
    run = box.run("unshare", "-n", "sh", "-c", network, "sh", ctrun.program("ctrun"), "--nnodes=2",
                  f"--rdzv-endpoint={host}:29400", "--rdzv-conf=read_timeout=1", "true")
    assert run.code == 75, run
    first, tried, _, _, *rest = run.err.splitlines()
    assert first == f"ctrun: error[{code.format(socket.gethostname())} {host}:29400", run
    assert tried == f"  last try   : {host}:29400: connect: {last_try}", run
    assert rest == [*likely, f"  do         : {do}, or use an address of one of the nodes"], run


def test_a_name_that_does_not_resolve_is_said_so(box):
    run = box.ctrun("--nnodes=2", "--rdzv-endpoint=no-such-host.invalid:1",
                    "--rdzv-conf=read_timeout=1", "true")
    assert run.code == 75 and "error[E_DNS]" in run.err and "no-such-host.invalid" in run.err


@pytest.mark.parametrize("host", ["localhost", "db.LocalHost"])
def test_localhost_is_loopback_where_no_file_and_no_server_says_so(box, endpoint, host):
    ctrun.needs_mounts()
    box.write("nsswitch.conf", "hosts: files\n")
    box.write("hosts", "")
    script = ("mount --bind hosts /etc/hosts && mount --bind nsswitch.conf /etc/nsswitch.conf &&"
              ' ! getent hosts localhost && exec "$@"')
    run = box.run("unshare", "-m", "sh", "-c", script, "sh", ctrun.program("ctrun"),
                  "--rdzv-backend=c10d", f"--rdzv-endpoint={host}:{endpoint.partition(':')[2]}",
                  "--rdzv-conf=join_timeout=5", "--no-python", "sh", "-c", "echo at $MASTER_ADDR")
    assert run.code == 0 and run.out == "at 127.0.0.1\n", run


@pytest.mark.parametrize("code", [77, None])
def test_a_server_of_another_version_is_told_apart(box, code):
    """It refuses HELLO in a frame of its own version. The agent reads this frame and no other."""
    text = b"this server has protocol version 2, this node version 8: install the same ctrun"
    refuse = struct.pack("<iBI", -20020, 2, len(text)) + text
    welcome = struct.pack("<QQIQIQQ", 1000, 5000, 0, 0, 0, 1, 0)
    kind, body = (3, refuse) if code else (2, welcome)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        place = f"127.0.0.1:{listener.getsockname()[1]}"
        run = box.start_ctrun("--nnodes=2", "--rdzv-backend=c10d", "--rdzv-conf=is_host=0",
                              f"--rdzv-endpoint={place}", "true")
        listener.settimeout(60 * ctrun.SLOW)
        with listener.accept()[0] as server:
            server.settimeout(60 * ctrun.SLOW)
            server.recv(65536)
            server.sendall(b"\xc7\x52\x02" + struct.pack("<BI", kind, len(body)) + body)
            if code:
                assert run.wait() == code and f"error[E_VERSION]: {place}: {text.decode()}" in run.err, run
            else:
                assert server.recv(1) == b""
    if not code:
        run.signal(signal.SIGTERM)
        run.wait()
        assert not box.events("link_state", to="up"), run
