# SPDX-License-Identifier: Apache-2.0
"""A run whose nodes prove a token to each other, and clients that are kept out of it."""
import socket
import struct

import pytest

import ctrun
import launch

TOKEN = "a token of the tests, 32 letters"


@pytest.fixture
def token_file(box):
    return str(box.write("token", TOKEN + "\n", 0o600))


def arguments(port, *more):
    return ["--nnodes=2", f"--rdzv-endpoint=localhost:{port}", "--rdzv-id=J", *more]


@pytest.mark.parametrize("backend", ["c10d", "static"])
def test_two_nodes_with_one_token_meet_and_no_worker_sees_it(box, dump, token_file, backend):
    port = launch.free_port()
    # One from the file, one from the environment.
    runs = [box.start_ctrun("--nnodes=2", f"--rdzv-backend={backend}", f"--node-rank={rank}",
                            f"--rdzv-endpoint=localhost:{port}", *more, dump.program,
                            env={**dump.env, **env})
            for rank, more, env in ((0, [f"--rdzv-token-file={token_file}"], {}),
                                    (1, [], {"CTRUN_TOKEN": TOKEN}))]
    assert [run.wait() for run in runs] == [0, 0], runs
    found = dump.environments()
    assert sorted(found) == [0, 1]
    for env in found.values():
        assert "CTRUN_TOKEN" not in env and TOKEN not in "\0".join(env.values())
    assert TOKEN not in "".join(run.err for run in runs)
    assert TOKEN not in str(box.events())


def test_a_node_with_another_token_or_none_is_refused_and_the_run_goes_on(box, dump, token_file):
    port = launch.free_port()
    other = box.write("other", "x" * 40, 0o600)
    first = box.start_ctrun(*arguments(port, f"--rdzv-token-file={token_file}"), dump.program,
                            env=dump.env)
    box.wait_event("agent_state", to="joining")
    for more, why in (([f"--rdzv-token-file={other}"], "your token is not the one of this rendezvous"),
                      ([], "asks for a token and you have none")):
        other = box.ctrun(*arguments(port, *more), dump.program, env=dump.env)
        assert other.code == 77, other
        assert other.err.startswith("ctrun: error[E_AUTH]: ") and why in other.err, other
        assert TOKEN not in other.err
    assert first.code is None and not dump.environments()
    second = box.start_ctrun(*arguments(port, f"--rdzv-token-file={token_file}"), dump.program,
                             env=dump.env)
    assert [first.wait(), second.wait()] == [0, 0], (first, second)
    assert sorted(dump.environments()) == [0, 1]


def test_a_node_with_a_token_does_not_join_a_run_without(box, dump, token_file):
    port = launch.free_port()
    first = box.start_ctrun(*arguments(port), dump.program, env=dump.env)
    box.wait_event("agent_state", to="joining")
    other = box.ctrun(*arguments(port, f"--rdzv-token-file={token_file}"), dump.program,
                         env=dump.env)
    assert other.code == 77 and "error[E_AUTH]" in other.err, other
    assert "you have a token and this rendezvous has none" in other.err
    first.signal(15)
    first.wait()


WARNING = "ctrun: warning: no token: every program that reaches the rendezvous can take part"


def test_a_run_of_two_nodes_without_a_secret_warns_once(box, dump, token_file):
    for more, count in (([], 1), (["--auth=none"], 0), (["-q"], 0), ([f"--rdzv-token-file={token_file}"], 0)):
        port = launch.free_port()
        runs = [box.start_ctrun(*arguments(port, "--max-restarts=1", *more), "sh", "-c",
                                "exit $((1 - TORCHELASTIC_RESTART_COUNT))") for _ in range(2)]
        assert [run.wait() for run in runs] == [0, 0], runs
        assert "".join(run.err for run in runs).count(WARNING) == count, runs
    assert WARNING not in box.ctrun("--standalone", "--nproc-per-node=2", "true").err


def answer(kind, body):
    return b"\xc7\x52\x08" + struct.pack("<BI", kind, len(body)) + body


@pytest.mark.parametrize("frames, why", [
    # WELCOME at once, a SERVER_PROOF without a challenge, a challenge and a wrong SERVER_PROOF
    (answer(2, struct.pack("<QQIQIQQ", 1000, 5000, 0, 0, 0, 1, 0)), "did not prove"),
    (answer(6, b"p" * 32), "could not prove"),
    (answer(4, b"n" * 32) + answer(6, b"p" * 32), "could not prove"),
    (answer(4, b"n" * 32) + answer(2, struct.pack("<QQIQIQQ", 1000, 5000, 0, 0, 0, 1, 0)), "did not prove"),
])
def test_a_server_that_cannot_prove_the_token_gets_no_node(box, token_file, frames, why):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        run = box.start_ctrun("--nnodes=2", "--rdzv-backend=c10d", "--rdzv-conf=is_host=0",
                              f"--rdzv-endpoint=127.0.0.1:{listener.getsockname()[1]}",
                              f"--rdzv-token-file={token_file}", "true")
        listener.settimeout(60 * ctrun.SLOW)
        with listener.accept()[0] as server:
            server.settimeout(60 * ctrun.SLOW)
            hello = server.recv(65536)
            assert hello[:4] == b"\xc7\x52\x08\x01" and TOKEN.encode() not in hello
            server.sendall(frames)
            assert run.wait() == 77, run
    assert "error[E_AUTH]" in run.err and why in run.err, run
    assert not box.events("worker_started")


