# SPDX-License-Identifier: Apache-2.0
"""IPv6 endpoints in every form, for each program that takes one (T18)."""
import json
import socket

import ctrun
import pytest


def has_v6():
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as sock:
            sock.bind(("::1", 0))
        return True
    except OSError:
        return False


pytestmark = pytest.mark.skipif(not has_v6(), reason="this machine has no IPv6")


@pytest.fixture
def daemon(box):
    """daemon(LISTEN): a ctrund there; what it printed."""
    runs = []

    def start(*listen):
        words = [word for place in listen for word in ("--listen", place)]
        run = box.start(ctrun.program("ctrund"), *words)
        lines = ctrun.wait_until(
            lambda: run.out.splitlines() if run.out.count("\n") == len(listen) else None,
            lambda: f"{run}")
        runs.append(run)
        return [line.removeprefix("listening on ") for line in lines]

    yield start
    for run in runs:
        run.signal(15)
        assert run.wait() == 0, run


def port_of(place):
    return place.rpartition(":")[2]


@pytest.mark.parametrize("listen, shown", [("[::1]:0", "[::1]:"), ("[::]:0", "[::]:"),
                                           (":0", "127.0.0.1:"), ("127.0.0.1:0", "127.0.0.1:")])
def test_ctrund_says_where_it_listens_in_brackets(daemon, listen, shown):
    place = daemon(listen)[0]
    assert place.startswith(shown) and int(port_of(place)) > 0


def test_ctrund_listens_at_several_addresses_of_both_families(daemon):
    first, second = daemon("[::1]:0", "127.0.0.1:0")
    for family, host, place in ((socket.AF_INET6, "::1", first),
                                (socket.AF_INET, "127.0.0.1", second)):
        with socket.socket(family, socket.SOCK_STREAM) as sock:
            sock.connect((host, int(port_of(place))))
    with pytest.raises(ConnectionRefusedError):  # bound alone
        socket.create_connection(("127.0.0.1", int(port_of(first)))).close()


@pytest.mark.parametrize("listen, client", [("[::1]:0", "[::1]"), ("[::]:0", "[::1]"),
                                            ("[::]:0", "127.0.0.1"),
                                            ("[::]:0", "[::ffff:127.0.0.1]")])
def test_agents_meet_at_a_v6_endpoint(box, daemon, listen, client):
    port = port_of(daemon(listen)[0])
    runs = [box.start_ctrun("--nnodes=2", f"--rdzv-endpoint={client}:{port}",
                            "--rdzv-conf=is_host=0", "--no-python", "true") for _ in range(2)]
    assert [run.wait() for run in runs] == [0, 0], runs


def test_two_agents_meet_at_a_v6_endpoint_that_one_of_them_serves(box):
    port = ctrun.free_port("::1")
    runs = [box.start_ctrun("--nnodes=2", f"--rdzv-endpoint=[::1]:{port}", "--no-python", "true")
            for _ in range(2)]
    assert [run.wait() for run in runs] == [0, 0], runs


def test_static_takes_a_v6_master_address(box):
    port = ctrun.free_port("::1")
    script = box.write("w.py", "import os, socket; e = os.environ\n"
                       "socket.create_connection((e['MASTER_ADDR'], int(e['MASTER_PORT']))).close()\n")
    runs = [box.start_ctrun("--nnodes=2", f"--node-rank={n}", "--master-addr=::1",
                            f"--master-port={port}", script) for n in (0, 1)]
    assert [run.wait() for run in runs] == [0, 0], runs


def test_doctor_takes_a_v6_endpoint(box, daemon):
    place = daemon("[::1]:0")[0]
    run = box.run(ctrun.program("ctrunctl"), "doctor", "--json", place)
    found = {each["what"]: each for each in json.loads(run.out)["findings"]}
    assert run.code == 0 and found["connect"]["level"] == "ok", run
    assert found["connect"]["value"].startswith(place), run


@pytest.mark.parametrize("endpoint", ["[::1", "[::1]x", "[::1]:", "[::1]:65536"])
def test_what_is_no_endpoint_is_refused(box, endpoint):
    run = box.ctrun("--nnodes=2", f"--rdzv-endpoint={endpoint}", "--no-python", "true")
    assert run.code == 1 and "error[E_USAGE]" in run.err, run
