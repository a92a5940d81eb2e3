# SPDX-License-Identifier: Apache-2.0
"""--survive over several nodes: what an agent and its rendezvous server send each other."""
import os
import signal
import socket
import sys

import ctrun
import rendezvous
from elastic import AGENT

WORKER = AGENT + r"""
if rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
losses, length = struct.unpack_from("<II", hear(38))
say(39, struct.pack("<I", 0))
world = hear(46)
port, length = struct.unpack_from("<HI", world, 520)
print(losses, struct.unpack_from("<II", world), ranks_of(world),
      f"{world[526:526 + length].decode()}:{port}")
"""
STORE = {"store_node": 1, "store_port": 4242, "store_addr": "n9"}


def bits(*ranks):
    return sum(1 << rank for rank in ranks).to_bytes(512, "little")


def test_a_lost_rank_is_told_and_the_answer_of_all_nodes_is_waited_for(box):
    with rendezvous.Rendezvous(workers=2) as server:
        run = box.start_ctrun("--nnodes=1:2", "--nproc-per-node=2", "--rdzv-backend=c10d",
                              f"--rdzv-endpoint={server.address}", "--rdzv-id=J", "--rdzv-conf=is_host=0",
                              "--survive=sdk", box.write("worker.py", WORKER), env={"PYTHON_EXEC": sys.executable})
        loss, = server.wait_for("LOSS")
        assert (loss["generation"], loss["losses"], loss["rank"]) == (1, 0, 1), loss
        assert "rank 1 (pid " in loss["text"] and "signal 9" in loss["text"]
        assert not server.received("STILL")
        server.send("LOSS", **{**loss, "generation": 2, "losses": 7})  # not of this round
        server.send("LOSS", **{**loss, "losses": 3})
        still, = server.wait_for("STILL")
        assert still == {"generation": 1, "epoch": 0, "ranks": bits(0)}
        server.send("WORLD", generation=2, epoch=9, losses=3, ranks=bits(0), **STORE)
        server.send("WORLD", generation=1, epoch=2, losses=3, ranks=bits(0, 5), **STORE)
        assert run.wait(60) == 0, run
        assert run.out == "3 (2, 3) [0, 5] n9:4242\n"
        assert box.wait_event("worker_store_moved")[0]["master_port"] == 4242
        assert not server.received("FAILURE")


# Waits twice for a store that never answers, and then asks who continues.
WAITER = AGENT + r"""
for _ in range(2):
    store = socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
    assert store.recv(1) == b""
say(39, struct.pack("<I", 0))
"""


def test_who_waits_for_a_store_that_is_lost_is_freed_again_and_again(box):
    """Also with --survive=sdk, and where no list of hosts has arrived."""
    with socket.create_server(("127.0.0.1", 0)) as store, rendezvous.Rendezvous(workers=1) as server:
        server.master_port = store.getsockname()[1]
        run = box.start_ctrun("--nnodes=1:2", "--nproc-per-node=1", "--rdzv-backend=c10d",
                              f"--rdzv-endpoint={server.address}", "--rdzv-id=J", "--rdzv-conf=is_host=0",
                              "--survive=sdk", box.write("worker.py", WAITER), env={"PYTHON_EXEC": sys.executable})
        store.settimeout(60)
        peers = [store.accept()[0]]
        server.send("LOSS", generation=1, losses=1, rank=5, count=1, has_store=1, text="rank 5 is lost")
        peers.append(store.accept()[0])
        server.wait_for("STILL")
        assert run.wait(60) == 0, run
        for peer in peers:
            peer.close()


# The first worker waits for ever, as for a store.
JOINER = r"""
import os, time
port = os.environ["MASTER_PORT"]
print("store", port, flush=True)
if port == "29500":
    time.sleep(1000)
""" + AGENT + r"""
say(39, struct.pack("<I", 0))
hear(46)
"""


def test_a_new_worker_that_has_not_asked_is_started_again_when_the_store_moves(box):
    """--survive-replace=1 allows one more worker: the one that is started again does not count."""
    with rendezvous.Rendezvous(workers=1) as server:
        server.is_new = 1
        run = box.start_ctrun("--nnodes=1:2", "--nproc-per-node=1", "--rdzv-backend=c10d",
                              f"--rdzv-endpoint={server.address}", "--rdzv-id=J", "--rdzv-conf=is_host=0",
                              "--survive=torch", "--survive-replace=1", box.write("worker.py", JOINER),
                              env={"PYTHON_EXEC": sys.executable})
        ctrun.wait_until(lambda: "store 29500" in run.out, lambda: f"the first one\n{run}", 60)
        server.send("WORLD", generation=1, epoch=1, losses=1, ranks=bits(5, 6), **{**STORE, "store_port": 29500,
                    "store_addr": "127.0.0.1"})
        server.send("WORLD", generation=1, epoch=2, losses=2, ranks=bits(6), **STORE)
        server.wait_for("GROW", seconds=60)
        server.send("WORLD", generation=1, epoch=3, losses=2, ranks=bits(0, 6), **STORE)
        assert run.wait(60) == 0, run
        assert run.out == "store 29500\nstore 4242\n"
        assert not box.events("rank_replacing") and not server.received("FAILURE")


