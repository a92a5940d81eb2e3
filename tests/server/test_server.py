# SPDX-License-Identifier: Apache-2.0
"""The rendezvous server over real sockets: rounds, refusals, hostile peers, HTTP, TCPStore."""
import contextlib
import http.client
import json
import math
import os
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import time
import urllib.error
import urllib.request

import pytest

import ctrun
import fake_agent as wire
from clock import Clock


def get(daemon, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{daemon.port}{path}", timeout=60) as reply:
        return reply.read().decode()


def status(daemon):
    return json.loads(get(daemon, "/status"))


@pytest.fixture
def clock(box):
    return Clock(box)


@pytest.fixture
def timed(start_daemon, clock):
    """A daemon with that clock."""
    return start_daemon(env=clock.env)


def outlive(clock, agents, seconds=60):
    """Leases of `seconds` end, except those of `agents`."""
    clock.advance(0.8 * seconds)
    for agent in agents:
        agent.heartbeat(generation=1)
        agent.read_kind(wire.HEARTBEAT_ACK)
    clock.advance(0.8 * seconds)
    for agent in agents:
        agent.heartbeat(generation=1)  # the server wakes up and reads its clock


# ---- Rounds -------------------------------------------------------------------------------


def test_two_agents_meet_and_succeed(daemon):
    agents, starts = daemon.world(2)
    assert [start["group_rank"] for start in starts] == [0, 1]
    assert [start["rank_base"] for start in starts] == [0, 1]
    assert {start["generation"] for start in starts} == {1}
    assert {start["master_addr"] for start in starts} == {"127.0.0.1"}
    assert {start["master_port"] for start in starts} == {4000}  # group rank 0's store
    for agent in agents:
        agent.succeeded(1)
    for agent in agents:
        verdict = agent.expect(wire.VERDICT)
        assert verdict["outcome"] == 1 and verdict["exit_code"] == 0
        assert verdict["failures"] == []


def test_slots_and_hints_decide_the_ranks(daemon):
    first = daemon.agent("a").hello().join(slots=3, hint=1)
    second = daemon.agent("b").hello().join(slots=2, hint=0)
    assert first.expect(wire.START)["rank_base"] == 2
    start = second.expect(wire.START)
    assert start["rank_base"] == 0 and start["world_size"] == 5


def answer_undecided(agents, generation):
    for agent in agents:
        stop = agent.expect(wire.STOP)
        assert stop["reason"] == wire.STOP_UNDECIDED and not stop["is_final"]
    for agent in agents:
        agent.stopping(generation)


def test_a_failure_that_is_heard_before_the_loss_behind_it_is_free(timed, clock):
    agents, _ = timed.world(2, min_nodes=1, max_nodes=2)
    agents[0].fail(1, code=1, why="connection reset by peer")
    assert agents[0].expect(wire.STOP)["reason"] == wire.STOP_UNDECIDED
    agents[0].stopped(1)
    agents[0].join()
    agents[1].close()
    stop = agents[0].expect_alive(wire.STOP)
    assert stop["reason"] == wire.STOP_NODE_LOST and not stop["is_final"]
    assert stop["cause"]["host"] == "n1"
    (start,) = wire.live_until_start(agents[0], clock=clock)
    assert start["group_world_size"] == 1 and start["restart_count"] == 0


def test_a_failure_that_tells_of_none_ends_its_node_and_not_the_server(timed, clock):
    agents, _ = timed.world(2, min_nodes=1, max_nodes=2)
    agents[1].fail(1, cause=wire.CAUSE_STOPPED)
    assert "without a failure" in agents[1].expect(wire.REFUSE)["text"]
    stop = agents[0].expect(wire.STOP)
    assert stop["reason"] == wire.STOP_NODE_LOST and stop["cause"]["host"] == "n1"
    agents[0].stopped(1)
    agents[0].join()
    wire.live_until_start(agents[0], clock=clock)


def test_a_failure_stops_everyone_and_restarts_with_one_count(daemon):
    agents, _ = daemon.world(2, restarts=1)
    agents[1].fail(1, code=3, rank=1, node_rank=1)
    answer_undecided(agents, 1)
    for agent in agents:
        stop = agent.expect(wire.STOP)
        assert stop["reason"] == wire.STOP_FAILURE and not stop["is_final"]
        assert stop["restart_count"] == 1 and stop["cause"]["code"] == 3
        assert stop["cause"]["host"] == "n1"
        agent.stopped(1)
        agent.join(port=5000)
    for agent in agents:
        start = agent.expect(wire.START)
        assert start["generation"] == 2 and start["restart_count"] == 1
    agents[0].fail(2, cause=wire.CAUSE_SIGNAL, code=9)
    answer_undecided(agents, 2)
    for agent in agents:
        assert agent.expect(wire.STOP)["is_final"]
        agent.stopped(2, [wire.failure(2, cause=wire.CAUSE_STOPPED, code=15, rank=5)])
    for agent in agents:
        verdict = agent.expect(wire.VERDICT)
        assert verdict["exit_code"] == 137 and verdict["outcome"] == 2
        assert verdict["failures"][0]["cause"] == wire.CAUSE_SIGNAL
        assert verdict["failures"][-1]["cause"] == wire.CAUSE_STOPPED


def test_a_message_of_an_old_generation_is_ignored(daemon):
    agents, _ = daemon.world(2, restarts=3)
    agents[0].fail(77)
    agents[0].succeeded(77)
    for agent in agents:
        agent.succeeded(1)
    assert agents[0].expect(wire.VERDICT)["outcome"] == 1


def test_a_signal_goes_to_the_others_of_its_world_only(daemon):
    agents, _ = daemon.world(2)
    for generation, signal_count in ((77, 1), (1, 2)):
        agents[0].send(wire.SIGNAL, struct.pack("<QiI", generation, 10, signal_count) + wire.text("x"))
    heard = agents[1].read_kind(wire.SIGNAL)
    assert (heard["generation"], heard["count"], heard["host"]) == (1, 2, "n0")


def test_stacks_are_asked_of_the_others_and_answers_go_to_who_asked(daemon):
    agents, _ = daemon.world(3)
    agents[1].stacks(wire.STACKS_ASK, ticket=5, rank=-1)
    asked = [agents[1].read_kind(wire.STACKS) for _ in range(2)]
    assert [(m["what"], m["ticket"], m["nodes"], m["node"], m["host"]) for m in asked] == [
        (wire.STACKS_ASKED, 5, 2, 0, "n0"), (wire.STACKS_ASKED, 5, 2, 2, "n2")], asked
    questions = [agents[node].read_kind(wire.STACKS) for node in (0, 2)]
    assert all(q["what"] == wire.STACKS_ASK and q["rank"] == -1 and q["most"] == 192 << 10 for q in questions), questions
    agents[2].stacks(wire.STACKS_END, ticket=5, asker=questions[1]["asker"], node=0, said="rank 2\n")
    agents[0].stacks(wire.STACKS_END, ticket=5, asker=10 ** 9, said="to nobody")
    answer = agents[1].read_kind(wire.STACKS)  # the server fills in the node
    assert (answer["what"], answer["node"], answer["host"], answer["text"]) == (wire.STACKS_END, 2, "n2", "rank 2\n")


def test_stacks_of_one_rank_are_asked_of_its_node_alone(daemon):
    agents, _ = daemon.world(3)
    agents[0].stacks(wire.STACKS_ASK, rank=2)
    assert agents[0].read_kind(wire.STACKS)["node"] == 2
    assert agents[2].read_kind(wire.STACKS)["rank"] == 2
    agents[0].stacks(wire.STACKS_ASK, rank=77)
    assert agents[0].read_kind(wire.STACKS)["nodes"] == 0
    agents[0].stacks(wire.STACKS_ASK, ticket=6)
    assert agents[1].read_kind(wire.STACKS)["ticket"] == 6  # the first STACKS that it receives


def test_a_fault_goes_to_the_node_that_has_its_target_and_its_answer_to_who_asked(daemon):
    agents, _ = daemon.world(3)
    for kind in (wire.FAULT_KILL, wire.FAULT_CUT):  # by rank; by rank of the node
        agents[1].chaos(kind, 2, ticket=7, asker=99)
        asked = agents[2].read_kind(wire.CHAOS)
        assert (asked["is_answer"], asked["kind"], asked["target"], asked["line"], asked["host"]) == (0, kind, 2, 3, "n1")
        agents[2].chaos(kind, 2, ticket=asked["ticket"], asker=asked["asker"], is_answer=1, said="no")
        answer = agents[1].read_kind(wire.CHAOS)
        assert (answer["is_answer"], answer["ticket"], answer["host"], answer["text"]) == (1, 7, "n2", "no")
    agents[1].chaos(wire.FAULT_KILL, 3, ticket=8)
    answer = agents[1].read_kind(wire.CHAOS)
    assert (answer["is_answer"], answer["ticket"], answer["text"]) == (1, 8, "no node of this round has that rank")
    agents[1].chaos(wire.FAULT_END, -1)
    assert [agents[node].read_kind(wire.CHAOS)["kind"] for node in (0, 2)] == [wire.FAULT_END] * 2


def test_calls_of_a_node_go_to_that_of_group_rank_0_and_the_node_is_the_servers_word(daemon):
    agents, _ = daemon.world(3)
    agents[2].calls(2, [(1, 2, 3, 4)])  # of a round that does not exist
    agents[0].calls(1, [(1, 2, 3, 4)])  # group rank 0 has its own calls already
    agents[2].calls(1, [(7, 8, 9, 10), (7, 9, 11, 10)])
    told = agents[0].read_kind(wire.CALLS)
    assert (told["generation"], told["node"], told["host"], told["rank"], told["doubt_ns"]) == (1, 2, "n2", 5, 8), told
    assert told["list"] == [(7, 8, 9, 10), (7, 9, 11, 10)]


def test_absent_ranks_of_a_node_go_to_that_of_group_rank_0_and_the_node_is_the_servers_word(daemon):
    agents, _ = daemon.world(3)
    agents[2].absent(2, 1, "9")  # of a round that does not exist
    agents[0].absent(1, 1, "9")  # group rank 0 has its own already
    agents[2].absent(1, 2, "4-5")
    assert agents[0].read_kind(wire.ABSENT) == {"generation": 1, "node": 2, "host": "n2", "count": 2, "ranks": "4-5"}


def test_a_clock_comes_back_with_that_of_the_server(daemon):
    agents, _ = daemon.world(1)
    before = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    agents[0].send(wire.CLOCK, struct.pack("<QQ", 7, 0))
    clock = agents[0].read_kind(wire.CLOCK)
    assert clock["agent_ns"] == 7 and before - 10 ** 12 < clock["server_ns"] <= time.clock_gettime_ns(time.CLOCK_BOOTTIME), clock


def test_a_broken_connection_stops_the_others_and_the_rest_goes_on(timed, clock):
    agents, _ = timed.world(2, min_nodes=1, max_nodes=2)
    agents[1].close()
    stop = agents[0].expect_alive(wire.STOP)
    assert stop["reason"] == wire.STOP_NODE_LOST
    assert stop["cause"]["cause"] == wire.CAUSE_NODE_LOST and stop["cause"]["host"] == "n1"
    agents[0].stopped(1)
    agents[0].join()
    (start,) = wire.live_until_start(agents[0], clock=clock)
    assert start["group_world_size"] == 1 and start["restart_count"] == 0


def test_a_silent_node_is_lost_when_its_lease_is_over(timed, clock):
    agents, _ = timed.world(2, min_nodes=1, max_nodes=2)
    outlive(clock, agents[:1])
    stop = agents[0].expect_alive(wire.STOP)
    assert stop["reason"] == wire.STOP_NODE_LOST
    assert "nothing received" in stop["cause"]["text"]
    agents[1].expect_end()


@pytest.mark.parametrize("is_direct", [True, False])
def test_who_proves_that_nobody_stands_between_is_paused_before_it_is_lost(box, timed, clock, is_direct):
    agents, _ = timed.world(2, min_nodes=1, max_nodes=2)
    port = agents[1].sock.getsockname()[1]
    agents[1].send(wire.PEER, struct.pack("<H", port if is_direct else port ^ 1))
    for agent in reversed(agents):  # when the last one has its answer, the server has handled PEER
        agent.heartbeat(generation=1)
        agent.read_kind(wire.HEARTBEAT_ACK)

    def paused():  # in small steps: a silent node has one fifth of a lease to answer a probe
        clock.advance(5)
        agents[0].heartbeat(generation=1)
        agents[0].read_kind(wire.HEARTBEAT_ACK)
        return box.events("member_paused")

    if is_direct:
        ctrun.wait_until(paused, "the silent node is paused")
    else:
        outlive(clock, agents[:1])
        agents[0].expect_alive(wire.STOP)
        assert not box.events("member_paused")


def test_a_server_that_was_stopped_itself_reads_before_it_counts_anybody_as_lost(box, start_daemon):
    clock = Clock(box)
    daemon = start_daemon(env=clock.env)
    agents, _ = daemon.world(2, min_nodes=1, lost_after=1500)
    daemon.run.signal(signal.SIGSTOP)
    clock.advance(2)  # every lease is over
    for agent in agents:
        agent.heartbeat(generation=1, sequence=7)
    daemon.run.signal(signal.SIGCONT)
    for agent in agents:
        assert agent.read_kind(wire.HEARTBEAT_ACK)["sequence"] == 7


def test_a_server_whose_machine_was_suspended_loses_only_who_is_silent(box, start_daemon):
    """When it continues, all leases are over by its clock, although no timer of libuv has
    expired."""
    clock = Clock(box)
    daemon = start_daemon(env=clock.env)
    (silent, *others), _ = daemon.world(3, min_nodes=2, lost_after=600000)
    clock.advance(2)  # now the timer of libuv is set to the end of a lease, not to the next WAITING
    for agent in others * 10:  # each answer needs one more turn of the loop
        agent.heartbeat(generation=1)
        agent.read_kind(wire.HEARTBEAT_ACK)
    daemon.run.signal(signal.SIGSTOP)
    clock.suspend(1200)
    for agent in others:
        agent.heartbeat(generation=1)
    daemon.run.signal(signal.SIGCONT)

    def next_of(agent):
        agent.heartbeat(generation=1)
        kind, message = agent.read()
        while kind in wire.FOR_LINK and kind != wire.HEARTBEAT_ACK:
            kind, message = agent.read()
        return message if kind == wire.STOP else None
    stop = ctrun.wait_until(lambda: [found for agent in others if (found := next_of(agent))], "somebody is lost")[0]
    assert (stop["reason"], stop["cause"]["host"]) == (wire.STOP_NODE_LOST, silent.host)
    assert len(daemon.status()["runs"][0]["members"]) == 2


def test_a_server_whose_machine_was_suspended_loses_a_node_though_no_message_comes(box, start_daemon):
    clock = Clock(box)
    daemon = start_daemon(env=clock.env)
    daemon.world(1, lost_after=600000)
    clock.suspend(1200)
    box.wait_event("round_changed", why="node_lost", seconds=60)


def test_a_newcomer_is_taken_in(timed, clock):
    first = timed.agent("n0").hello(min_nodes=1, max_nodes=2, last_call=0).join()
    [start] = wire.live_until_start(first, clock=clock)
    assert start["group_world_size"] == 1
    second = timed.agent("n1").hello(min_nodes=1, max_nodes=2).join()
    assert first.expect(wire.STOP)["reason"] == wire.STOP_MEMBERSHIP
    first.stopped(1)
    first.join()
    assert first.expect(wire.START)["group_world_size"] == 2
    assert second.expect(wire.START)["group_rank"] == 1


def test_a_spare_is_told_so_and_takes_over(daemon):
    agents, _ = daemon.world(2)
    spare = daemon.agent("spare").hello().join()
    assert spare.read()[0] == wire.WELCOME
    assert spare.read()[0] == wire.TICKET
    kind, waiting = spare.read()
    assert kind == wire.WAITING and waiting["is_spare"] == 1
    behind = [daemon.agent("behind").hello().join() for _ in range(2)]
    assert [agent.read_kind(wire.WAITING)["is_spare"] for agent in behind] == [2, 3]
    agents[0].leave(1)
    agents[0].stopped(1)
    assert agents[1].expect(wire.STOP)["reason"] == wire.STOP_MEMBERSHIP
    agents[1].stopped(1)
    agents[1].join()
    assert agents[1].expect(wire.START)["group_rank"] == 0
    assert spare.expect(wire.START)["group_rank"] == 1
    places = (iter(lambda: agent.read_kind(wire.WAITING)["is_spare"], None) for agent in behind)
    assert [next(filter(None, place)) for place in places] == [1, 2]  # 0: no spare has a place


def test_another_job_is_refused_and_a_node_that_comes_back_is_not(daemon):
    alone = {"min_nodes": 1, "max_nodes": 1, "job": ("a.py", "uid 1", 1, 0)}
    first = daemon.agent().hello(**alone)
    instance = first.expect(wire.WELCOME)["instance"]
    first.join().expect(wire.START)
    other = daemon.agent().hello(**alone).join()
    assert other.expect(wire.REFUSE)["code"] == wire.E_OTHER_JOB
    back = daemon.agent().hello(instance=instance, generation=1, **alone).join()
    assert back.expect(wire.WAITING)["is_spare"] == 1
    many = daemon.agent().hello(**{**alone, "job": ("a.py", "uid 1", 1, 1)})
    assert many.expect(wire.REFUSE)["code"] == wire.E_WRONG_RUN


def test_who_waits_in_vain_for_a_lost_node_is_told_its_name(timed, clock):
    agents, _ = timed.world(2, join_timeout=30000)
    agents[1].close()
    assert agents[0].expect_alive(wire.STOP)["reason"] == wire.STOP_NODE_LOST
    agents[0].stopped(1)
    agents[0].join()

    def verdict():
        clock.advance(5)
        agents[0].heartbeat()
        while (got := agents[0].read())[0] not in (wire.HEARTBEAT_ACK, wire.VERDICT):
            pass
        return got[1] if got[0] == wire.VERDICT else None
    [(text, facts)] = [(failure["text"], failure["facts"])
                       for failure in ctrun.wait_until(verdict, "the end")["failures"]
                       if failure["cause"] == wire.CAUSE_JOIN_TIMEOUT]
    assert text == "1 of 2 nodes joined in 30.0 s"
    [(joined, who), (missing, why)] = facts
    assert (joined, who, missing) == (wire.FACT_JOINED, "n0", wire.FACT_MISSING)
    assert re.fullmatch(r"n1: last contact [\d.]+ s ago: the connection to it broke \(.*\)", why), why


def test_a_join_timeout_names_who_came(daemon):
    agent = daemon.agent("lonely").hello(join_timeout=300).join()
    verdict = agent.expect(wire.VERDICT)
    assert verdict["outcome"] == 3 and verdict["exit_code"] == 75
    assert "1 of 2 nodes" in verdict["failures"][0]["text"]
    assert (wire.FACT_JOINED, "lonely") in verdict["failures"][0]["facts"]


def test_no_message_of_an_unknown_client_ends_a_run_with_success(daemon):
    """Message 19 did this for each client that knew the run id."""
    agents, _ = daemon.world(2)
    client = daemon.agent("client").hello()
    client.expect(wire.WELCOME)
    for agent in (client, agents[0]):
        agent.send(wire.RETIRED_19, b"\x00" + wire.text("enough"))
        agent.heartbeat(sequence=9)
        assert agent.read_kind(wire.HEARTBEAT_ACK)["sequence"] == 9
    assert status(daemon)["runs"][0]["state"] == "running"


def test_two_runs_on_one_server_never_mix(daemon):
    a = [daemon.agent("a").hello(run="a").join(port=1), daemon.agent("a").hello(run="a").join(port=1)]
    b = [daemon.agent("b").hello(run="b").join(port=2), daemon.agent("b").hello(run="b").join(port=2)]
    assert {agent.expect(wire.START)["master_port"] for agent in a} == {1}
    assert {agent.expect(wire.START)["master_port"] for agent in b} == {2}
    assert {run["run_id"] for run in status(daemon)["runs"]} == {"a", "b"}


# ---- Refusals and hostile peers -----------------------------------------------------------


@pytest.mark.parametrize("version", [6, 9])
def test_another_version_is_refused_naming_both(daemon, version):
    """Also an older one: version 6 had no ABSENT."""
    agent = daemon.agent()
    agent.send_raw(wire.frame(wire.HELLO, b"", version=version))
    refuse = agent.expect(wire.REFUSE)
    assert refuse["code"] == wire.E_VERSION and refuse["version"] == wire.VERSION
    assert f"version {wire.VERSION}" in refuse["text"] and f"version {version}" in refuse["text"]
    agent.expect_end()


def test_a_node_that_was_started_differently_is_refused(daemon):
    daemon.agent("a").hello().join(fingerprint=1)
    ctrun.wait_until(lambda: [m for run in status(daemon)["runs"] for m in run["members"]
                              if m["state"] == "ready"], "the first node has joined")
    other = daemon.agent("b").hello().join(fingerprint=2)
    assert other.expect(wire.REFUSE)["code"] == wire.E_FINGERPRINT


@pytest.mark.parametrize("data", [
    b"\xc7\x52\x08\x01\x04\x00\x00\x00junk",        # HELLO that cannot be read
    b"\xc7\x52\x08\x01\xff\xff\xff\xff",            # a length that is refused before it is read
    b"\xc7garbage",                                   # no frame after all
    wire.frame(wire.JOIN, b""),                       # JOIN before HELLO
    wire.frame(wire.SUCCEEDED, struct.pack("<Q", 1)),  # a member's message from no member
])
def test_garbage_is_refused_and_closed(daemon, data):
    agent = daemon.agent()
    agent.send_raw(data)
    assert agent.expect(wire.REFUSE)["code"] == wire.E_PROTOCOL
    agent.expect_end()
    assert get(daemon, "/healthz") == "ok\n"


def test_foreign_protocols_are_closed(daemon):
    agent = daemon.agent()
    agent.send_raw(b"\x16\x03\x01\x02\x00\x01")  # TLS
    agent.expect_end()


def test_impossible_limits_are_refused(daemon):
    agent = daemon.agent().hello(min_nodes=3, max_nodes=2)
    refuse = agent.expect(wire.REFUSE)
    assert refuse["code"] == -20001 and "min nodes" in refuse["text"]


def test_messages_may_come_byte_by_byte_and_unknown_kinds_are_skipped(daemon):
    agent = daemon.agent()
    hello = wire.text("job") + wire.text("slow") + struct.pack(
        "<iIIIQQQQ", 1, 1, 1, 0, 60000, 0, 200, 60000) + bytes(32) + bytes(20)
    agent.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for byte in (wire.frame(wire.HELLO, hello) + wire.frame(200, b"of the future")
                 + wire.frame(wire.JOIN, wire.join())):
        agent.send_raw(bytes([byte]))
    assert agent.expect(wire.START)["world_size"] == 1


@pytest.mark.both
def test_a_peer_that_reads_nothing_costs_a_bounded_buffer_and_no_one_else(daemon):
    slow = daemon.agent("slow").hello(run="slow", min_nodes=1, max_nodes=1)
    beat = wire.frame(wire.HEARTBEAT, struct.pack("<QQq", 0, 1, -1)) * 1000
    slow.sock.settimeout(0.5)
    with pytest.raises((TimeoutError, OSError)):
        for _ in range(10000):  # far more than any buffer on the way: the server stops reading
            slow.send_raw(beat)
    assert get(daemon, "/healthz") == "ok\n"
    agents, starts = daemon.world(2)
    assert len(starts) == 2
    rss = int(open(f"/proc/{daemon.run.pid}/statm").read().split()[1]) * 4096
    if ctrun.SLOW == 1:  # sanitizers keep freed memory
        assert rss < 64 << 20


# ---- HTTP, TCPStore, ctrund ---------------------------------------------------------------


@pytest.mark.parametrize("path", ["/healthz", "/status", "/metrics", "/nothing"])
def test_head_is_answered_as_get_without_the_page(daemon, path):
    replies = []
    for method in ("GET", "HEAD"):
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=60)) as client:
            client.request(method, path)
            with client.sock.makefile("rb") as stream:
                head, _, page = stream.read().partition(b"\r\n\r\n")
        replies.append((head.split(b"\r\n"), page))
    (head, page), (same, none) = replies
    assert none == b"" and f"Content-Length: {len(page)}".encode() in head, replies
    assert same[:2] == head[:2] and len(same) == len(head), replies  # numbers of /metrics change


