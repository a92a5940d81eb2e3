# SPDX-License-Identifier: Apache-2.0
"""The agent's link to a rendezvous server that can be reached, is lost, is silent or refuses."""
import os
import signal
import socket
import struct
import time

import ctrun
import pytest
import rendezvous
from clock import Clock
from test_stop import start_hanging


def test_candidates_are_tried_in_order(node):
    server = node.serve()
    run = node.run("exit", "0", server=server,
                   options=["--server", f"127.0.0.1:{ctrun.free_port()}"])
    assert run.code == 0
    run = node.box.run(ctrun.program("agent_harness"), "--server", f"127.0.0.1:{ctrun.free_port()}",
                       "--server", server.address, "--workers", "2", "--", "true")
    assert run.code == 0


def test_nobody_at_the_endpoint_is_told_after_the_timeout(node):
    address = f"127.0.0.1:{ctrun.free_port()}"
    run = node.box.run(ctrun.program("agent_harness"), "--server", address,
                       "--connect-timeout", "200", "--", "true")
    assert run.code == 75
    assert node.result()["error"] == "E_NO_HOST"
    assert node.result()["text"] == f"{address}: connect: Connection refused"


def test_a_server_that_comes_late_is_found(node):
    port = ctrun.free_port()
    run = node.box.start(ctrun.program("agent_harness"), "--server", f"127.0.0.1:{port}",
                         "--workers", "2", "--log", "1", "--", "true")
    ctrun.wait_until(lambda: "attempt failed" in run.err, lambda: f"a first try {run}")
    server = rendezvous.Rendezvous()
    server.listener.close()
    server.listener = socket.create_server(("127.0.0.1", port))
    node.servers.append(server)
    server.__enter__()
    assert run.wait() == 0


def test_a_refusal_ends_at_once_and_says_why(node):
    server = node.serve()
    server.refuse = (-20005, "run 'a' of alice")
    run = node.run("hang", server=server)
    assert run.code == 75
    assert node.result()["error"] == "E_WRONG_RUN"
    assert node.result()["text"] == f"{server.address}: run 'a' of alice"


def test_a_server_that_never_greets_is_given_up(node):
    server = node.serve()
    server.is_silent = True
    run = node.run("hang", server=server, options=["--connect-timeout", "1000"])
    assert run.code == 75
    assert node.result()["text"] == f"{server.address}: connected, but it sent no answer"


def test_a_server_that_ends_right_after_its_welcome_is_tried_again(node):
    """As one that finds another server in charge of the run. The agent is stopped meanwhile: it
    reads the welcome when it can send nothing any more."""
    server = node.serve()
    welcome = server._on_hello

    def welcome_and_break(hello):
        agent = node.box.wait_event("link_state")[0]["pid"]
        os.kill(agent, signal.SIGSTOP)
        server._on_hello = welcome
        welcome(hello)
        server.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        server.connection.close()
        os.kill(agent, signal.SIGCONT)

    server._on_hello = welcome_and_break
    run = node.run("exit", "0", server=server)
    assert run.code == 0 and server.connections == 2, run


def test_a_lost_server_stops_the_workers(node):
    run = start_hanging(node, "ignore", "TERM", server=node.serve(lost_after_ms=1000))
    run.server.listener.close()
    run.server.drop()
    assert run.wait(20) == 75
    assert node.result()["error"] == "E_LEADER_LOST"
    node.box.wait_gone()


def test_a_server_of_another_instance_is_named_without_an_error_of_the_system(node):
    run = start_hanging(node, server=node.serve(lost_after_ms=600000), options=["--log", "1"])
    run.server.instance = 2
    run.server.drop()
    ctrun.wait_until(lambda: "another instance" in run.err, lambda: f"a refusal {run}")
    assert f"{run.server.address}: it serves another instance of the run, not this one\n" in run.err, run
    run.signal(signal.SIGTERM)
    run.wait()


OTHER_RUN = (-20005, "this endpoint belongs to run 'b', you are run 'a'")


def start_where_another_run_comes(node, lost_after_ms):
    server = node.serve(lost_after_ms=lost_after_ms)
    server.gives_tickets = True
    run = start_hanging(node, server=server)
    server.refuse = OTHER_RUN
    server.drop()
    return run


def test_the_workers_continue_when_another_runs_server_has_the_port_for_a_while(node):
    run = start_where_another_run_comes(node, 600000)
    run.server.wait_for("RESUME", 3)
    run.server.refuse = None
    node.box.wait_event("link_state", 2, to="up")
    assert len(run.server.received("JOIN")) == 1 and not node.box.events("worker_ended"), run
    run.signal(signal.SIGTERM)
    assert run.wait() == 143, run


