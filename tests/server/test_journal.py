# SPDX-License-Identifier: Apache-2.0
"""Nodes stay members when a connection breaks, and when ctrund is killed and started again with its
journal."""
import json
import os
import resource
import signal
import struct
import urllib.error
import urllib.request

import pytest

import ctrun
import fake_agent as wire


class Phoenix:
    """A ctrund with a journal and a fixed port, which a test can kill and start again."""

    def __init__(self, box, *arguments):
        self.box, self.arguments, self.agents = box, arguments, []
        self.journal = box.path("journal")
        self.journal.mkdir()
        self.port = ctrun.free_port()  # no connection takes it while the server does not run
        self.begin()

    def begin(self):
        self.run = self.box.start(ctrun.program("ctrund"), "--listen", f"127.0.0.1:{self.port}",
                                  "--journal", str(self.journal), *self.arguments)
        ctrun.wait_until(lambda: "\n" in self.run.out, lambda: f"ctrund listens: {self.run}")

    def kill(self):
        self.run.signal(signal.SIGKILL)
        self.run.wait()

    def status(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/status", timeout=60) as reply:
            return reply.read().decode()

    def health(self):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/healthz", timeout=60) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def agent(self, host="n"):
        agent = wire.Agent(self.port, host)
        self.agents.append(agent)
        return agent

    def world(self, count=2, survive_ms=0, replaces=0, **settings):
        """`count` agents that have received START, and their tickets."""
        settings = {"min_nodes": count, "max_nodes": count, **settings}
        agents = [self.agent(f"n{i}") for i in range(count)]
        tickets = []
        for i, agent in enumerate(agents):
            agent.hello(**settings)
            tickets.append(agent.expect_ticket())
            agent.join(port=4000 + i, survive_ms=survive_ms, replaces=replaces)
        for agent in agents:
            agent.expect(wire.START)
        return agents, tickets


@pytest.fixture
def phoenix(box):
    daemon = Phoenix(box)
    yield daemon
    for agent in daemon.agents:
        agent.close()
    if daemon.run.code is None:
        daemon.run.signal(15)
        assert daemon.run.wait() == 0, daemon.run


def lives(agent, generation=1):
    """Checks that the server answers the agent as a member of this world."""
    agent.heartbeat(generation, sequence=9)
    assert agent.read_kind(wire.HEARTBEAT_ACK)["generation"] == generation


def test_members_resume_at_a_restarted_server_and_hear_nothing_else(phoenix):
    _, tickets = phoenix.world(2, restarts=3)
    phoenix.kill()
    phoenix.begin()
    agents = [phoenix.agent(f"n{i}").resume(ticket, 1) for i, ticket in enumerate(tickets)]
    for agent in agents:
        assert agent.expect(wire.RESUMED) == {"generation": 1, "is_in_world": 1}
        lives(agent)
    for agent in agents:
        agent.succeeded(1)
    for agent in agents:
        assert agent.expect(wire.VERDICT)["outcome"] == 1


def test_what_an_earlier_connection_says_later_is_not_believed(phoenix):
    """The agent has resumed on a later connection and runs workers; the earlier one says that it
    waits for START."""
    _, [ticket, _] = phoenix.world(2)
    now = phoenix.agent("n0").resume(ticket, 1, attempt=2)
    assert now.expect(wire.RESUMED)["is_in_world"] == 1
    phoenix.agent("n0").resume(ticket, 0, state=wire.JOINING, attempt=1).expect(wire.REFUSE)
    lives(now)


def test_sigterm_ends_the_server_and_not_the_runs(phoenix):
    _, tickets = phoenix.world(2)
    phoenix.run.signal(signal.SIGTERM)
    assert phoenix.run.wait() == 0
    phoenix.begin()
    for i, ticket in enumerate(tickets):
        assert phoenix.agent(f"n{i}").resume(ticket, 1).expect(wire.RESUMED)["generation"] == 1


def test_a_restart_that_was_counted_is_not_counted_again(phoenix):
    agents, tickets = phoenix.world(2, restarts=1, lost_after=4000)
    agents[0].fail(1, code=3)
    assert agents[1].expect(wire.STOP)["reason"] == wire.STOP_UNDECIDED
    agents[1].stopping(1)
    assert agents[1].expect(wire.STOP)["restart_count"] == 1
    phoenix.kill()
    phoenix.begin()
    again = [phoenix.agent(f"n{i}").resume(ticket, 1, state=wire.STOPPING_NOW)
             for i, ticket in enumerate(tickets)]
    for i, agent in enumerate(again):
        assert agent.expect(wire.RESUMED)["is_in_world"] == 1
        stop = agent.expect(wire.STOP)
        assert stop["restart_count"] == 1 and stop["cause"]["code"] == 3
        agent.fail(1, code=3, rank=0, node_rank=0) if i == 0 else agent.stopping(1)
    for agent in again:
        agent.stopped(1)
    for agent in again:
        agent.join()
    for start in wire.live_until_start(*again):
        assert (start["generation"], start["restart_count"]) == (2, 1)


def test_who_does_not_resume_is_lost_after_its_lease(phoenix):
    _, tickets = phoenix.world(2, lost_after=4000)
    phoenix.kill()
    phoenix.begin()
    agent = phoenix.agent("n0").resume(tickets[0], 1)
    agent.expect(wire.RESUMED)
    def stopped():
        agent.heartbeat(1, sequence=1)
        kind, message = agent.read()
        return message if kind == wire.STOP else None
    stop = ctrun.wait_until(stopped, "the other one is lost")
    assert stop["reason"] == wire.STOP_NODE_LOST and stop["cause"]["host"] == "n1"
    late = phoenix.agent("n1").resume(tickets[1], 1)
    refuse = late.expect(wire.REFUSE)
    assert refuse["code"] == wire.E_LEADER_LOST and "without this node" in refuse["text"]


def test_a_short_break_costs_nothing(phoenix):
    agents, tickets = phoenix.world(2, lost_after=60000)
    phoenix.run.signal(signal.SIGSTOP)  # it finds both at once, however long we need
    agents[0].close()
    back = phoenix.agent("n0").resume(tickets[0], 1)
    phoenix.run.signal(signal.SIGCONT)
    assert back.expect(wire.RESUMED)["generation"] == 1
    lives(back)
    lives(agents[1])


def test_a_new_connection_ends_the_old_one(phoenix):
    agents, tickets = phoenix.world(2)
    back = phoenix.agent("n0").resume(tickets[0], 1)
    back.expect(wire.RESUMED)
    agents[0].expect_end()
    lives(back)
    lives(agents[1])


def test_a_node_that_does_not_come_back_stops_the_world(phoenix):
    agents, _ = phoenix.world(2, lost_after=60000)
    agents[0].close()
    stop = agents[1].expect(wire.STOP)
    assert stop["reason"] == wire.STOP_NODE_LOST and "closed" in stop["cause"]["text"]


@pytest.mark.parametrize("change", [{"key": 1}, {"id": 77}])
def test_a_ticket_that_was_never_given_is_refused(phoenix, change):
    agents, tickets = phoenix.world(2)
    thief = phoenix.agent("n0").resume({**tickets[0], **change}, 1)
    assert thief.expect(wire.REFUSE)["code"] == wire.E_LEADER_LOST
    thief.expect_end()
    for agent in agents:
        lives(agent)


def test_a_run_that_the_server_does_not_know_is_refused_and_not_made(phoenix):
    agent = phoenix.agent().resume({"id": 1, "key": 2}, 1)
    refuse = agent.expect(wire.REFUSE)
    assert refuse["code"] == wire.E_LEADER_LOST and "does not have the run" in refuse["text"]
    agent.expect_end()


def test_a_run_that_the_server_does_not_know_waits_for_the_leases_of_its_old_world(phoenix):
    phoenix.agent().resume({"id": 1, "key": 2}, 1).expect(wire.REFUSE)
    agents = [phoenix.agent(f"n{i}").hello(lost_after=2000).join() for i in range(2)]

    def states():
        for agent in agents:
            agent.heartbeat()  # the server updates its status once a second; their lease is 2 s
            agent.read_kind(wire.HEARTBEAT_ACK)
        runs = json.loads(phoenix.status())["runs"]
        found = [member["state"] for run in runs for member in run["members"]]
        return len(found) == 2 and "connected" not in found and found
    assert ctrun.wait_until(states, "both have joined") == ["ready", "ready"]  # and not running

    def start_of(agent):
        for one in agents:
            one.heartbeat()
        kind, message = agent.read()
        return message if kind == wire.START else None
    ranks = [ctrun.wait_until(lambda: start_of(agent), "the world begins")["group_rank"]
             for agent in agents]
    assert ranks == [0, 1]


def test_a_journal_whose_end_was_cut_off_is_read_up_to_there(phoenix):
    agents, tickets = phoenix.world(2)
    phoenix.kill()
    path = phoenix.journal / "ctrund.journal"
    whole = path.read_bytes()
    path.write_bytes(whole + struct.pack("<IQ", 100, 7) + b"half of it")
    phoenix.begin()
    assert phoenix.agent("n0").resume(tickets[0], 1).expect(wire.RESUMED)["generation"] == 1
    ctrun.wait_until(lambda: "the last 22 bytes" in phoenix.run.err, "it is said")


def frames(journal):
    """Where each frame begins and ends, with its run."""
    at = len(b"ctrun journal 1\n")
    while at < len(journal):
        length, _ = struct.unpack_from("<IQ", journal, at)
        size, = struct.unpack_from("<I", journal, at + 14)
        yield at, at + 12 + length, journal[at + 18:at + 18 + size].decode()
        at += 12 + length


@pytest.mark.parametrize("where", ["length", "checksum", "run", "end"])
def test_a_damaged_batch_ends_its_own_run_alone(phoenix, where):
    """Another run has batches before and after the damaged one."""
    good, tickets = phoenix.world(2, run="good")
    worse, _ = phoenix.world(2, run="worse")
    for first, second in (worse, good):
        first.succeeded(1)
        lives(first)  # the server has written the batch
    worse[1].succeeded(1)
    worse[1].expect(wire.VERDICT)
    phoenix.kill()
    path = phoenix.journal / "ctrund.journal"
    data = bytearray(path.read_bytes())
    begin, end = [(a, b) for a, b, run in frames(data) if run == "worse"][1]
    data[{"length": begin, "checksum": begin + 5, "run": begin + 18, "end": end - 1}[where]] ^= 1
    path.write_bytes(data)
    phoenix.begin()
    for i, state in enumerate([wire.SUCCEEDED_ALREADY, wire.RUNNING]):
        lives(phoenix.agent(f"n{i}").resume(tickets[i], 1, state=state, run="good"))
    assert '"worse"' not in phoenix.status()
    assert "bytes are damaged" in phoenix.run.err


ON_A_FULL_DISK = """
set -e
mount -t tmpfs -o size=64k none "$1"
cp "$2" "$1/ctrund.journal"
head -c 1m /dev/zero >"$1/full" 2>/dev/null || :
exec "$3" --listen=127.0.0.1:0 --journal "$1"
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a small disk")
def test_a_restart_on_a_full_disk_goes_on_with_what_it_reads(box, phoenix):
    ctrun.needs_mounts()
    _, tickets = phoenix.world(2)
    phoenix.kill()
    disk = box.path("disk")
    disk.mkdir()
    phoenix.run = box.start("unshare", "-m", "sh", "-c", ON_A_FULL_DISK, "sh", str(disk),
                            str(phoenix.journal / "ctrund.journal"), ctrun.program("ctrund"))
    line = ctrun.wait_until(lambda: phoenix.run.out if "\n" in phoenix.run.out else None,
                            lambda: f"ctrund listens: {phoenix.run}")
    phoenix.port = int(line.strip().rpartition(":")[2])
    for i, ticket in enumerate(tickets):
        lives(phoenix.agent(f"n{i}").resume(ticket, 1))
    assert "No space left on device; continuing with the old journal" in phoenix.run.err


def test_a_journal_that_could_not_be_written_says_when_it_is_complete_again(phoenix):
    agents, _ = phoenix.world(4)
    limit = resource.prlimit(phoenix.run.pid, resource.RLIMIT_FSIZE)
    size = (phoenix.journal / "ctrund.journal").stat().st_size  # larger than the log, which has the same limit
    resource.prlimit(phoenix.run.pid, resource.RLIMIT_FSIZE, (size, limit[1]))
    agents[0].fail(1)
    ctrun.wait_until(lambda: "a restart of ctrund may end runs" in phoenix.run.err, lambda: phoenix.run)
    assert phoenix.health() == (503, "the journal lacks a record: File too large; a restart of ctrund may end runs\n")
    with urllib.request.urlopen(f"http://127.0.0.1:{phoenix.port}/livez", timeout=60) as reply:
        assert reply.read() == b"ok\n"  # a restart would not help
    resource.prlimit(phoenix.run.pid, resource.RLIMIT_FSIZE, limit)
    for agent in agents:
        agent.stopped(1)
    ctrun.wait_until(lambda: "complete again; a restart of ctrund ends no run" in phoenix.run.err, lambda: phoenix.run)


def test_what_the_journal_lacks_is_written_where_no_run_changes(phoenix):
    """The server tries it every 10 s."""
    agents, _ = phoenix.world(4)
    assert phoenix.health() == (200, "ok\n")
    limit = resource.prlimit(phoenix.run.pid, resource.RLIMIT_FSIZE)
    size = (phoenix.journal / "ctrund.journal").stat().st_size
    resource.prlimit(phoenix.run.pid, resource.RLIMIT_FSIZE, (size, limit[1]))
    agents[0].fail(1)
    ctrun.wait_until(lambda: phoenix.health()[0] == 503, lambda: phoenix.run)
    resource.prlimit(phoenix.run.pid, resource.RLIMIT_FSIZE, limit)
    ctrun.wait_until(lambda: phoenix.health() == (200, "ok\n"), lambda: phoenix.run)
    assert "complete again; a restart of ctrund ends no run" in phoenix.run.err, phoenix.run


def test_a_file_that_is_no_journal_is_left_alone(box):
    path = box.write("letter", "Dear Sir or Madam,\n")
    run = box.run(ctrun.program("ctrund"), "--listen=127.0.0.1:0", "--journal", path)
    assert run.code == 1 and "not a journal of ctrund" in run.err
    assert open(path).read() == "Dear Sir or Madam,\n"


def test_two_daemons_do_not_share_a_journal(box, phoenix):
    second = box.run(ctrun.program("ctrund"), "--listen=127.0.0.1:0", "--journal",
                     str(phoenix.journal))
    assert second.code == 77 and "another ctrund uses this journal" in second.err


def test_the_journal_is_for_its_owner_only_and_does_not_grow(phoenix):
    path = phoenix.journal / "ctrund.journal"
    phoenix.world(2)
    assert os.stat(path).st_mode & 0o777 == 0o600
    began = os.stat(path).st_ino
    def compacted():
        for _ in range(50):  # a run that fails, with long texts
            agent = phoenix.agent("x" * 200).hello(run="r", min_nodes=1, max_nodes=1)
            agent.expect_ticket()
            agent.join()
            agent.expect(wire.START)
            agent.fail(1, why="y" * 1000)
            agent.stopped(1)
            agent.expect(wire.STOP)
            agent.expect(wire.VERDICT)
            agent.close()
            ctrun.wait_until(lambda: '"r"' not in phoenix.status(), "the run is forgotten")
        return os.stat(path).st_ino != began
    ctrun.wait_until(compacted, "the journal is written anew")
    assert os.stat(path).st_size < 2 << 20


def test_resuming_needs_the_token_too(box):
    token = "a token of the tests, 32 letters"
    daemon = Phoenix(box, "--token-file", box.write("token", token + "\n", 0o600))
    agent = daemon.agent()
    agent.send(wire.RESUME, struct.pack("<QQQBQ", 1, 2, 1, wire.RUNNING, 1))
    refuse = agent.hello().expect(wire.REFUSE)
    assert refuse["code"] == wire.E_AUTH
    agent.close()
    daemon.run.signal(15)
    assert daemon.run.wait() == 0


def test_who_goes_on_without_a_lost_rank_is_told_by_the_next_server(phoenix):
    agents, tickets = phoenix.world(2)
    agents[1].send(wire.LOSS, wire.loss(1, 1))
    for agent in agents:
        loss = agent.read_kind(wire.LOSS)
        assert (loss["generation"], loss["losses"], loss["rank"], loss["text"]) == (1, 1, 1, "gone")
    agents[0].send(wire.STILL, wire.still(1, 0, [0]))
    agents[1].send(wire.STILL, wire.still(1, 0, []))
    world = {"generation": 1, "epoch": 1, "losses": 1, "ranks": [0], "store_node": 0, "store_port": 0, "store_addr": ""}
    assert [agent.read_kind(wire.WORLD) for agent in agents] == [world, world]
    phoenix.kill()
    phoenix.begin()
    again = phoenix.agent("n0").resume(tickets[0], 1)
    again.expect(wire.RESUMED)
    assert again.read_kind(wire.WORLD) == world
    again.send(wire.STILL, wire.still(1, 1, [1]))  # a rank of the other node
    assert again.read_kind(wire.REFUSE)["code"] == wire.E_PROTOCOL


def test_a_node_in_the_place_of_a_lost_one_is_known_to_the_next_server(phoenix):
    settings = {"min_nodes": 1, "max_nodes": 2, "lost_after": 4000, "heartbeat": 100}
    agents, tickets = phoenix.world(2, survive_ms=60000, replaces=1, **settings)
    agents[1].close()
    agents[0].expect_alive(wire.LOSS)
    agents[0].send(wire.STILL, wire.still(1, 0, [0]))
    world = agents[0].expect_alive(wire.WORLD)
    late = phoenix.agent("n2").hello(**settings)
    ticket = late.expect_ticket()
    late.join(port=4002, survive_ms=60000, replaces=1)
    start = late.expect_alive(wire.START)
    assert (start["generation"], start["is_new"], start["group_rank"], start["rank_base"]) == (1, 1, 1, 1), start
    assert late.read_kind(wire.WORLD) == world
    phoenix.kill()
    phoenix.begin()
    agents = [phoenix.agent(host).resume(of, 1, **settings) for host, of in (("n0", tickets[0]), ("n2", ticket))]
    for agent in agents:
        agent.expect(wire.RESUMED)
        assert agent.read_kind(wire.WORLD) == world
    agents[1].send(wire.GROW, struct.pack("<Qi", 1, 1))
    agents[0].send(wire.STILL, wire.still(1, 1, [0]))
    agents[1].send(wire.STILL, wire.still(1, 1, [1]))
    assert [agent.expect_alive(wire.WORLD)["ranks"] for agent in agents] == [[0, 1], [0, 1]]


def test_where_the_worker_store_has_moved_is_told_by_the_next_server(phoenix):
    settings = {"min_nodes": 1, "lost_after": 4000, "heartbeat": 100}
    agents, tickets = phoenix.world(2, survive_ms=60000, **settings)
    agents[0].close()
    assert agents[1].expect_alive(wire.LOSS)["has_store"] == 1
    agents[1].send(wire.STILL, wire.still(1, 0, [1]))
    world = agents[1].expect_alive(wire.WORLD)
    assert (world["ranks"], world["store_node"], world["store_port"]) == ([1], 1, 4001), world
    phoenix.kill()
    phoenix.begin()
    again = phoenix.agent("n1").resume(tickets[1], 1, **settings)
    again.expect(wire.RESUMED)
    assert again.read_kind(wire.WORLD) == world