def test_status_tells_runs_and_members(daemon):
    agents, _ = daemon.world(2, restarts=3)
    run = status(daemon)["runs"][0]
    assert run["run_id"] == "job" and run["state"] == "running" and run["generation"] == 1
    assert [member["host"] for member in run["members"]] == ["n0", "n1"]
    assert [member["group_rank"] for member in run["members"]] == [0, 1]
    assert {member["state"] for member in run["members"]} == {"running"}
    for agent in agents:
        agent.stopped(1)
    for agent in agents:
        agent.close()
    ctrun.wait_until(lambda: not status(daemon)["runs"], "the run is forgotten")


def test_a_run_takes_the_place_of_one_that_broke_but_waits_for_its_workers(daemon):
    agents, _ = daemon.world(2, lost_after=2000, restarts=3)
    for agent in agents:
        agent.close()
    ctrun.wait_until(lambda: status(daemon)["runs"][0]["state"] == "forming"
                     and not status(daemon)["runs"][0]["members"], "all nodes are gone")
    again = daemon.agent("again")
    again.hello(min_nodes=1, max_nodes=1, lost_after=60000).join(fingerprint=8)
    assert again.expect(wire.START)["generation"] == 2  # generations never decrease


def metrics(daemon):
    """{name or name{label="value"}: number}; every line must be what the text format allows."""
    found, types = {}, {}
    text = get(daemon, "/metrics")
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# HELP "):
            assert re.fullmatch(r"# HELP [a-z_]+ \S.*\.", line), line
        elif line.startswith("# TYPE "):
            name, kind = re.fullmatch(r"# TYPE ([a-z_]+) (counter|gauge)", line).groups()
            assert name not in types and name.endswith("_total") == (kind == "counter"), line
            types[name] = kind
        else:
            sample = re.fullmatch(r'(([a-z_]+)(?:\{[a-z]+="[^"\\]+"(?:,rank="\d+")?\})?) ([-+0-9.eNaInf]+)', line)
            assert sample and sample[2] in types and sample[1] not in found, line
            found[sample[1]] = float(sample[3])
    if shutil.which("promtool"):
        subprocess.run(["promtool", "check", "metrics"], input=text, text=True, check=True)
    return found