def test_a_server_whose_port_another_run_keeps_is_lost_and_the_other_run_named(node):
    run = start_where_another_run_comes(node, 1000)
    assert run.wait(20) == 75 and len(run.server.received("RESUME")) > 1, run
    assert node.result()["error"] == "E_LEADER_LOST" and OTHER_RUN[1] in node.result()["text"], run
    node.box.wait_gone()


def test_a_silent_server_stops_the_workers_before_it_counts_us_lost(node):
    server = node.serve(heartbeat_ms=50, lost_after_ms=1000)
    run = start_hanging(node, "ignore", "TERM", server=server,
                        options=["--connect-timeout", "1000"])
    server.wait_for("HEARTBEAT")
    server.is_silent = True
    last = server.received("HEARTBEAT")[-1]
    node.box.wait_event("worker_ended", 2)
    # In lost_after_ms after the last heartbeat that was answered the agent sends at most
    # lost_after_ms / heartbeat_ms more.
    assert len(server.received("HEARTBEAT")) - last["sequence"] <= 20
    assert run.wait(20) == 75
    assert node.result()["error"] == "E_LEADER_LOST"


def test_a_lost_server_is_looked_for_again_while_nothing_runs(node):
    server = node.serve()
    server.starts_rounds = False
    run = node.start("exit", "0", server=server)
    server.wait_for("JOIN")
    server.starts_rounds = True
    server.drop()
    assert run.wait() == 0
    assert server.connections == 2


