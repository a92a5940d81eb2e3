# SPDX-License-Identifier: Apache-2.0
"""Unknown clients at the port: noise, floods, slow and silent peers. They use few resources, are
closed in time, and the log has one line for each kind (T25)."""
import errno
import select
import socket
import struct
import threading
import time
import urllib.request

import ctrun
import fake_agent as wire
import pytest
from clock import Clock

VALIDATE = b"\x00" + struct.pack("<I", 0x3C85F7CE)
PING = b"\x0d" + struct.pack("<I", 7)
TLS = bytes.fromhex("16030100a5010000a10303") + bytes(160)
BOMB = b"\x00" + struct.pack("<I", 0x3C85F7CE) + b"\x01" + struct.pack("<Q", 512 << 20)


def dial(port):
    return socket.create_connection(("127.0.0.1", port), timeout=60 * ctrun.SLOW)


def is_closed(sock):
    """Reads to the end of the stream; a reset is an end too."""
    try:
        while sock.recv(65536):
            pass
    except ConnectionResetError:
        pass
    return True


def ping(sock):
    """Sends one correct request; returns how long the answer took."""
    began = time.monotonic()
    sock.sendall(PING)
    answer = b""
    while len(answer) < 4:
        piece = sock.recv(4 - len(answer))
        assert piece, "the store closed a good client"
        answer += piece
    assert struct.unpack("<I", answer)[0] == 7
    return time.monotonic() - began


def rss(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))