def test_metrics_count_what_happened(daemon):
    agents, _ = daemon.world(2, restarts=1)
    with socket.create_connection(("127.0.0.1", daemon.port)) as client:
        client.sendall(b"\x00" + struct.pack("<Q", 3) + b"key" + struct.pack("<Q", 1) + b"v")
        ctrun.wait_until(lambda: metrics(daemon)["ctrund_store_keys"] == 1, "the key is set")
        now = metrics(daemon)
        assert now['ctrund_connections{kind="agent"}'] == 2
        assert now['ctrund_connections{kind="store"}'] == 1
        assert now["ctrund_store_clients"] == 1 and now["ctrund_store_requests"] == 1
    assert now['ctrund_runs{state="running"}'] == 1 and now['ctrund_runs{state="forming"}'] == 0
    assert now['ctrund_members{state="running"}'] == 2
    assert now["ctrund_rounds_started_total"] == 1 and now["ctrund_restarts_total"] == 0
    assert now["ctrund_received_bytes_total"] > 100 and now["ctrund_sent_bytes_total"] > 100
    agents[0].fail(1, code=3)
    answer_undecided(agents, 1)
    assert agents[0].expect(wire.STOP)["reason"] == wire.STOP_FAILURE
    agents[1].close()
    ctrun.wait_until(lambda: metrics(daemon)['ctrund_failures_total{cause="node_lost"}'] == 1,
                     "the loss is counted")
    now = metrics(daemon)
    assert now['ctrund_failures_total{cause="exit"}'] == 1 and now["ctrund_restarts_total"] == 1
    assert 'ctrund_failures_total{cause="ended"}' not in now  # a verdict's word, which no agent reports