def test_a_server_cannot_have_its_own_question_answered_for_it(box, token_file):
    """Reflection: it sends the node's nonce back as the challenge, and the proof back as its own."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        run = box.start_ctrun("--nnodes=2", "--rdzv-backend=c10d", "--rdzv-conf=is_host=0",
                              f"--rdzv-endpoint=127.0.0.1:{listener.getsockname()[1]}",
                              f"--rdzv-token-file={token_file}", "true")
        listener.settimeout(60 * ctrun.SLOW)
        with listener.accept()[0] as server:
            server.settimeout(60 * ctrun.SLOW)
            server.sendall(answer(4, server.recv(65536)[-32:]))
            proof = server.recv(65536)
            assert proof[3] == 5 and len(proof) == 40
            server.sendall(answer(6, proof[-32:]))
            assert run.wait() == 77, run
    assert "could not prove" in run.err, run


def test_a_run_of_one_node_lets_no_unknown_client_in(box):
    """Without a token of the user the run has its own one."""
    run = box.start_ctrun("--standalone", "sh", "-c", "while [ ! -e go ]; do sleep 0.05; done",
                          env={"LOGLEVEL": "INFO"})
    box.wait_event("worker_started")
    port = int(run.err.partition("serving the rendezvous")[2].partition("port=")[2].split()[0])
    run_id = run.err.partition("serving the rendezvous run=")[2].split()[0].encode()
    hello = (struct.pack("<I", len(run_id)) + run_id + struct.pack("<I", 1) + b"x"
             + struct.pack("<iIIIQQQQ", 1, 1, 1, 0, 60000, 0, 1000, 60000) + bytes(32)
             + bytes(20))
    with socket.create_connection(("127.0.0.1", port), timeout=60 * ctrun.SLOW) as other:
        other.sendall(answer(1, hello))
        refusal = other.recv(4096)
        assert refusal[:4] == b"\xc7\x52\x08\x03" and b"asks for a token" in refusal, refusal
    box.write("go", "")
    assert run.wait() == 0, run


@pytest.mark.parametrize("mode, words, why", [
    (0o604, TOKEN, "every user of this machine may use it (mode 0604)"),
    (0o600, "short", "16 to 256 characters"),
    (None, "", "No such file or directory"),
])
def test_a_token_file_that_is_no_secret_is_refused(box, mode, words, why):
    path = box.path("token")
    if mode is not None:
        box.write("token", words, mode)
    run = box.ctrun(f"--rdzv-token-file={path}", "true")
    assert run.code == 2 and why in run.err, run
    assert run.err.startswith(f"ctrun: error[E_USAGE]: --rdzv-token-file: {path}: ")
    assert not words or words not in run.err


def test_a_folder_as_token_file_is_named_as_one(box):
    folder = box.path("folder")
    folder.mkdir()
    folder.chmod(0o755)  # as any user's folder: chmod 600 would not make a token of it
    run = box.ctrun(f"--rdzv-token-file={folder}", "true")
    assert run.code == 2 and run.err.startswith(
        f"ctrun: error[E_USAGE]: --rdzv-token-file: {folder}: Is a directory\n"), run


def test_the_environment_of_the_launcher_shows_no_token(box):
    run = box.start_ctrun("sh", "-c", "while [ ! -e go ]; do sleep 0.05; done",
                          env={"CTRUN_TOKEN": TOKEN})
    box.wait_event("worker_started")
    for pid in [run.pid, ctrun.parent_of(box.workers()[0])]:
        with open(f"/proc/{pid}/environ", "rb") as environ:
            assert TOKEN.encode() not in environ.read()
    assert box.ctrun("true", env={"CTRUN_TOKEN": "short"}).code == 2
    box.write("go", "")
    assert run.wait() == 0, run


def test_whose_run_it_is_hears_only_who_has_the_token(box, token_file):
    port = launch.free_port()
    first = box.start_ctrun(*arguments(port, f"--rdzv-token-file={token_file}"), "true")
    box.wait_event("agent_state", to="joining")
    words = ["--nnodes=2", f"--rdzv-endpoint=localhost:{port}", "--rdzv-id=other", "true"]
    other = box.ctrun(*words)
    assert other.code == 77 and "error[E_AUTH]" in other.err, other
    assert "run 'J'" not in other.err and "up " not in other.err, other
    friend = box.ctrun(f"--rdzv-token-file={token_file}", *words)
    assert friend.code == 77 and "error[E_WRONG_RUN]" in friend.err, friend
    assert "run 'J'" in friend.err, friend
    first.signal(15)
    first.wait()
