# SPDX-License-Identifier: Apache-2.0
"""Our store client with our server and with PyTorch's: that of Debian's torch 1.13, and both
kinds of the torch that CTRUN_TEST_TORCH names."""
import contextlib
import socket
import threading

import ctrun
import store_peers
import pytest

PEERS = {"ours": "modern", "ctrund": "modern", "torch 1.13": "legacy", "newer torch, libuv": "modern",
         "newer torch, legacy server": "modern"}


def server(box, peer):
    if peer == "ours":
        return store_peers.our_server(box)
    if peer == "ctrund":
        return store_peers.ctrund(box)
    torch = store_peers.interpreter("debian" if peer == "torch 1.13" else "newer")
    return store_peers.torch_server(box, torch, int("libuv" in peer))


@pytest.mark.parametrize("peer", PEERS)
def test_every_operation_works_and_a_timed_out_wait_shifts_nothing(box, peer):
    with server(box, peer) as port:
        run = box.run(ctrun.program("store_client"), "127.0.0.1", port, seconds=120)
    assert (run.code, run.out) == (0, f"{PEERS[peer]}\nok\n"), run


@contextlib.contextmanager
def strange_server(on_connect):
    """Gives each connection to on_connect, then waits for the client to close it."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection, contextlib.suppress(OSError):
                    on_connect(connection)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


def open_store(box, port):
    run = box.run(ctrun.program("store_client"), "127.0.0.1", port, "open", 3000)
    assert run.code == 3, run
    return run.out


def test_open_gives_up_where_nobody_listens(box):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert "Connection refused" in open_store(box, port)


def test_open_gives_up_on_a_server_that_stays_silent(box):
    with strange_server(lambda connection: connection.recv(100) and connection.recv(100)) as port:
        assert "no answer in time" in open_store(box, port)


def test_open_says_when_the_server_is_no_store(box):
    with strange_server(lambda connection: connection.recv(100)) as port:
        assert "does not answer as a TCPStore" in open_store(box, port)


def test_a_wait_says_when_the_server_has_become_silent(box):
    def answer(connection):
        connection.sendall(connection.recv(100)[6:10])  # PING
        while connection.recv(100):
            pass

    with strange_server(answer) as port:
        run = box.run(ctrun.program("store_client"), "127.0.0.1", port, "wait")
    assert run.code == 3 and "'k' ...): the server does not answer" in run.out, run


def test_a_length_above_the_cap_is_an_error_not_an_allocation(box):
    def answer(connection):
        # The reply to each request is a length of 2^62 or more; its first byte, 0, is also the
        # reply that WAIT expects.
        huge = (1 << 62).to_bytes(8, "little") * 2
        while data := connection.recv(4096):
            connection.sendall(data[6:10] if data[:1] == b"\0" else huge)  # PING expects its own bytes

    with strange_server(answer) as port:
        run = box.run(ctrun.program("store_client"), "127.0.0.1", port)
    assert run.code == 3 and "Message too long" in run.out, run
