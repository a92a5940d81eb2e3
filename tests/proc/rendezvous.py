# SPDX-License-Identifier: Apache-2.0
"""A rendezvous server that a test controls: one agent, rounds as of a real server, and on demand
silence, refusal, stale messages or a broken connection. It has its own codec of
worker_sdk/wire/message.h, so that a mistake in the codec of the agent makes a test fail."""
import socket
import struct
import threading

import ctrun

FAILURE = (("generation", "Q"), ("cause", "B"), ("code", "i"), ("rank", "i"), ("local_rank", "i"),
           ("node_rank", "i"), ("pid", "i"), ("restart_count", "I"), ("wall_ns", "Q"),
           ("uptime_ms", "Q"), ("step", "q"), ("host", "s"), ("error_file", "s"), ("text", "s"),
           ("may_loop", "B"), ("facts", (("key", "B"), ("text", "s"))),
           ("end_code", "i"), ("exception", "s"), ("error", "i"))
HEARTBEAT = (("generation", "Q"), ("sequence", "Q"), ("step", "q"))
KINDS = {
    "HELLO": (1, (("run_id", "s"), ("host", "s"), ("pid", "i"), ("min_nodes", "I"),
                  ("max_nodes", "I"), ("max_restarts", "I"), ("join_timeout_ms", "Q"),
                  ("last_call_ms", "Q"), ("heartbeat_ms", "Q"), ("lost_after_ms", "Q"),
                  ("nonce", "32s"), ("node_unit", "I"), ("instance", "Q"),
                  ("generation", "Q"))),
    "WELCOME": (2, (("heartbeat_ms", "Q"), ("lost_after_ms", "Q"), ("seen_as", "s"),
                    ("wall_ns", "Q"), ("host", "s"), ("instance", "Q"), ("term", "Q"))),
    "REFUSE": (3, (("code", "i"), ("version", "B"), ("text", "s"))),
    "JOIN": (8, (("slots", "I"), ("node_rank_hint", "i"), ("is_endpoint", "B"),
                 ("store_port", "H"), ("fingerprint", "Q"), ("role", "s"), ("local_addr", "s"),
                 ("addrs", (("addr", "s"),)), ("program", "Q"), ("knows_gloo_scale", "B"),
                 ("survive_ms", "Q"), ("replaces", "B"), ("torch", "s"), ("driver", "s"))),
    "WAITING": (9, (("joined", "I"), ("min_nodes", "I"), ("max_nodes", "I"), ("left_ms", "Q"),
                    ("held_ms", "Q"), ("is_spare", "B"), ("missing", "s"))),
    "START": (10, (("generation", "Q"), ("restart_count", "I"), ("group_rank", "I"),
                   ("group_world_size", "I"), ("rank_base", "I"), ("world_size", "I"),
                   ("role_rank_base", "I"), ("role_world_size", "I"), ("master_port", "H"),
                   ("master_addr", "s"), ("master_host", "s"), ("addrs", (("addr", "s"),)),
                   ("layout", "s"), ("unlike", "s"), ("reach", "B"),
                   ("peers", (("host", "s"), ("addr", "s"), ("port", "H"))),
                   ("uses_gloo_scale", "B"), ("is_new", "B"), ("versions", "s"))),
    "HEARTBEAT": (11, HEARTBEAT),
    "HEARTBEAT_ACK": (12, HEARTBEAT),
    "FAILURE": (13, FAILURE),
    "STOP": (14, (("generation", "Q"), ("reason", "B"), ("is_final", "B"),
                  ("restart_count", "I"), ("max_restarts", "I")) + FAILURE
             + (("culprit_fate", "B"), ("culprit", "s"))),
    "STOPPED": (15, (("generation", "Q"), ("more_failed", "I"), ("more_stopped", "I"),
                     ("ranks", "I"), ("waiting", "I"), ("lowest", "q"), ("furthest", "q"),
                     ("waiting_ranks", "s"), ("failures", FAILURE))),
    "SUCCEEDED": (16, (("generation", "Q"),)),
    "VERDICT": (17, (("generation", "Q"), ("outcome", "B"), ("exit_code", "B"),
                     ("restart_count", "I"), ("more_failed", "I"), ("more_stopped", "I"),
                     ("failures", FAILURE))),
    "LEAVE": (18, (("generation", "Q"), ("reason", "s"))),
    "CLOSE": (19, (("exit_code", "B"), ("reason", "s"))),
    "STOPPING": (20, (("generation", "Q"), ("grace_ms", "Q"))),
    "RESUME": (21, (("id", "Q"), ("key", "Q"), ("generation", "Q"), ("state", "B"), ("attempt", "Q"))),
    "RESUMED": (22, (("generation", "Q"), ("is_in_world", "B"))),
    "TICKET": (23, (("id", "Q"), ("key", "Q"))),
    "PEER": (25, (("port", "H"),)),
    "LOSS": (56, (("generation", "Q"), ("losses", "I"), ("rank", "i"), ("count", "I"), ("has_store", "B"), ("text", "s"))),
    "STILL": (57, (("generation", "Q"), ("epoch", "I"), ("ranks", "512s"))),
    "WORLD": (58, (("generation", "Q"), ("epoch", "I"), ("losses", "I"), ("ranks", "512s"), ("store_node", "I"),
                   ("store_port", "H"), ("store_addr", "s"))),
    "GROW": (69, (("generation", "Q"), ("rank", "i"))),
    "STACKS": (60, (("what", "B"), ("ticket", "I"), ("asker", "Q"), ("rank", "i"), ("most", "I"), ("nodes", "I"),
                    ("left_out", "I"), ("node", "I"), ("host", "s"), ("text", "s"))),
    "CHAOS": (66, (("is_answer", "B"), ("ticket", "I"), ("asker", "Q"), ("kind", "B"), ("target", "i"), ("signal", "i"),
                   ("for_ms", "I"), ("by_ms", "I"), ("line", "I"), ("host", "s"), ("text", "s"))),
    "RELOAD": (64, (("number", "Q"), ("step", "B"), ("ticket", "I"), ("program", "Q"), ("by", "s"), ("text", "s"),
                    ("command", "s"))),
    "CLOCK": (67, (("agent_ns", "Q"), ("server_ns", "Q"))),
    "CALLS": (68, (("generation", "Q"), ("node", "I"), ("host", "s"), ("rank", "i"), ("doubt_ns", "Q"), ("wait_permille", "I"),
                   ("steal_permille", "I"), ("faults", "I"), ("mhz", "I"), ("resent", "I"),
                   ("gpu_mhz", "I"), ("gpu_max_mhz", "I"), ("gpu_slow", "I"), ("gpu_xid", "i"),
                   ("list", (("group", "Q"), ("number", "q"), ("entered_ns", "Q"), ("shape", "Q"))))),
    "ABSENT": (70, (("generation", "Q"), ("node", "I"), ("host", "s"), ("count", "I"), ("ranks", "s"))),
    "METRICS": (47, (("generation", "Q"), ("list", (("rank", "i"), ("name", "s"), ("value", "d"))))),
}
NAMES = {number: name for name, (number, _) in KINDS.items()}
EXIT, SIGNAL, OOM, EXEC, STOPPED = 1, 2, 3, 4, 5  # enum ct_cause
FACT_LIMIT, FACT_PROOF = 7, 10  # enum ct_fact_key
NO_FAILURE = {name: [] if isinstance(kind, tuple) else "" if kind == "s" else 0 for name, kind in FAILURE}


