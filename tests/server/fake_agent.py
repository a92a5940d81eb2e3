# SPDX-License-Identifier: Apache-2.0
"""The agent's side of the protocol, written from worker_sdk/wire/message.h and not from our codec,
so that a mistake in the codec makes a test fail."""
import hashlib
import hmac
import select
import socket
import struct
import time

import ctrun

MAGIC = b"\xc7\x52"
VERSION = 8
CHALLENGE, PROOF, SERVER_PROOF = 4, 5, 6
(HELLO, WELCOME, REFUSE, JOIN, WAITING, START, HEARTBEAT, HEARTBEAT_ACK, FAILURE, STOP, STOPPED,
 SUCCEEDED, VERDICT, LEAVE, RETIRED_19, STOPPING, RESUME, RESUMED, TICKET) = (
     1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23)
PEER, MEMBERS, OFFER, SEALED, SIGNAL, METRICS, STACKS, CHAOS = 25, 28, 29, 30, 40, 47, 60, 66
LOSS, STILL, WORLD, CLOCK, CALLS, GROW, ABSENT = 56, 57, 58, 67, 68, 69, 70
FAULT_KILL, FAULT_STOP, FAULT_CUT, FAULT_SLOW, FAULT_FULL, FAULT_END = 1, 2, 3, 4, 5, 6
STACKS_ASK, STACKS_ASKED, STACKS_TEXT, STACKS_END = 1, 2, 3, 4
FOR_LINK = (WELCOME, TICKET, WAITING, HEARTBEAT_ACK, PEER, MEMBERS)  # and those that are only printed
JOINING, RUNNING, STOPPING_NOW, STOPPED_ALREADY, SUCCEEDED_ALREADY = 1, 2, 3, 4, 5  # states in RESUME
FACT_JOINED, FACT_MISSING = 19, 20
CAUSE_EXIT, CAUSE_SIGNAL, CAUSE_STOPPED, CAUSE_NODE_LOST, CAUSE_JOIN_TIMEOUT = 1, 2, 5, 6, 8
STOP_FAILURE, STOP_NODE_LOST, STOP_MEMBERSHIP, RETIRED_4, STOP_UNDECIDED = 1, 2, 3, 4, 5
E_LEADER_LOST = -20010
E_WRONG_RUN, E_VERSION, E_AUTH, E_PROTOCOL, E_FINGERPRINT = -20005, -20020, -20021, -20030, -20031
E_OTHER_JOB = -20040


def text(value):
    data = value.encode()
    return struct.pack("<I", len(data)) + data


def proof(token, side, run, agent_nonce, server_nonce, opening):
    """`opening`: the frames RESUME and HELLO of the agent."""
    return hmac.digest(token, text(f"ctrun {side}") + bytes([VERSION]) + text(run) + agent_nonce
                       + server_nonce + hashlib.sha256(opening).digest(), "sha256")


def frame(kind, body=b"", version=VERSION):
    return MAGIC + struct.pack("<BBI", version, kind, len(body)) + body


def failure(generation, cause=CAUSE_EXIT, code=1, rank=0, node_rank=0, pid=1, host="n", why="boom",
            may_loop=0, error=0):
    return (struct.pack("<QBiiiiiIQQq", generation, cause, code, rank, 0, node_rank, pid, 0, 0, 0, -1)
            + text(host) + text("") + text(why) + bytes([may_loop]) + b"\0" + struct.pack("<i", 0) + text("")
            + struct.pack("<i", error))


def join(slots=1, hint=-1, is_endpoint=0, port=4000, fingerprint=7, role="default", local="", program=0,
         survive_ms=0, replaces=0, torch="", driver=""):
    return (struct.pack("<IiBHQ", slots, hint, is_endpoint, port, fingerprint) + text(role) + text(local)
            + b"\0" + struct.pack("<QBQB", program, 0, survive_ms, replaces) + text(torch) + text(driver))


def bits(ranks):
    return sum(1 << rank for rank in ranks).to_bytes(512, "little")


def loss(generation, rank, why="gone"):
    return struct.pack("<QIiIB", generation, 0, rank, 1, 0) + text(why)


def still(generation, epoch, ranks):
    return struct.pack("<QI", generation, epoch) + bits(ranks)


