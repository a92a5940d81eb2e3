# SPDX-License-Identifier: Apache-2.0
"""Strangers at the port: noise, floods, and peers that are slow or silent cost little, are closed
in time, and are told in one line a kind (T25)."""
import resource
import select
import socket
import struct
import threading
import time
import urllib.request

import ctrun
import fake_agent as wire
import pytest

VALIDATE = b"\x00" + struct.pack("<I", 0x3C85F7CE)
PING = b"\x0d" + struct.pack("<I", 7)
TLS = bytes.fromhex("16030100a5010000a10303") + bytes(160)
BOMB = b"\x00" + struct.pack("<I", 0x3C85F7CE) + b"\x01" + struct.pack("<Q", 512 << 20)


def dial(port):
    return socket.create_connection(("127.0.0.1", port), timeout=20 * ctrun.SLOW)


def is_closed(sock):
    """Reads to the end of the stream; a reset is an end too."""
    try:
        while sock.recv(65536):
            pass
    except ConnectionResetError:
        pass
    return True


def ping(sock):
    """One request of a client that is in order; how long its answer took."""
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
    """Clients in order, which measure how long their requests take until they are asked."""

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


def test_t25_abuse_costs_little_and_good_clients_go_on(daemon, capsys):
    with dial(daemon.port) as first:  # the store exists
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
    for sentence in ("speaks none of our protocols", "what no client of ours sends",
                     "did not say in time"):
        assert 1 <= text.count(sentence) <= 5, text
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
    ctrun.wait_until(lambda: "did not say in time" in daemon.run.err, "the line about it")


def test_silent_connections_beyond_their_maximum_are_closed(daemon):
    wanted = 8192  # CONN_SILENT_MAX
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < wanted + 500:
        pytest.skip(f"the hard limit of open files is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    held = []
    try:
        with dial(daemon.port) as good:
            good.sendall(VALIDATE)
            ping(good)
            held = [dial(daemon.port) for _ in range(wanted)]
            more = dial(daemon.port)
            held.append(more)
            assert is_closed(more)
            ping(good)
            assert not select.select(held[:500], [], [], 0)[0], "some of the first are closed"
            held.pop(0).close()
            late = ctrun.wait_until(lambda: admitted(daemon.port), "room for another one")
            held.append(late)
    finally:
        for sock in held:
            sock.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert "too many connections" in daemon.run.err


def admitted(port):
    sock = dial(port)
    if select.select([sock], [], [], 0.2)[0]:
        sock.close()
        return None
    return sock


def test_connections_beyond_the_maximum_are_closed(start_daemon):
    daemon = start_daemon("--max-connections", "20")
    held = []
    for _ in range(20):
        held.append(dial(daemon.port))
        held[-1].sendall(VALIDATE)
        ping(held[-1])
    with dial(daemon.port) as more:
        assert is_closed(more)
    held.pop().close()
    ctrun.wait_until(lambda: works(daemon.port), "room for another one")
    for sock in held:
        ping(sock)
        sock.close()
    assert daemon.run.err.count("too many connections") >= 1


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
    with urllib.request.urlopen(f"http://127.0.0.1:{daemon.port}/metrics", timeout=10) as reply:
        assert 'ctrund_refused_total{reason="foreign"} 1' in reply.read().decode()