def test_metrics_show_what_ranks_told_until_the_next_world(daemon):
    agents, starts = daemon.world(2, restarts=1)
    assert [start["rank_base"] for start in starts] == [0, 1]
    agents[1].metrics(1, (1, "loss", 0.25), (1, "rate", float("nan")))
    agents[0].metrics(1, (0, "loss", 0.5), (1, "loss", 9), (-1, "loss", 9), (0, "ctrund_runs", 9),
                      (0, 'a{b="c"} 1\nd', 9), (0, "x" * 63, float("-inf")))
    agents[0].metrics(0, (0, "old", 1))
    agents[0].metrics(2, (0, "unborn", 1))
    now = ctrun.wait_until(lambda: (lambda found: found if len(found) > 4 else None)(
        {name: value for name, value in metrics(daemon).items() if "rank=" in name or "rank_" in name}),
        lambda: metrics(daemon))
    assert math.isnan(now.pop('rate{run="job",rank="1"}'))
    assert now == {'loss{run="job",rank="0"}': 0.5, 'loss{run="job",rank="1"}': 0.25,
                   "x" * 63 + '{run="job",rank="0"}': -math.inf, "ctrund_rank_metrics": 4,
                   "ctrund_rank_metrics_refused_total": 4}
    lines = [line for line in get(daemon, "/metrics").splitlines() if "loss" in line]
    assert [line.split()[0] for line in lines] == ["#", "#", 'loss{run="job",rank="0"}', 'loss{run="job",rank="1"}']
    agents[0].fail(1, code=3)
    answer_undecided(agents, 1)
    for agent in agents:
        agent.expect(wire.STOP)
        agent.stopped(1)
    assert 'loss{run="job",rank="0"}' in metrics(daemon)  # the last values
    for agent in agents:
        agent.join()
    for agent in agents:
        agent.expect(wire.START)
    assert not any("loss" in name for name in metrics(daemon))