class Good:
    """Correct clients, which measure how long their requests take until p99() is called."""

    def __init__(self, port, count=4):
        self.times, self.over = [], threading.Event()
        self.threads = [threading.Thread(target=self.work, args=(port,)) for _ in range(count)]
        for thread in self.threads:
            thread.start()

    def work(self, port):
        with dial(port) as sock:
            sock.sendall(VALIDATE)
            while not self.over.is_set():
                self.times.append(ping(sock))

    def p99(self):
        self.over.set()
        for thread in self.threads:
            thread.join()
        assert len(self.times) > 100
        return sorted(self.times)[len(self.times) * 99 // 100]


@pytest.mark.both
def test_t25_abuse_costs_little_and_good_clients_go_on(daemon, capsys):
    began = time.monotonic()
    with dial(daemon.port) as first:  # now the store exists
        first.sendall(VALIDATE)
        ping(first)
        before, good, kept = rss(daemon.run.pid), Good(daemon.port), []
        for _ in range(50):
            for noise in (TLS, BOMB, b"SSH-2.0-x\r\n", b"GET /nothing HTTP/1.1\r\n\r\n",
                          wire.MAGIC + struct.pack("<BBI", wire.VERSION, wire.HELLO, 1 << 31)):
                sock = dial(daemon.port)
                sock.sendall(noise)
                kept.append(sock)
        for _ in range(2000):
            kept.append(dial(daemon.port))
        slow = dial(daemon.port)
        for byte in VALIDATE[:4]:
            slow.sendall(bytes([byte]))
        slow_began = time.monotonic()
        assert is_closed(slow) and time.monotonic() - slow_began < 20 * ctrun.SLOW
        for sock in kept[:250]:
            assert is_closed(sock)
        p99, growth = good.p99(), rss(daemon.run.pid) - before
        with capsys.disabled():
            print(f"\nT25: p99 of good clients {p99 * 1e3:.2f} ms, RSS growth {growth >> 10} KiB")
        assert growth < (16 << 20) * ctrun.SLOW
        for sock in kept:
            sock.close()
    text = daemon.run.err
    for sentence in ("uses none of the protocols served here", "a malformed request",
                     "sent no complete request in time"):
        assert 1 <= text.count(sentence) <= lines_since(began), text
    with dial(daemon.port) as sock:
        sock.sendall(VALIDATE)
        ping(sock)


def test_who_begins_and_does_not_go_on_is_closed_and_who_is_silent_is_kept(daemon):
    """Stock PyTorch before 2.1 opens a silent connection for each worker."""
    begun = []
    with dial(daemon.port) as silent:
        for begin in (wire.MAGIC, b"GET /hea", b"\x00\xce"):
            begun.append(dial(daemon.port))
            begun[-1].sendall(begin)
        for sock in begun:
            sock.settimeout(30 * ctrun.SLOW)  # CONN_IDENTIFY_MS
            assert is_closed(sock)
            sock.close()
        silent.sendall(VALIDATE)
        ping(silent)
    ctrun.wait_until(lambda: "sent no complete request in time" in daemon.run.err, "the line about it")


def test_the_oldest_silent_connection_makes_room_for_the_newest(start_daemon):
    daemon = start_daemon("--max-connections=1600")
    with dial(daemon.port) as good:
        good.sendall(VALIDATE)
        ping(good)
        held = [dial(daemon.port) for _ in range(200 + 100)]  # an eighth of the limit, and 100 more
        for oldest in held[:100]:
            assert is_closed(oldest)
        ping(good)
        assert not select.select(held[100:], [], [], 0)[0], "younger ones are closed too"
        held[-1].sendall(VALIDATE)
        ping(held[-1])
    for sock in held:
        sock.close()
    assert "too many connections" in daemon.run.err


TOKEN = b"a token of the tests, 32 letters"


def test_with_a_token_the_silent_are_closed_in_time(start_daemon):
    daemon = start_daemon(env={"CTRUN_TOKEN": TOKEN.decode()})
    with dial(daemon.port) as silent:
        silent.settimeout(30 * ctrun.SLOW)  # CONN_IDENTIFY_MS
        assert is_closed(silent)


def test_unknown_clients_that_fill_the_descriptors_do_not_keep_agents_out(start_daemon):
    daemon = start_daemon("--max-connections=100", env={"CTRUN_TOKEN": TOKEN.decode()})
    idle = [dial(daemon.port) for _ in range(500)]
    agents = [daemon.agent(f"n{i}") for i in range(2)]
    for agent in agents:
        assert agent.prove(TOKEN)[0][0] == wire.SERVER_PROOF
        agent.join()
    for agent in agents:
        agent.expect(wire.START)
    for sock in idle:
        sock.close()


def test_clients_of_the_store_do_not_keep_agents_out(start_daemon):
    daemon = start_daemon("--max-connections=40")
    held = []
    for _ in range(24):  # three quarters of what is not kept for short requests
        held.append(dial(daemon.port))
        held[-1].sendall(VALIDATE)
        ping(held[-1])
    with dial(daemon.port) as more:
        more.sendall(VALIDATE + PING)
        assert is_closed(more)
    held += [dial(daemon.port) for _ in range(100)]
    daemon.world(2)
    held.pop(0).close()
    ctrun.wait_until(lambda: works(daemon.port), "room for another client")
    for sock in held[:23]:
        ping(sock)
    for sock in held:
        sock.close()
    assert "too many connections" in daemon.run.err


def get(daemon, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{daemon.port}{path}", timeout=60) as reply:
        return reply.read().decode()


def refused(daemon, host, **settings):
    """The answer to a node for which there is no room."""
    agent = daemon.agent(host).hello(**settings)
    refuse = agent.expect(wire.REFUSE)
    agent.expect_end()
    agent.close()
    assert refuse["code"] == -errno.EXFULL
    return refuse["text"]


def fill(daemon, **settings):
    """As many nodes as have room among 24 connections."""
    agents = []
    for i in range(18):
        agents.append(daemon.agent(f"n{i}").hello(**settings))
        agents[-1].expect(wire.WELCOME)
    return agents


def test_a_full_server_says_so_to_nodes_and_answers_monitoring(start_daemon):
    daemon = start_daemon("--max-connections=24")
    agents = fill(daemon, min_nodes=20, max_nodes=20)
    for _ in range(3):
        assert "the rendezvous server is full (24 connections)" in refused(daemon, "late", min_nodes=20, max_nodes=20)
    assert get(daemon, "/healthz") == "ok\n"
    page = get(daemon, "/metrics")
    for line in ("ctrund_connections_max 24", 'ctrund_refused_total{reason="too_many"} 3'):
        assert f"\n{line}\n" in page, page
    text = daemon.run.err
    assert "ctrund: info: at most 24 connections, 6 of them for short requests; " in text
    assert text.count("ctrund: error: refused a node: 18 nodes and 0 store clients are connected, and the limit is 24 ") == 1
    agents.pop().close()
    ctrun.wait_until(lambda: daemon.status()["connections"] == 17 + 1, "the place is free")
    daemon.agent("late").hello(min_nodes=20, max_nodes=20).expect(wire.WELCOME)


def test_a_node_of_another_version_and_a_launcher_that_probes_get_their_answer_of_a_full_server(start_daemon):
    daemon = start_daemon("--max-connections=24")
    fill(daemon, min_nodes=20, max_nodes=20)
    for version in (0, wire.VERSION + 1):
        agent = daemon.agent()
        agent.send_raw(wire.frame(wire.HELLO, version=version))
        assert agent.expect(wire.REFUSE)["code"] == wire.E_VERSION


def test_silent_clients_keep_no_answer_of_a_full_server_back(start_daemon):
    daemon = start_daemon("--max-connections=24", env={"CTRUN_TOKEN": TOKEN.decode()})
    for i in range(18):
        agent = daemon.agent(f"n{i}")
        assert agent.prove(TOKEN, min_nodes=20, max_nodes=20)[0][0] == wire.SERVER_PROOF
        agent.expect(wire.WELCOME)
    held = [dial(daemon.port) for _ in range(100)]
    late = daemon.agent("late")
    assert late.prove(TOKEN, min_nodes=20, max_nodes=20)[0][0] == wire.SERVER_PROOF
    assert late.expect(wire.REFUSE)["code"] == -errno.EXFULL
    assert get(daemon, "/healthz") == "ok\n"
    for sock in held:
        sock.close()


def test_who_finds_no_room_is_named_while_the_others_wait(start_daemon):
    daemon = start_daemon("--max-connections=24")
    first = fill(daemon, min_nodes=20, max_nodes=20)[0].join()
    refused(daemon, "late", min_nodes=20, max_nodes=20)
    ctrun.wait_until(lambda: "late (refused with E_RESOURCES: the rendezvous server is full)"
                     in first.expect_alive(wire.WAITING)["missing"], "the node is named")


def test_a_member_resumes_on_a_full_server(start_daemon):
    """The server may not know yet that the earlier connection is broken."""
    daemon = start_daemon("--max-connections=24")
    agents = fill(daemon, min_nodes=20, max_nodes=20)
    member = daemon.agent("late")
    agents.pop().close()
    ctrun.wait_until(lambda: daemon.status()["connections"] <= 17 + 2, "the place is free")
    ticket = member.hello(min_nodes=20, max_nodes=20).join().expect(wire.TICKET)
    again = daemon.agent("late").resume(ticket, 0, wire.JOINING, min_nodes=20, max_nodes=20)
    again.expect(wire.RESUMED)
    again.heartbeat()
    again.expect_alive(wire.HEARTBEAT_ACK)


def test_more_http_than_some_makes_room_and_those_who_read_are_answered(daemon):
    unread = []
    for _ in range(300):
        unread.append(dial(daemon.port))
        unread[-1].sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
    assert daemon.status()["connections"] <= 64 + 1  # HTTP_CONNS_MAX
    for sock in unread:
        sock.close()
    assert daemon.status()["runs"] == []


def test_who_is_not_let_in_yet_cannot_make_us_keep_more_than_his_hello(start_daemon):
    daemon = start_daemon(env={"CTRUN_TOKEN": TOKEN.decode()})
    for length in (1025, 60000):
        agent = daemon.agent()
        agent.send_raw(wire.MAGIC + struct.pack("<BBI", wire.VERSION, wire.HELLO, length) + bytes(1024))
        agent.send_raw(bytes(1))
        assert "too long for a node that is not admitted yet" in agent.expect(wire.REFUSE)["text"]
        agent.expect_end()


def lines_since(began):
    """How many lines of one kind there may be: one in CT_SELDOM_MS."""
    return 1 + (time.monotonic() - began) // 10


def test_refusals_fill_no_log(daemon):
    began = time.monotonic()
    for i in range(500):
        agent = wire.Agent(daemon.port, f"other{i}")
        agent.hello(min_nodes=0)
        assert agent.expect(wire.REFUSE)
        agent.close()
    count = daemon.run.err.count("agent refused")
    assert 1 <= count <= lines_since(began)


def works(port):
    with dial(port) as sock:
        try:
            sock.sendall(VALIDATE)
            ping(sock)
        except (AssertionError, OSError):
            return False
    return True


def test_refusals_are_counted_for_prometheus(daemon):

    with dial(daemon.port) as sock:
        sock.sendall(TLS)
        assert is_closed(sock)
    with urllib.request.urlopen(f"http://127.0.0.1:{daemon.port}/metrics", timeout=60) as reply:
        assert 'ctrund_refused_total{reason="foreign"} 1' in reply.read().decode()


def test_agents_that_come_and_go_do_not_fill_the_log(daemon):
    """Without a token each client is an agent, and each step of an agent may write a line."""
    began = time.monotonic()
    for _ in range(400):
        wire.Agent(daemon.port).hello(min_nodes=1).close()
    ctrun.wait_until(lambda: not daemon.status()["runs"], "all are forgotten")
    assert len(daemon.run.err.splitlines()) <= 300 * lines_since(began)  # CT_OFTEN_LINES in CT_SELDOM_MS, and a few


def desert(daemon, run, source="127.0.0.1", lease=10**15):
    """A run of one node, which has disconnected: its workers may live for `lease` milliseconds."""
    agent = wire.Agent(daemon.port, source=source)
    agent.hello(run=run, min_nodes=1, max_nodes=1, lost_after=lease).join().expect(wire.START)
    agent.close()


def wait_runs(daemon, is_so):
    """Waits until is_so({run: number of nodes}); the server updates its status once a second."""
    def look():
        return is_so({run["run_id"]: len(run["members"]) for run in daemon.status()["runs"]})
    ctrun.wait_until(look, lambda: f"runs as they should be: {daemon.status()}")


def wait_deserted(daemon, *names):
    """Waits until these runs have no node: the server keeps one for a second after its connection
    broke."""
    wait_runs(daemon, lambda runs: all(runs.get(name) == 0 for name in names))


def test_runs_without_nodes_take_room_from_those_of_their_own_address(daemon):
    desert(daemon, "honest", "127.0.0.2")
    for i in range(200):
        desert(daemon, f"other{i}")
    wait_deserted(daemon, "other199")
    desert(daemon, "one more")
    wait_runs(daemon, lambda runs: set(runs) == {"honest", "one more",
                                                 *(f"other{i}" for i in range(200 - 63, 200))})


def test_runs_without_nodes_are_few_whoever_makes_them(daemon):
    for i in range(1100):
        desert(daemon, f"other{i}", f"127.0.1.{1 + i // 50}")
    wait_deserted(daemon, "other1099")
    daemon.world(2)
    wait_runs(daemon, lambda runs: len(runs) == 1023 + 1 and runs["job"] == 2)


def test_a_run_that_made_room_goes_on_when_its_workers_are_dead(start_daemon, box):
    """Its lease is long enough: the run is still there when another needs its place. The lease of the
    next run of this id is shorter."""
    clock = Clock(box)
    daemon, began = start_daemon(env=clock.env), time.monotonic()
    desert(daemon, "first", lease=200000)
    for i in range(64):
        desert(daemon, f"other{i}")
    wait_deserted(daemon, "first", "other63")
    desert(daemon, "one more")
    wait_runs(daemon, lambda runs: "first" not in runs)
    again = daemon.agent().hello(run="first", min_nodes=1, max_nodes=1, lost_after=60000).join()
    (start,) = wire.live_until_start(again, clock=clock)
    assert start["generation"] == 2
    assert time.monotonic() - began + clock.ahead_ns / 10**9 >= 200, "not before its workers are dead"


def test_one_address_does_not_take_all_runs(daemon):
    one_more, honest = daemon.agent(), daemon.agent(source="127.0.0.2")
    for i in range(1024):
        daemon.agent().hello(run=f"other{i}", min_nodes=1)
    wait_runs(daemon, lambda runs: len(runs) == 1024)
    one_more.hello(run="one more")
    assert "too many runs of your address" in one_more.expect(wire.REFUSE)["text"]
    honest.hello(run="honest").expect(wire.WELCOME)


def test_with_a_token_runs_are_not_counted_by_address(start_daemon):
    daemon = start_daemon(env={"CTRUN_TOKEN": TOKEN.decode()})
    for i in range(80):
        agent = daemon.agent()
        agent.prove(TOKEN, run=f"r{i}", min_nodes=1, max_nodes=1, lost_after=10**15)
        agent.join().expect(wire.START)
        agent.close()

    def are_deserted():
        runs = daemon.status()["runs"]  # without names
        return len(runs) == 80 and not any(run["members"] for run in runs)
    ctrun.wait_until(are_deserted, "all nodes are gone")
    agent = daemon.agent()
    agent.prove(TOKEN)
    agent.expect(wire.WELCOME)
    ctrun.wait_until(lambda: len(daemon.status()["runs"]) == 81, "none has made room")


def test_agents_that_come_and_go_do_not_fill_the_events(daemon, box):
    """Each of these runs causes three events. The server remembers all of them (RUN_MEMORY_MAX): else
    the next ones wait for their leases."""
    began = time.monotonic()
    for i in range(300):
        desert(daemon, f"other{i}")
    wait_deserted(daemon, "other299")
    most = 256 * lines_since(began)  # CT_OFTEN_LINES in CT_SELDOM_MS
    assert 256 <= len(box.events("round_changed")) <= most
    assert box.events_path.stat().st_size < most * 300


def test_the_next_event_says_how_many_were_left_out(start_daemon, box):
    clock = Clock(box)
    daemon = start_daemon(env=clock.env)
    for i in range(300):
        desert(daemon, f"other{i}")
    wait_deserted(daemon, "other299")
    told = len(box.events("round_changed"))
    clock.advance(10)
    desert(daemon, "later")
    later = ctrun.wait_until(lambda: box.events("round_changed")[told:], "events again")
    # three of each of the other runs
    assert sum(event.get("left_out", 0) for event in box.events("round_changed")) == 3 * 300 - told, later[0]