# Prints the first world that it receives.
ASKER = AGENT + r"""
say(39, struct.pack("<I", 0))
body = hear(46)
print([i for i in range(4096) if body[8 + i // 8] >> i % 8 & 1])
"""


def test_a_new_worker_that_asked_when_a_world_was_decided_waits_for_the_next_one(box):
    """It is not in that world, and the agent sends GROW again."""
    with rendezvous.Rendezvous(workers=1) as server:
        server.is_new = 1
        run = box.start_ctrun("--nnodes=1:2", "--nproc-per-node=1", "--rdzv-backend=c10d",
                              f"--rdzv-endpoint={server.address}", "--rdzv-id=J", "--rdzv-conf=is_host=0",
                              "--survive=sdk", "--survive-replace=1", box.write("worker.py", ASKER),
                              env={"PYTHON_EXEC": sys.executable})
        server.wait_for("GROW", seconds=60)
        for epoch in (1, 2):
            server.send("WORLD", generation=1, epoch=epoch, losses=1, ranks=bits(5, 6), **STORE)
        server.wait_for("GROW", 2, seconds=60)
        server.send("WORLD", generation=1, epoch=3, losses=1, ranks=bits(0, 5, 6), **STORE)
        assert run.wait(60) == 0, run
        assert run.out == "[0, 5, 6]\n" and not server.received("LOSS"), run


# The first worker never asks, and is killed.
IMPORTER = ASKER.replace("say(39", """if not os.path.exists("first"):
    open("first", "w").close()
    os.read(os.pipe()[0], 1)
say(39""")


def test_a_new_worker_that_fails_while_a_loss_is_undecided_is_replaced(box):
    """The agent does not wait for the decision: without a worker the node would end before."""
    with rendezvous.Rendezvous(workers=1) as server:
        server.is_new = 1
        run = box.start_ctrun("--nnodes=1:2", "--nproc-per-node=1", "--rdzv-backend=c10d",
                              f"--rdzv-endpoint={server.address}", "--rdzv-id=J", "--rdzv-conf=is_host=0",
                              "--survive=sdk", "--survive-replace=1", box.write("worker.py", IMPORTER),
                              env={"PYTHON_EXEC": sys.executable})
        first = box.wait_event("worker_started")[0]
        ctrun.wait_until(box.path("first").exists, lambda: f"it has said hello\n{run}", 60)
        server.send("WORLD", generation=1, epoch=1, losses=1, ranks=bits(5, 6), **STORE)
        server.send("LOSS", generation=1, losses=2, rank=-1, count=1, has_store=0, text="a node is lost")
        box.wait_event("ranks_lost")
        os.kill(first["worker_pid"], signal.SIGKILL)
        server.wait_for("GROW", seconds=60)
        server.send("WORLD", generation=1, epoch=2, losses=2, ranks=bits(0, 5), **STORE)
        assert run.wait(60) == 0, run
        assert run.out == "[0, 5]\n" and not server.received("LOSS"), run


def test_a_node_whose_ranks_are_all_lost_waits_and_does_not_say_that_they_succeeded(box):
    with rendezvous.Rendezvous(workers=1) as server:
        run = box.start_ctrun("--nnodes=1:2", "--nproc-per-node=1", "--rdzv-backend=c10d",
                              f"--rdzv-endpoint={server.address}", "--rdzv-id=J", "--rdzv-conf=is_host=0", "--survive=sdk",
                              box.write("worker.py", AGENT + "say(39, struct.pack('<I', 0)); hear(46); os.kill(os.getpid(), signal.SIGKILL)"),
                              env={"PYTHON_EXEC": sys.executable})
        server.wait_for("STILL")
        server.send("WORLD", generation=1, epoch=1, losses=0, ranks=bits(0, 5), **STORE)
        loss, = server.wait_for("LOSS")
        server.send("LOSS", **{**loss, "losses": 1})
        server.wait_for("STILL", 2)
        server.send("WORLD", generation=1, epoch=2, losses=1, ranks=bits(5), **STORE)
        assert run.wait(60) == 0, run
        why = "all workers are lost"
        assert [(event["to"], event["why"]) for event in box.events("agent_state")][-3:-1] == \
            [("stopping", why), ("no_workers", why)]


def test_nobody_is_left(box):
    """When the ranks of other nodes are lost too, the first loss is a failure like any other."""
    with rendezvous.Rendezvous(workers=2) as server:
        run = box.start_ctrun("--nnodes=1:2", "--nproc-per-node=2", "--rdzv-backend=c10d",
                              f"--rdzv-endpoint={server.address}", "--rdzv-id=J", "--rdzv-conf=is_host=0",
                              "--survive=sdk", box.write("worker.py", WORKER), env={"PYTHON_EXEC": sys.executable})
        server.wait_for("LOSS")
        server.send("WORLD", generation=1, epoch=1, losses=2, ranks=bits(), **STORE)
        failure, = server.wait_for("FAILURE")
        assert (failure["cause"], failure["code"], failure["rank"]) == (rendezvous.SIGNAL, 9, 1), failure
        assert run.wait(60) == 137, run