def test_a_request_that_does_not_end_is_refused(daemon):
    with socket.create_connection(("127.0.0.1", daemon.port), timeout=60) as client:
        client.sendall(b"GET /status HTTP/1.1\r\nCookie: " + b"x" * 9000)
        assert client.recv(4096).startswith(b"HTTP/1.1 431 ")


def test_other_paths_are_not_found(daemon):
    with pytest.raises(urllib.error.HTTPError) as error:
        get(daemon, "/")
    assert error.value.code == 404


def test_the_same_port_is_a_tcpstore(daemon):
    with socket.create_connection(("127.0.0.1", daemon.port), timeout=60) as client:
        client.sendall(b"\x00\xce\xf7\x85\x3c")  # VALIDATE
        key, value = b"k", b"v"
        client.sendall(b"\x01" + struct.pack("<Q", 1) + key + struct.pack("<Q", 1) + value)
        client.sendall(b"\x03" + struct.pack("<Q", 1) + key)
        assert client.recv(9, socket.MSG_WAITALL) == struct.pack("<Q", 1) + value


def test_a_store_request_costs_one_read_and_one_write(daemon):
    path = pathlib.Path(f"/proc/{daemon.run.pid}/io")
    if not path.exists():
        pytest.skip("the kernel counts no system calls (CONFIG_TASK_IO_ACCOUNTING)")

    def counts():
        return [int(n) for n in re.findall(r"^sysc[rw]: (\d+)$", path.read_text(), re.M)]

    with socket.create_connection(("127.0.0.1", daemon.port), timeout=60) as client:
        client.sendall(b"\x00\xce\xf7\x85\x3c")  # VALIDATE
        for i in range(220):
            if i == 20:  # the server knows by now that this is a store client
                before = counts()
            client.sendall(b"\x04" + struct.pack("<Q", 1) + b"k" + struct.pack("<q", 1))  # ADD
            assert client.recv(8, socket.MSG_WAITALL) == struct.pack("<q", i + 1)
    reads, writes = (after - old for after, old in zip(counts(), before))
    assert 200 <= reads < 210 and 200 <= writes < 210, (reads, writes)