HOLD = """
import os, signal, ctrun
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    with ctrun.hold("disk/last.ckpt") as f:
        f.write(b"new")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.plain("the sanitizers' libraries come first")
def test_a_checkpoint_that_is_written_while_the_link_is_broken_delays_the_next_round_and_no_more(node):
    """fsync() does not return in a folder that has a file "hung"."""
    disk = node.box.path("disk")
    disk.mkdir()
    (disk / "hung").touch()
    server = node.serve(workers=1, max_restarts=1, lost_after_ms=600000)
    server.gives_tickets = True
    run = node.box.start_ctrun("--nnodes=1:2", "--rdzv-backend=c10d", f"--rdzv-endpoint={server.address}", "--rdzv-id=J",
                               "--rdzv-conf=is_host=0", "--max-restarts=1", node.box.write("hold.py", HOLD),
                               env={"PYTHONPATH": str(ctrun.ROOT / "python"), "PYTHON_EXEC": ctrun.DEBIAN_PYTHON,
                                    "CTRUN_LIBRARY": str(ctrun.BUILD / "lib" / "libctrun.so"), "PYTHONDONTWRITEBYTECODE": "1",
                                    "LD_PRELOAD": str(ctrun.BUILD / "tests/lib/libhung.so"), "CTRUN_TEST_HUNG": str(disk)})
    server.wait_for("STOPPED")
    server.wait_for("STOPPING")  # it has the server's decision
    server.is_shut, server._on_failure = True, lambda again: None
    server.drop()
    server.wait_for("RESUME")
    (disk / "hung").unlink()
    node.box.wait_event("checkpoint_held")
    server.is_shut = False
    assert run.wait(20) == 0 and len(server.received("JOIN")) == 2, run


def test_a_broken_message_ends_the_connection_and_the_node_comes_back(node):
    run = start_hanging(node, server=node.serve(lost_after_ms=600000))
    run.server.connection.sendall(b"HTTP/1.0 400 no\r\n\r\n")
    node.box.wait_event("round_started", 2)
    assert "unexpected message" in node.box.events("link_state", to="down")[0]["why"]
    assert run.server.connections == 2
    run.signal(signal.SIGTERM)
    assert run.wait(20) == 143


def test_an_unknown_kind_of_message_is_skipped(node):
    run = start_hanging(node, "on", "TERM", "0")
    run.server.connection.sendall(bytes([0xC7, 0x52, 8, 99, 3, 0, 0, 0]) + b"new")
    run.server.stop_round(reason=3)
    run.server.wait_for("JOIN", 2)
    run.signal(signal.SIGTERM)
    assert run.wait() == 143


def test_a_start_of_an_old_generation_is_ignored(node):
    run = start_hanging(node, "on", "TERM", "0")
    server = run.server
    server.starts_rounds = False
    server.stop_round(reason=3)
    server.wait_for("JOIN", 2)
    server.generation = 0
    server.start_round()  # generation 1 again
    server.generation = 1
    server.start_round()
    node.box.wait_event("round_started", 2)
    assert [e["generation"] for e in node.box.events("round_started")] == [1, 2]
    run.signal(signal.SIGTERM)
    run.wait()


def test_an_agent_that_was_stopped_carries_on(node):
    server = node.serve(heartbeat_ms=50, lost_after_ms=3000, is_direct=True)
    run = start_hanging(node, server=server)
    os.kill(node.agent_pid(), signal.SIGSTOP)
    seen = len(server.received("HEARTBEAT"))
    ctrun.wait_until(lambda: ctrun._read(f"/proc/{node.agent_pid()}/stat").split()[2] == b"T",
                     "it is stopped")
    port = server.received("PEER")[0]["port"]
    until = time.monotonic() + 3.6  # longer than lost_after_ms

    def is_over():
        server.send("PEER", port=port)  # the server still waits for the node
        return time.monotonic() > until

    ctrun.wait_until(is_over, "its patience is over")
    assert not node.box.events("guard_fenced")
    os.kill(node.agent_pid(), signal.SIGCONT)
    server.wait_for("HEARTBEAT", seen + 20)
    assert run.code is None, run
    run.signal(signal.SIGTERM)
    assert run.wait() == 143


def test_a_start_that_waited_while_the_agent_was_stopped_begins_nothing_before_an_answer(node):
    server = node.serve(heartbeat_ms=10000, lost_after_ms=15000)
    server.starts_rounds = False
    clock = Clock(node.box)
    run = node.start("hang", server=server, env=clock.env)
    server.wait_for("JOIN")
    [agent] = [event["pid"] for event in node.box.wait_event("agent_state", to="joining")]
    beats, began, acknowledge = [], [], server._on_heartbeat

    def answer_the_second(beat):  # the first was due, the second asks for an answer
        beats.append(beat)
        if len(beats) > 1:
            began.append(node.box.events("round_started"))
            acknowledge(beat)

    os.kill(agent, signal.SIGSTOP)
    clock.advance(25)  # the world of this START may be over when the agent continues
    server._on_heartbeat = answer_the_second
    server.start_round()
    os.kill(agent, signal.SIGCONT)
    node.box.wait_event("round_started")
    assert began and began[0] == [], beats
    run.signal(signal.SIGTERM)
    assert run.wait() == 143, run


@pytest.mark.parametrize("also", ["nobody", "second guard", "guard"])
def test_the_workers_of_an_agent_that_was_stopped_die_when_the_server_is_silent(node, also):
    """Also when one of its guards is stopped."""
    server = node.serve(heartbeat_ms=50, lost_after_ms=2000, is_direct=True)
    run = start_hanging(node, server=server)
    server.wait_for("PEER")
    workers = node.box.workers()
    agent = node.agent_pid()
    guards = dict(zip(["second guard", "guard"], ctrun.guards_of(agent)))
    if also != "nobody":
        os.kill(guards[also], signal.SIGSTOP)
    os.kill(agent, signal.SIGSTOP)
    node.box.wait_event("guard_fenced")
    ctrun.wait_until(lambda: not [pid for pid in workers.values() if ctrun.is_alive(pid)],
                     "no worker lives", 5)
    assert ctrun._read(f"/proc/{agent}/stat").split()[2] == b"T"  # still stopped
    for pid in [*guards.values(), agent]:
        os.kill(pid, signal.SIGCONT)
    [stopped] = server.wait_for("STOPPED")
    assert [one["cause"] for one in stopped["failures"]] == [rendezvous.STOPPED] * 2, run
    assert not server.received("FAILURE"), run
    server.stop_round(reason=3)
    node.box.wait_event("worker_started", 4)
    run.signal(signal.SIGTERM)
    run.wait()


def test_workers_that_the_guard_has_ended_have_not_failed_when_a_stop_is_read_first(node):
    server = node.serve(heartbeat_ms=50, lost_after_ms=2000, is_direct=True)
    run = start_hanging(node, server=server)
    server.wait_for("PEER")
    agent = node.agent_pid()
    os.kill(agent, signal.SIGSTOP)
    server.stop_round(reason=3)
    node.box.wait_event("guard_fenced")
    os.kill(agent, signal.SIGCONT)
    [stopped] = server.wait_for("STOPPED")
    assert [one["cause"] for one in stopped["failures"]] == [rendezvous.STOPPED] * 2, run
    assert not server.received("FAILURE"), run
    node.box.wait_event("worker_started", 4)
    run.signal(signal.SIGTERM)
    run.wait()


def test_an_undecided_stop_is_answered_at_once_and_its_decision_obeyed(node):
    server = node.serve()

    def leave_undecided(failure):
        if server.generation == 1:
            server.stop_round(reason=5, cause=failure)
        else:
            rendezvous.Rendezvous._on_failure(server, failure)

    def decide(_):
        if server.generation == 1:
            server.stop_round(reason=2)  # another node is lost: there is a next round

    server._on_failure, server._on_stopping = leave_undecided, decide
    run = node.run("exit", "3", server=server)
    assert run.code == 3, run
    # The last one may arrive after the end of the run.
    assert [answer["generation"] for answer in server.wait_for("STOPPING", 2)] == [1, 2]
    assert len(server.received("JOIN")) == 2