class Reader:
    def __init__(self, body):
        self.body = body

    def take(self, form):
        size = struct.calcsize("<" + form)
        values = struct.unpack("<" + form, self.body[:size])
        self.body = self.body[size:]
        return values

    def raw(self, length):
        value, self.body = self.body[:length], self.body[length:]
        return value

    def text(self):
        (length,) = self.take("I")
        value, self.body = self.body[:length], self.body[length:]
        return value.decode()

    def failure(self):
        names = ("generation", "cause", "code", "rank", "local_rank", "node_rank", "pid",
                 "restart_count", "wall_ns", "uptime_ms", "step")
        found = dict(zip(names, self.take("QBiiiiiIQQq")))
        found |= {"host": self.text(), "error_file": self.text(), "text": self.text()}
        return {**found, "may_loop": self.take("B")[0], "facts": [(self.take("B")[0], self.text()) for _ in range(self.take("B")[0])],
                "end_code": self.take("i")[0], "exception": self.text(), "error": self.take("i")[0]}


def decode(kind, body):
    r = Reader(body)
    if kind == WELCOME:
        out = dict(zip(("heartbeat_ms", "lost_after_ms"), r.take("QQ")), seen_as=r.text(),
                   wall_ns=r.take("Q")[0], host=r.text())
        out |= dict(zip(("instance", "term"), r.take("QQ")))
    elif kind in (CHALLENGE, SERVER_PROOF):
        out = {"bytes": r.raw(32)}
    elif kind == REFUSE:
        out = dict(zip(("code", "version"), r.take("iB")), text=r.text())
    elif kind == WAITING:
        out = dict(zip(("joined", "min", "max", "left_ms", "held_ms", "is_spare"), r.take("IIIQQB")),
                   missing=r.text())
    elif kind == START:
        names = ("generation", "restart_count", "group_rank", "group_world_size", "rank_base",
                 "world_size", "role_rank_base", "role_world_size", "master_port")
        out = dict(zip(names, r.take("QIIIIIIIH")), master_addr=r.text(), master_host=r.text())
        out["addrs"] = [r.text() for _ in range(r.take("B")[0])]
        out |= {"layout": r.text(), "unlike": r.text(), "reach": r.take("B")[0]}
        out["peers"] = [(r.text(), r.text(), r.take("H")[0]) for _ in range(r.take("B")[0])]
        out |= dict(zip(("uses_gloo_scale", "is_new"), r.take("BB")), versions=r.text())
    elif kind == LOSS:
        out = dict(zip(("generation", "losses", "rank", "count", "has_store"), r.take("QIiIB")), text=r.text())
    elif kind == WORLD:
        out = dict(zip(("generation", "epoch", "losses"), r.take("QII")))
        ranks = int.from_bytes(r.raw(512), "little")
        out["ranks"] = [rank for rank in range(4096) if ranks >> rank & 1]
        out |= dict(zip(("store_node", "store_port"), r.take("IH")), store_addr=r.text())
    elif kind == GROW:
        out = dict(zip(("generation", "rank"), r.take("Qi")))
    elif kind == MEMBERS:
        out = dict(zip(("generation", "is_last", "count"), r.take("QBB")))
        out["keys"] = [r.raw(16) for _ in range(out["count"])]
    elif kind == OFFER:
        out = {"key": r.raw(32), "has_munge": r.take("B")[0], "credential": r.text()}
    elif kind == PEER:
        out = {"port": r.take("H")[0]}
    elif kind == TICKET:
        out = dict(zip(("id", "key"), r.take("QQ")))
    elif kind == RESUMED:
        out = dict(zip(("generation", "is_in_world"), r.take("QB")))
    elif kind == HEARTBEAT_ACK:
        out = dict(zip(("generation", "sequence", "step"), r.take("QQq")))
    elif kind == STOP:
        names = ("generation", "reason", "is_final", "restart_count", "max_restarts")
        out = dict(zip(names, r.take("QBBII")), cause=r.failure(), culprit_fate=r.take("B")[0], culprit=r.text())
    elif kind == SIGNAL:
        out = dict(zip(("generation", "signal", "count"), r.take("QiI")), host=r.text())
    elif kind == STACKS:
        names = ("what", "ticket", "asker", "rank", "most", "nodes", "left_out", "node")
        out = dict(zip(names, r.take("BIQiIIII")), host=r.text(), text=r.text())
    elif kind == CHAOS:
        names = ("is_answer", "ticket", "asker", "kind", "target", "signal", "for_ms", "by_ms", "line")
        out = dict(zip(names, r.take("BIQBiiIII")), host=r.text(), text=r.text())
    elif kind == CLOCK:
        out = dict(zip(("agent_ns", "server_ns"), r.take("QQ")))
    elif kind == CALLS:
        out = dict(zip(("generation", "node"), r.take("QI")), host=r.text())
        out |= dict(zip(("rank", "doubt_ns", "wait", "steal", "faults", "mhz", "resent", "gpu_mhz", "gpu_max_mhz",
                         "gpu_slow", "gpu_xid", "count"), r.take("iQIIIIIIIIiB")))
        out["list"] = [r.take("QqQQ") for _ in range(out.pop("count"))]
    elif kind == ABSENT:
        out = dict(zip(("generation", "node"), r.take("QI")), host=r.text(), count=r.take("I")[0], ranks=r.text())
    elif kind == VERDICT:
        names = ("generation", "outcome", "exit_code", "restart_count", "more_failed",
                 "more_stopped", "count")
        out = dict(zip(names, r.take("QBBIIIB")))
        out["failures"] = [r.failure() for _ in range(out.pop("count"))]
    else:
        raise AssertionError(f"the server sent kind {kind}")
    assert r.body == b"", f"bytes behind the fields of kind {kind}"
    return out


