# SPDX-License-Identifier: Apache-2.0
"""Only the nodes of the run may use the worker store: other clients are refused (T25)."""
import time

import ctrun

# Prints how a TCPStore of torch >= 2.2 answers: "pong", or "refused".
CLIENT = r"""
import socket, struct, sys
try:
    with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=60) as sock:
        sock.sendall(b"\x00\xce\xf7\x85\x3c\x0d" + struct.pack("<I", 7))
        print("pong" if sock.recv(4) == struct.pack("<I", 7) else "refused")
except ConnectionError:
    print("refused")
"""
# A worker that runs until the file GO exists.
WORKER = """
import os, time
while not os.path.exists(os.environ["GO"]):
    time.sleep(0.01)
"""


class World:
    """node1 and node2 have workers; node3 is not in the run."""

    def __init__(self, box, hosts, *options):
        self.box, self.hosts = box, hosts
        self.go = box.path("go")
        worker, self.client = box.write("worker.py", WORKER), box.write("client.py", CLIENT)
        self.runs = [hosts.start(node, ctrun.program("ctrun"), "--nnodes=2",
                                 "--rdzv-endpoint=10.77.0.11:29400", "--rdzv-id=w", *options, worker,
                                 env={"GO": str(self.go)}) for node in ("node1", "node2")]
        pids = box.wait_workers(2)
        env = ctrun.environment(pids[0])
        self.master = (env["MASTER_ADDR"], env["MASTER_PORT"])

    def ask(self, node, master=None):
        run = self.hosts.start(node, "python3", self.client, *(master or self.master))
        assert run.wait() == 0, run
        return run.out.strip()

    def end(self):
        self.go.touch()
        assert [run.wait() for run in self.runs] == [0, 0], self.runs


def test_t25_only_nodes_of_the_run_may_use_the_workers_store(box, lab):
    world = World(box, lab(3))
    began = time.monotonic()
    assert world.ask("node1") == "pong" and world.ask("node2") == "pong"
    for _ in range(5):
        assert world.ask("node3") == "refused"
    assert world.ask("node2") == "pong"
    world.end()
    line = "refused 10.77.0.13: it is not a node of this run"
    assert 1 <= world.runs[0].err.count(line) <= 1 + (time.monotonic() - began) // 10, world.runs[0]  # CT_SELDOM_MS


def test_t25_the_static_endpoint_keeps_to_its_nodes_too(box, lab):
    hosts = lab(3)
    go, worker = box.path("go"), box.write("worker.py", WORKER)
    runs = [hosts.start(f"node{n + 1}", ctrun.program("ctrun"), "--nnodes=2", f"--node-rank={n}",
                        "--master-addr=10.77.0.11", "--master-port=29555", worker,
                        env={"GO": str(go)}) for n in (0, 1)]
    box.wait_workers(2)
    client = box.write("client.py", CLIENT)
    answers = {}
    for node in ("node1", "node2", "node3"):
        run = hosts.start(node, "python3", client, "10.77.0.11", "29555")
        assert run.wait() == 0, run
        answers[node] = run.out.strip()
    assert answers == {"node1": "pong", "node2": "pong", "node3": "refused"}
    go.touch()
    assert [run.wait() for run in runs] == [0, 0], runs


def test_store_access_any_lets_everybody_in(box, lab):
    world = World(box, lab(3), "--store-access=any")
    assert world.ask("node3") == "pong"
    world.end()


def test_t25_listeners_are_bound_to_what_the_run_uses(box, lab):
    """The worker store to the chosen network, the rendezvous to its endpoint, none to all
    addresses."""
    hosts = lab(2, nics=2)
    world = World(box, hosts, "--net=10.78.0.0/24")
    found = {line.split()[3] for line in hosts.sh("node1", "ss -Hltn").split("\n") if line}
    assert found == {"10.77.0.11:29400", f"10.78.0.11:{world.master[1]}"}
    world.end()


def test_t25_one_node_listens_to_loopback_alone(box, lab):
    hosts = lab(1)
    go = box.path("go")
    run = hosts.start("node1", ctrun.program("ctrun"), "--standalone", "--nproc-per-node=2",
                      box.write("worker.py", WORKER), env={"GO": str(go)})
    box.wait_workers(2)
    found = [line.split()[3] for line in hosts.sh("node1", "ss -Hltn").split("\n") if line]
    assert found and all(place.startswith("127.0.0.1:") for place in found), found
    go.touch()
    assert run.wait() == 0, run
