# SPDX-License-Identifier: Apache-2.0
"""Agents and server prove a shared token to each other: right, wrong and missing ones, replay,
reflection, half handshakes."""
import socket
import urllib.error
import urllib.request

import pytest

import ctrun
import fake_agent as wire

TOKEN = b"a token of the tests, 32 letters"


@pytest.fixture
def guarded(box, start_daemon):
    """A ctrund that asks for TOKEN."""
    path = box.write("token", TOKEN.decode() + "\n", 0o600)
    return start_daemon("--token-file", path)


def refused(agent, code, *words):
    refuse = agent.expect(wire.REFUSE)
    assert refuse["code"] == code, refuse
    for word in words:
        assert word in refuse["text"]
    agent.expect_end()


def world_is_possible(daemon):
    """Connects a node with the token and returns it at WELCOME: earlier clients did not prevent
    that."""
    agent = daemon.agent("good")
    (kind, got), server_nonce = agent.prove(TOKEN, nonce=b"g" * 32)
    assert kind == wire.SERVER_PROOF
    assert got["bytes"] == wire.proof(TOKEN, "server", "job", b"g" * 32, server_nonce,
                                      agent.opening)
    agent.expect(wire.WELCOME)
    return agent


def test_both_sides_prove_the_token_before_the_welcome(guarded):
    first, second = world_is_possible(guarded), world_is_possible(guarded)
    first.join()
    second.join()
    assert {first.expect(wire.START)["world_size"], second.expect(wire.START)["world_size"]} == {2}


def test_who_comes_first_and_proves_last_takes_part(guarded):
    first, nonce = guarded.agent(), b"f" * 32
    first.hello(nonce=nonce)
    theirs = first.expect(wire.CHALLENGE)["bytes"]
    second = world_is_possible(guarded)
    first.send(wire.PROOF, wire.proof(TOKEN, "agent", "job", nonce, theirs, first.opening))
    first.expect(wire.SERVER_PROOF)
    first.expect(wire.WELCOME)
    first.join()
    second.join()
    assert {first.expect(wire.START)["world_size"], second.expect(wire.START)["world_size"]} == {2}


def test_a_missing_token_is_refused_and_said_so(guarded):
    refused(guarded.agent().hello(), wire.E_AUTH, "asks for a token", "you have none")
    world_is_possible(guarded)


def test_a_wrong_token_is_refused_and_the_secret_is_not_told(guarded):
    agent = guarded.agent()
    (kind, refuse), _ = agent.prove(b"another token that is of no use")
    assert kind == wire.REFUSE and refuse["code"] == wire.E_AUTH
    assert "your token is not the one" in refuse["text"]
    agent.expect_end()
    assert TOKEN.decode() not in guarded.run.err + refuse["text"]
    world_is_possible(guarded)


def test_a_token_where_none_is_asked_for_is_refused(daemon):
    refused(daemon.agent().hello(nonce=b"n" * 32), wire.E_AUTH, "you have a token",
            "this rendezvous has none")


def test_a_proof_heard_on_one_connection_is_worth_nothing_on_another(guarded):
    good = guarded.agent()
    good.hello(nonce=b"n" * 32)
    heard = wire.proof(TOKEN, "agent", "job", b"n" * 32, good.expect(wire.CHALLENGE)["bytes"],
                       good.opening)
    good.send(wire.PROOF, heard)
    good.expect(wire.SERVER_PROOF)
    thief = guarded.agent().hello(nonce=b"n" * 32)
    thief.expect(wire.CHALLENGE)
    thief.send(wire.PROOF, heard)
    refused(thief, wire.E_AUTH, "your token")


def test_the_servers_own_proof_sent_back_is_worth_nothing(guarded):
    """The server makes this proof for a second connection, whose nonce is the challenge of the
    first."""
    victim = guarded.agent().hello(nonce=b"n" * 32)
    challenge = victim.expect(wire.CHALLENGE)["bytes"]
    helper = guarded.agent()
    (kind, answer), _ = helper.prove(TOKEN, nonce=challenge)
    assert kind == wire.SERVER_PROOF
    victim.send(wire.PROOF, answer["bytes"])
    refused(victim, wire.E_AUTH, "your token")


def test_a_proof_of_another_run_or_side_is_refused(guarded):
    for change in ({"side": "server"}, {}):
        agent = guarded.agent()
        agent.hello(run="job", nonce=b"n" * 32)
        nonce = agent.expect(wire.CHALLENGE)["bytes"]
        agent.send(wire.PROOF, wire.proof(TOKEN, change.get("side", "agent"),
                                          "job" if change else "jo", b"n" * 32, nonce,
                                          agent.opening))
        refused(agent, wire.E_AUTH)