def encode_fields(fields, values):
    out = b""
    for name, kind in fields:
        value = values[name]
        if isinstance(kind, tuple):
            out += bytes([len(value)]) + b"".join(encode_fields(kind, one) for one in value)
        elif kind == "s":
            raw = value.encode()
            out += struct.pack("<I", len(raw)) + raw
        else:
            out += struct.pack("<" + kind, value)
    return out


def decode_fields(fields, data, at):
    values = {}
    for name, kind in fields:
        if isinstance(kind, tuple):
            count, at, values[name] = data[at], at + 1, []
            for _ in range(count):
                one, at = decode_fields(kind, data, at)
                values[name].append(one)
        elif kind == "s":
            (length,) = struct.unpack_from("<I", data, at)
            values[name] = data[at + 4:at + 4 + length].decode(errors="replace")
            at += 4 + length
        else:
            (values[name],) = struct.unpack_from("<" + kind, data, at)
            at += struct.calcsize("<" + kind)
    return values, at


def take_tail(name, fields, tail):
    """The optional end of a message: how long ago each failure was, or how long no worker of the
    node has made progress."""
    if name == "HELLO":
        return  # the job that a whole ctrun sends: not used here
    if name == "HEARTBEAT" and tail:
        (fields["quiet_ms"],) = struct.unpack("<Q", tail)
        assert fields["quiet_ms"] > 0
        return
    failures = {"FAILURE": [fields], "STOPPED": fields.get("failures")}.get(name, [])
    ages = struct.unpack(f"<{len(failures)}Q", tail) if tail else [0] * len(failures)
    assert not tail or any(ages)
    for failure, age_ms in zip(failures, ages):
        failure["age_ms"] = age_ms


def encode(name, values):
    number, fields = KINDS[name]
    body = encode_fields(fields, values)
    return bytes([0xC7, 0x52, 8, number]) + struct.pack("<I", len(body)) + body


