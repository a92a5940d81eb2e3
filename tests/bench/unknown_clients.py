#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What clients that do not belong to the run cost the agents at the same port: an agent's heartbeat goes to a ctrund and
back while one flood after the other runs beside it.

usage: unknown_clients.py [--seconds N] [--token] [FLOOD ...]

With --token those of stock torchrun agents, which have none, are left out. One line a flood: how long the answer to a heartbeat took (median, 99 of 100, longest), how far the
memory of ctrund grew, how much it wrote to its log, what the flood got done, and how much CPU time each of
that cost ctrund. The floods share the processors with ctrund; the first line, without a flood, is what the
machine itself costs. At most 32 connections are taken before heartbeats are read again: on a machine that
does other work, too, the CPU time tells more than the wait."""
import argparse
import itertools
import os
import pathlib
import resource
import select
import socket
import struct
import subprocess
import sys
import tempfile
import time

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1] / folder) for folder in ("lib", "server")]
import ctrun  # noqa: E402
import fake_agent as wire  # noqa: E402

HALF = wire.MAGIC + struct.pack("<BBI", wire.VERSION, wire.HELLO, 60000) + bytes(53000)
# Of the right run and with a token: the server asks for a proof, which does not come.
UNPROVEN = wire.frame(wire.HELLO, wire.text("job") + wire.text("x")
                      + struct.pack("<iIIIQQQQ", 1, 1, 2, 0, 60000, 30000, 200, 60000) + b"n" * 32 + bytes(20))
# ... and on an encrypted link: the server makes a pair of keys for each.
SEALED = wire.frame(wire.OFFER, b"k" * 32 + bytes(1) + wire.text("")) + UNPROVEN
REFUSED = wire.frame(wire.HELLO, wire.text("job") + wire.text("x") + bytes(92))
TOKEN = "a token of the bench, 32 letters"


def dial(port):
    sock = socket.socket()
    sock.setblocking(False)
    sock.connect_ex(("127.0.0.1", port))
    return sock


def keep(port, data, count, again=False):
    """`count` connections that send `data`, once or as often as possible, and read nothing."""
    socks = []
    for round_ in itertools.count():
        if len(socks) < count:
            socks += [dial(port) for _ in range(min(200, count - len(socks)))]
        if round_ % 10 == 0 or len(socks) < count:
            for sock in socks if again else socks[-200:]:
                try:
                    sock.send(data)
                except OSError:
                    pass
        yield len(socks)


def come_and_go(port, data):
    for count in itertools.count(1):
        sock = dial(port)
        select.select([], [sock], [], 0.2)
        try:
            sock.send(data)
        except OSError:
            pass
        sock.close()
        yield count


def replace(port, data):
    """As many open ones as the system permits; the oldest is closed for the next."""
    socks = []
    for count in itertools.count(1):
        socks.append(dial(port))
        if data and len(socks) > 50:
            try:
                socks[-50].send(data)
            except OSError:
                pass
        if len(socks) > 12000:
            socks.pop(0).close()
        yield count


def runs(port):
    """Each makes a run with a world, and with a lease that does not end, and closes its
    connection."""
    join = wire.frame(wire.JOIN, wire.join())
    for count in itertools.count(1):
        hello = wire.text(f"r{count}") + wire.text("x") + struct.pack("<iIIIQQQQ", 1, 1, 1, 0, 60000, 0, 200, 10**15)
        sock = socket.create_connection(("127.0.0.1", port))
        sock.sendall(wire.frame(wire.HELLO, hello + bytes(32) + bytes(20)) + join)
        try:
            sock.recv(100)
        except OSError:
            pass
        sock.close()
        yield count


FLOODS = {
    "none": None,
    "idle": lambda port: keep(port, b"", 12000),
    "status unread": lambda port: keep(port, b"GET /status HTTP/1.1\r\n\r\n", 13000),
    "metrics churn": lambda port: come_and_go(port, b"GET /metrics HTTP/1.1\r\n\r\n"),
    "half frames": lambda port: keep(port, HALF, 9000),
    "come and go": lambda port: come_and_go(port, b"\x16"),
    "idle churn": lambda port: replace(port, b""),
    "refused": lambda port: come_and_go(port, REFUSED),
    "unproven": lambda port: come_and_go(port, UNPROVEN),
    "unproven held": lambda port: replace(port, UNPROVEN),
    "sealed held": lambda port: replace(port, SEALED),
    "runs": runs,
    "stock leave": lambda port: stock_agents(port, 200, False, 1000000),
    "stock keys": lambda port: stock_agents(port, 1, True, 1000000),
    "version": lambda port: come_and_go(port, wire.frame(wire.HELLO, b"", 9)),
}


def stock_agents(port, runs, own_keys, keys):
    """Stock torchrun agents, each the only one of its run, come and leave; the store has many keys,
    theirs or those of others."""
    def request(kind, *words):
        return bytes([kind]) + b"".join(struct.pack("<Q", len(word)) + word for word in words)

    def agent(name):
        sock = socket.create_connection(("127.0.0.1", port))
        sock.sendall(b"\x00\xce\xf7\x85\x3c" + request(2, b"/torch.rendezvous." + name, b"", b"x"))
        return sock

    def fill(sock, prefix):
        for first in range(0, keys, 10000):
            sock.sendall(b"".join(request(1, b"%s%d" % (prefix, n), b"v") for n in range(first, first + 10000)))
        sock.sendall(request(3, b"%s0" % prefix))
        sock.recv(100)

    if not own_keys:
        filler = socket.create_connection(("127.0.0.1", port))
        filler.sendall(b"\x00\xce\xf7\x85\x3c")
        fill(filler, b"key")
    for count in itertools.count(1):
        agents = [agent(b"r%d" % n) for n in range(runs)]
        if own_keys:
            fill(agents[0], b"/torch.rendezvous.r0.0/")
        for sock in agents:
            sock.recv(100)
        yield 1000 * count
        for sock in agents:
            sock.close()


def flood(name, port):
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    for done in FLOODS[name](port):
        print(done, flush=True) if done % 1000 == 0 else None
        if name in ("idle", "half frames", "status unread"):
            time.sleep(0.005)


def rss(pid):
    text = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(text.partition("VmRSS:")[2].split()[0])


def cpu_us(pid):
    return int(pathlib.Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[0]) / 1e3


def beat(agent, seconds):
    times, sequence, end = [], 0, time.monotonic() + seconds
    while time.monotonic() < end:
        sequence += 1
        began = time.monotonic()
        agent.heartbeat(generation=1, sequence=sequence)
        while agent.read_kind(wire.HEARTBEAT_ACK)["sequence"] != sequence:
            pass
        times.append(time.monotonic() - began)
        time.sleep(0.01)
    return sorted(times)


def measure(name, seconds, token, members):
    with tempfile.TemporaryDirectory() as folder:
        log = open(os.path.join(folder, "log"), "wb")
        words = [ctrun.program("ctrund"), "--listen=127.0.0.1:0"]
        env = {**os.environ, "CTRUN_TOKEN": TOKEN} if token else os.environ
        daemon = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, env=env)
        port = int(daemon.stdout.readline().rpartition(b":")[2])
        agents = [wire.Agent(port, f"n{i}") for i in range(members)]
        for agent in agents:
            if token:
                agent.prove(TOKEN.encode())
            else:
                agent.hello(min_nodes=members, max_nodes=members)
            agent.join()
        agents[0].read_kind(wire.START)
        before = rss(daemon.pid)
        child = None
        if FLOODS[name]:
            child = subprocess.Popen([sys.executable, __file__, "--flood", name, "--port", str(port)],
                                     stdout=subprocess.PIPE)
            child.stdout.readline()
        used = cpu_us(daemon.pid)
        times = beat(agents[0], seconds)
        used = cpu_us(daemon.pid) - used
        grown, done = rss(daemon.pid) - before, 0
        if child:
            child.kill()
            done = int((child.stdout.read().split() or [b"0"])[-1])
        print(f"{name:16}{len(times):7}{times[len(times) // 2] * 1e3:9.1f}"
              f"{times[len(times) * 99 // 100] * 1e3:9.1f}{times[-1] * 1e3:9.1f}{grown / 1024:9.1f}"
              f"{os.fstat(log.fileno()).st_size / 1024:9.1f}{done:9}{used / done if done else 0:9.1f}", flush=True)
        daemon.kill()
        daemon.wait()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--token", action="store_true")
    parser.add_argument("--members", type=int, default=2)
    parser.add_argument("--flood")
    parser.add_argument("--port", type=int)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    if options.flood:
        flood(options.flood, options.port)
        return
    print("flood             beats   p50 ms   p99 ms   max ms      MiB  log KiB     done  us each")
    stock = {name for name in FLOODS if name.startswith("stock") and options.token}  # refused with their first byte
    for name in options.names or [name for name in FLOODS if name not in stock]:
        measure(name, options.seconds, options.token, options.members)


if __name__ == "__main__":
    main()