def test_what_is_changed_on_the_way_before_the_proof_is_found(guarded):
    agent = guarded.agent()
    agent.hello(nonce=b"n" * 32, min_nodes=1)
    sent = agent.opening.replace(b"\1\0\0\0\2\0\0\0", b"\2\0\0\0\2\0\0\0")
    assert sent != agent.opening
    agent.send(wire.PROOF, wire.proof(TOKEN, "agent", "job", b"n" * 32,
                                      agent.expect(wire.CHALLENGE)["bytes"], sent))
    refused(agent, wire.E_AUTH, "your token")


@pytest.mark.parametrize("kind, body", [
    (wire.JOIN, b""),
    (wire.HELLO, None),
    (wire.HEARTBEAT, bytes(24)),
    (wire.PROOF, b"short"),
    (wire.SERVER_PROOF, bytes(32)),
])
def test_nothing_but_a_proof_may_follow_the_challenge(guarded, kind, body):
    agent = guarded.agent().hello(nonce=b"n" * 32)
    agent.expect(wire.CHALLENGE)
    if body is None:
        agent.hello(nonce=b"n" * 32)
    else:
        agent.send(kind, body)
    refused(agent, wire.E_PROTOCOL)
    world_is_possible(guarded)


def test_a_proof_without_a_challenge_is_refused(guarded, daemon):
    for server in (guarded, daemon):
        agent = server.agent()
        agent.send(wire.PROOF, bytes(32))
        refused(agent, wire.E_PROTOCOL)


def test_a_second_proof_is_refused(guarded):
    agent = world_is_possible(guarded)
    agent.send(wire.PROOF, bytes(32))
    refused(agent, wire.E_PROTOCOL)
    world_is_possible(guarded)


def test_unknown_clients_make_no_run(guarded):
    agents = [guarded.agent().hello(run=f"r{i}", nonce=b"n" * 32) for i in range(20)]
    for agent in agents:
        agent.expect(wire.CHALLENGE)
    assert guarded.status()["runs"] == []


def test_who_never_proves_is_closed_in_time(guarded):
    agent = guarded.agent().hello(nonce=b"n" * 32)
    agent.expect(wire.CHALLENGE)
    assert agent.read(seconds=30) is None  # CONN_IDENTIFY_MS


def test_a_tcpstore_client_is_turned_away_where_a_token_is_asked_for(guarded):
    with socket.create_connection(("127.0.0.1", guarded.port), timeout=60) as client:
        client.sendall(b"\x00" + b"\x3c\x85\xf7\xf3")  # VALIDATE
        client.settimeout(60 * ctrun.SLOW)
        try:
            assert client.recv(1) == b""
        except ConnectionResetError:
            pass


@pytest.mark.parametrize("mode, words, why", [
    (0o644, TOKEN.decode(), "every user of this machine"),
    (0o600, "short", "16 to 256 characters"),
])
def test_a_token_file_that_is_no_secret_ends_ctrund(box, mode, words, why):
    path = box.write("token", words, mode)
    run = box.run(ctrun.program("ctrund"), "--listen", "127.0.0.1:0", "--token-file", path)
    assert run.code == 2 and "error[E_USAGE]: --token-file: " in run.err and why in run.err, run
    assert words not in run.err


def test_ctrund_takes_the_token_from_the_environment_and_hides_it(start_daemon):
    daemon = start_daemon(env={"CTRUN_TOKEN": TOKEN.decode()})
    world_is_possible(daemon)
    refused(daemon.agent().hello(), wire.E_AUTH)
    with open(f"/proc/{daemon.run.pid}/environ", "rb") as environ:
        assert TOKEN not in environ.read()


def test_unknown_clients_are_told_no_name_of_a_run_or_a_host(guarded):
    agent = world_is_possible(guarded)
    agent.join()
    ctrun.wait_until(lambda: guarded.status()["runs"], "the run is there")
    for path in ("/status", "/metrics", "/healthz", "/"):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{guarded.port}{path}") as reply:
                text = reply.read().decode()
        except urllib.error.HTTPError as error:
            text = error.read().decode()
        assert "job" not in text and "good" not in text, text
    [run] = guarded.status()["runs"]
    assert run["state"] == "forming" and len(run["members"]) == 1