class Rendezvous:
    """`with Rendezvous(max_restarts=1) as server:`; attributes may be changed at any time."""

    def __init__(self, workers=2, max_restarts=0, heartbeat_ms=1000, lost_after_ms=5000,
                 is_direct=False):
        self.is_direct = is_direct  # answers PEER: the connection is direct
        self.workers = workers
        self.max_restarts = max_restarts
        self.heartbeat_ms = heartbeat_ms
        self.lost_after_ms = lost_after_ms
        self.is_silent = False   # reads everything, answers nothing
        self.starts_rounds = True
        self.refuse = None       # (code, text) instead of WELCOME
        self.is_shut = False     # every connection ends at its HELLO
        self.gives_tickets = False  # a broken connection may be resumed
        self.resume = None       # came in front of the next HELLO
        self.instance = 1
        self.generation = 0
        self.master_port = 29500
        self.is_new = 0
        self.nodes = 1           # in START, each with as many workers
        self.group_rank = 0      # of the agent
        self.restarts = 0
        self.messages = []       # (name, fields), in order of arrival
        self.failures = []
        self.is_over = None      # (outcome, exit code) once a final STOP was sent
        self.connection = None
        self.connections = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.is_silent = True
        try:
            self.listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the test has closed it
        self.drop()
        self.thread.join(10)
        self.listener.close()

    def drop(self):
        """Breaks the connection."""
        if self.connection:
            try:
                self.connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def received(self, name):
        return [fields for kind, fields in list(self.messages) if kind == name]

    def wait_for(self, name, count=1, seconds=20):
        def have():
            found = self.received(name)
            return found if len(found) >= count else None
        return ctrun.wait_until(
            have, lambda: f"{count} {name}; got {[kind for kind, _ in self.messages]}", seconds)

    def send(self, name, **values):
        if not self.is_silent:
            self.connection.sendall(encode(name, values))

    def start_round(self):
        self.generation += 1
        self.send("START", generation=self.generation, restart_count=self.restarts, group_rank=self.group_rank,
                  group_world_size=self.nodes, rank_base=self.workers * self.group_rank,
                  world_size=self.workers * self.nodes, role_rank_base=0,
                  role_world_size=self.workers * self.nodes, master_port=self.master_port, master_addr="127.0.0.1",
                  master_host="n0", addrs=(), layout=str(self.workers), unlike="", reach=0,
                  peers=(), uses_gloo_scale=0, is_new=self.is_new, versions="")

    def stop_round(self, generation=None, reason=1, is_final=0, cause=None):
        self.send("STOP", **{**NO_FAILURE, **(cause or {}),
                             "generation": generation or self.generation, "reason": reason,
                             "is_final": is_final, "restart_count": self.restarts,
                             "max_restarts": self.max_restarts, "culprit_fate": 0, "culprit": ""})

    def give_verdict(self, outcome, exit_code):
        self.send("VERDICT", generation=self.generation, outcome=outcome, exit_code=exit_code,
                  restart_count=self.restarts, more_failed=0, more_stopped=0,
                  failures=self.failures[:16])

    def _serve(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connection = connection
            self.connections += 1
            try:
                self._converse(connection)
            except OSError:
                pass
            except Exception:  # a malformed message: accept no further connection
                self.listener.close()
                raise
            finally:
                connection.close()

    def _converse(self, connection):
        data = b""
        while True:
            while len(data) >= 8:
                (length,) = struct.unpack_from("<I", data, 4)
                if len(data) < 8 + length:
                    break
                name = NAMES[data[3]]
                fields, end = decode_fields(KINDS[name][1], data[8:8 + length], 0)
                take_tail(name, fields, data[8 + end:8 + length])
                data = data[8 + length:]
                self._take(name, fields)
            more = connection.recv(65536)
            if not more:
                return
            data += more

    def _take(self, name, fields):
        self.messages.append((name, fields))
        react = getattr(self, "_on_" + name.lower(), None)
        if react:
            react(fields)

    def _on_resume(self, fields):
        self.resume = fields

    def _on_hello(self, _):
        if self.is_shut:
            self.drop()
        elif self.refuse:
            self.send("REFUSE", code=self.refuse[0], version=1, text=self.refuse[1])
        else:
            self.send("WELCOME", heartbeat_ms=self.heartbeat_ms,
                      lost_after_ms=self.lost_after_ms, seen_as="127.0.0.1", wall_ns=0,
                      host="service1", instance=self.instance, term=0)
            if self.resume:
                self.send("RESUMED", generation=self.generation, is_in_world=0)
            elif self.gives_tickets:
                self.send("TICKET", id=1, key=2)
        self.resume = None

    def _on_peer(self, fields):
        if self.is_direct:
            self.send("PEER", port=self.connection.getpeername()[1])

    def _on_join(self, _):
        if self.starts_rounds:
            self.start_round()

    def _on_heartbeat(self, fields):
        self.send("HEARTBEAT_ACK", **fields)

    def _on_failure(self, failure):
        self.failures.append(failure)
        if self.restarts < self.max_restarts:
            self.restarts += 1
            self.stop_round(cause=failure)
            return
        code = failure["code"] + (128 if failure["cause"] in (SIGNAL, OOM) else 0)
        if failure["cause"] == EXEC:
            code = 127
        self.is_over = (2, code)
        self.stop_round(is_final=1, cause=failure)

    def _on_stopped(self, fields):
        self.failures += [one for one in fields["failures"] if one["cause"] == STOPPED]
        if self.is_over:
            self.give_verdict(*self.is_over)

    def _on_succeeded(self, _):
        self.give_verdict(1, 0)