def test_a_silent_connection_is_kept_until_it_speaks(daemon):
    with socket.create_connection(("127.0.0.1", daemon.port), timeout=60) as silent:
        daemon.world(2)
        silent.sendall(b"\x00\xce\xf7\x85\x3c\x07")  # VALIDATE, GETNUMKEYS
        assert len(silent.recv(8, socket.MSG_WAITALL)) == 8


def test_a_busy_port_names_its_owner(box, daemon):
    second = box.run(ctrun.program("ctrund"), "--listen", f"127.0.0.1:{daemon.port}")
    assert second.code == 77
    assert "E_PORT_BUSY" in second.err and f"pid {daemon.run.pid}" in second.err


@pytest.mark.parametrize("words", [["--bogus"], ["--listen"], ["extra"], ["--log-level", "loud"],
                                   ["--listen", "host:port"]])
def test_a_wrong_command_line_ends_with_2(box, words):
    run = box.run(ctrun.program("ctrund"), *words)
    assert run.code == 2 and run.out == "" and "E_" in run.err


@pytest.mark.parametrize("is_abstract", [False, True])
def test_the_service_manager_is_told_when_it_listens_and_when_it_ends(box, is_abstract):
    path = str(box.dir / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("\0" + path if is_abstract else path)
        manager.settimeout(60 * ctrun.SLOW)
        run = box.start(ctrun.program("ctrund"), "--listen", "127.0.0.1:0",
                        env={"NOTIFY_SOCKET": ("@" + path) if is_abstract else path})
        assert manager.recv(100) == b"READY=1"
        ctrun.wait_until(lambda: "listening on" in run.out, lambda: f"a port: {run}")
        run.signal(15)
        assert manager.recv(100) == b"STOPPING=1"
        assert run.wait() == 0


IN_A_NETWORK_OF_ITS_OWN = ("unshare", "-n", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes network namespaces")
def test_without_a_secret_it_listens_on_loopback_unless_told(box):
    secret = {"CTRUN_TOKEN": "a token of the tests, 32 letters"}
    for words, env, port, has_warning in (
            ((), None, "127.0.0.1:29400", True), ((), secret, "[::]:29400", False),
            (("--listen", ":29400"), None, "127.0.0.1:29400", True),
            (("--port", "29400"), None, "127.0.0.1:29400", True),
            (("--port", "29400"), secret, "[::]:29400", False),
            (("--listen", "0.0.0.0:29400"), None, "0.0.0.0:29400", True),
            (("--listen", "127.0.0.1:29400"), None, "127.0.0.1:29400", False)):
        run = box.start(*IN_A_NETWORK_OF_ITS_OWN, ctrun.program("ctrund"), *words, env=env)
        ctrun.wait_until(lambda: "listening on" in run.out, lambda: f"a port: {run}")
        run.signal(15)
        assert run.wait() == 0, run
        assert run.out == f"listening on {port}\n", run
        assert run.err.count("warning: no token: ") == has_warning, run


def test_a_signal_that_the_parent_has_blocked_ends_it(box):
    code = "import os, signal, sys; signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32)); os.execv(sys.argv[1], sys.argv[1:])"
    run = box.start(ctrun.DEBIAN_PYTHON, "-c", code, ctrun.program("ctrund"), "--listen=127.0.0.1:0")
    ctrun.wait_until(lambda: "listening on" in run.out, lambda: f"a port: {run}")
    run.signal(15)
    assert run.wait() == 0, run


@pytest.mark.parametrize("number, code", [(signal.SIGTERM, 0), (signal.SIGINT, 0), (signal.SIGHUP, 128 + signal.SIGHUP)])
def test_signals_end_it_with_the_statuses_of_the_manual(box, number, code):
    run = box.start(ctrun.program("ctrund"), "--listen=127.0.0.1:0")
    ctrun.wait_until(lambda: "listening on" in run.out, lambda: f"a port: {run}")
    run.signal(number)
    assert run.wait() == code, run


def test_without_standard_error_the_events_have_no_line_of_the_log(box):
    run = box.start("sh", "-c", 'exec "$@" 2>&-', "sh", ctrun.program("ctrund"), "--listen=0.0.0.0:0")
    ctrun.wait_until(lambda: "listening on" in run.out, lambda: f"a port: {run}")
    run.signal(15)
    assert run.wait() == 0 and box.events() == [], run


def test_an_empty_name_of_the_events_file_is_none(box):
    run = box.start(ctrun.program("ctrund"), "--listen=127.0.0.1:0", env={"CTRUN_EVENTS": ""})
    ctrun.wait_until(lambda: "listening on" in run.out, lambda: f"a port: {run}")
    run.signal(15)
    assert run.wait() == 0, run


def test_help_and_version_go_to_stdout(box):
    assert "--listen" in box.run(ctrun.program("ctrund"), "--help").out
    assert box.run(ctrun.program("ctrund"), "--version").out.startswith("ctrund ")


def test_sigterm_waits_until_verdicts_are_read(daemon):
    agents, _ = daemon.world(2)
    for agent in agents:
        agent.succeeded(1)
    assert agents[0].expect(wire.VERDICT)["outcome"] == 1
    daemon.run.signal(15)
    assert agents[1].expect(wire.VERDICT)["outcome"] == 1


def test_changes_are_in_the_event_stream(box, daemon):
    daemon.world(2)
    event = box.wait_event("round_changed", to="running")[0]
    assert event["run_id"] == "job" and event["generation"] == 1 and event["why"] == "full"