def hello(host, run="job", min_nodes=2, max_nodes=2, restarts=0, join_timeout=60000, last_call=30000, heartbeat=200,
          lost_after=60000, nonce=bytes(32), node_unit=0, instance=0, generation=0, job=None):
    """job: (program, user, is_alone, wants_launcher)."""
    return (text(run) + text(host) + struct.pack("<iIIIQQQQ", 1, min_nodes, max_nodes, restarts, join_timeout, last_call,
                                                 heartbeat, lost_after)
            + nonce + struct.pack("<IQQ", node_unit, instance, generation)
            + (b"" if job is None else b"\1" + text(job[0]) + text(job[1]) + bytes(job[2:])))


def hello_frame(host="n", **settings):
    return frame(HELLO, hello(host, **settings))


class Agent:
    """One connection."""

    def __init__(self, port, host="n", address="127.0.0.1", source=""):
        """source: the address from which it connects."""
        self.host = host
        self.sock = socket.create_connection((address, port), 10, (source, 0))
        self.buffer = self.opening = b""

    def send(self, kind, body=b""):
        self.opening += frame(kind, body) if kind in (RESUME, HELLO) else b""
        self.sock.sendall(frame(kind, body))

    def send_raw(self, data):
        self.sock.sendall(data)

    def hello(self, **settings):
        self.send(HELLO, hello(self.host, **settings))
        return self

    def resume(self, ticket, generation, state=RUNNING, attempt=1, **settings):
        """RESUME and HELLO on a new connection, as the member that received this ticket."""
        self.send(RESUME, struct.pack("<QQQBQ", ticket["id"], ticket["key"], generation, state, attempt))
        return self.hello(**settings)

    def prove(self, token, run="job", nonce=b"n" * 32, side="agent", **settings):
        """Sends HELLO and the proof of a token; returns the server's answer and its nonce."""
        self.hello(run=run, nonce=nonce, **settings)
        server_nonce = self.expect(CHALLENGE)["bytes"]
        self.send(PROOF, proof(token, side, run, nonce, server_nonce, self.opening))
        return self.read(), server_nonce

    def join(self, **how):
        self.send(JOIN, join(**how))
        return self

    def fail(self, generation, **what):
        self.send(FAILURE, failure(generation, host=self.host, **what))

    def stopped(self, generation, failures=()):
        nothing_more = struct.pack("<IIIIqqI", *[0] * 7)
        self.send(STOPPED, struct.pack("<Q", generation) + nothing_more + bytes([len(failures)])
                  + b"".join(failures))

    def stopping(self, generation):
        self.send(STOPPING, struct.pack("<QQ", generation, 0))

    def succeeded(self, generation):
        self.send(SUCCEEDED, struct.pack("<Q", generation))

    def leave(self, generation):
        self.send(LEAVE, struct.pack("<Q", generation) + text("told to"))

    def heartbeat(self, generation=0, sequence=1, step=-1, quiet_ms=0):
        tail = struct.pack("<Q", quiet_ms) if quiet_ms else b""
        self.send(HEARTBEAT, struct.pack("<QQq", generation, sequence, step) + tail)

    def stacks(self, what, ticket=5, asker=0, rank=-1, node=99, host="liar", said=""):
        self.send(STACKS, struct.pack("<BIQiIIII", what, ticket, asker, rank, 0, 0, 0, node) + text(host) + text(said))

    def calls(self, generation, list_):
        """Sends calls of rank 5, each (group, number, time, shape). Node and host are wrong: the
        server fills them in."""
        self.send(CALLS, struct.pack("<QI", generation, 99) + text("liar") + struct.pack("<iQ8IiB", 5, 8, 1, 2, 3, 4, 5, 6, 7, 8, 9, len(list_))
                  + b"".join(struct.pack("<QqQQ", *call) for call in list_))

    def absent(self, generation, count, ranks):
        self.send(ABSENT, struct.pack("<QI", generation, 99) + text("liar") + struct.pack("<I", count) + text(ranks))

    def chaos(self, kind, target, ticket=5, asker=0, is_answer=0, said=""):
        self.send(CHAOS, struct.pack("<BIQBiiIII", is_answer, ticket, asker, kind, target, 9, 0, 0, 3) + text("liar")
                  + text(said))

    def metrics(self, generation, *values):
        """values: (rank, name, number)"""
        self.send(METRICS, struct.pack("<QB", generation, len(values)) + b"".join(
            struct.pack("<i", rank) + text(name) + struct.pack("<d", value) for rank, name, value in values))

    def read(self, seconds=10):
        """The next (kind, message), or None at the end of the stream."""
        deadline = time.monotonic() + seconds * ctrun.SLOW
        while True:
            if len(self.buffer) >= 8:
                length = struct.unpack("<I", self.buffer[4:8])[0]
                if len(self.buffer) >= 8 + length:
                    whole, self.buffer = self.buffer[:8 + length], self.buffer[8 + length:]
                    assert whole[:3] == MAGIC + bytes([VERSION])
                    return whole[3], decode(whole[3], whole[8:])
            left = deadline - time.monotonic()
            assert left > 0 and select.select([self.sock], [], [], left)[0], \
                "the server said nothing in time"
            data = self.sock.recv(65536)
            if not data:
                return None
            self.buffer += data

    def expect(self, kind, seconds=10):
        """The next message of this kind; skips those of FOR_LINK."""
        deadline = time.monotonic() + 80 * ctrun.SLOW
        while True:
            assert time.monotonic() < deadline, f"no message of kind {kind} in time"
            got = self.read(seconds)
            assert got is not None, f"the server closed before kind {kind}"
            if got[0] == kind:
                return got[1]
            assert got[0] in FOR_LINK, f"kind {got[0]} before kind {kind}: {got[1]}"

    def expect_alive(self, kind, seconds=30):
        """The next message of this kind; skips all others, and sends heartbeats while none
        arrives."""
        deadline = time.monotonic() + seconds * ctrun.SLOW
        while True:
            if self.buffer or select.select([self.sock], [], [], 0.2)[0]:
                got = self.read()
                assert got is not None, f"the server closed before kind {kind}"
                if got[0] == kind:
                    return got[1]
            else:
                self.heartbeat()
            assert time.monotonic() < deadline, f"no message of kind {kind} in time"

    def read_kind(self, kind):
        """The next message of this kind; skips all others."""
        while True:
            got = self.read()
            assert got is not None, f"the server closed before kind {kind}"
            if got[0] == kind:
                return got[1]

    def expect_ticket(self):
        return self.read_kind(TICKET)

    def expect_end(self):
        """Reads until the server closes the connection; only messages of FOR_LINK may arrive
        before."""
        while True:
            try:
                got = self.read()
            except ConnectionResetError:
                return
            if got is None:
                return
            assert got[0] in FOR_LINK, got

    def close(self):
        self.sock.close()


def live_until_start(*agents, clock=None):
    """Sends heartbeats of all agents until each has received START: a world starts when old leases
    have ended. A clock of the server makes that short. Returns the STARTs in the order of the
    agents."""
    starts = {}

    def started():
        if clock:
            clock.advance(5)  # each agent gets an answer after it: no lease of a minute ends
        for agent in agents:
            if agent in starts:
                continue
            agent.heartbeat()
            kind, message = agent.read()
            while kind not in (HEARTBEAT_ACK, START):
                assert kind in FOR_LINK, (kind, message)
                kind, message = agent.read()
            if kind == START:
                starts[agent] = message
        return len(starts) == len(agents)
    ctrun.wait_until(started, "the next world starts")
    return [starts[agent] for agent in agents]
