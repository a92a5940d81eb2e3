# SPDX-License-Identifier: Apache-2.0
"""A start that fails prints one clear line, ends with the right exit code and leaves nothing
running."""
import os
import socket

import ctrun
import pytest


def first_line(run):
    return run.err.splitlines()[0] if run.err else ""


def refused(run, code, *words):
    assert run.code == code, run
    line = first_line(run)
    assert line.startswith("ctrun: error"), run
    for word in words:
        assert word in run.err, run
    assert "Traceback" not in run.err


def test_an_unknown_option_names_the_nearest_right_one(box):
    refused(box.ctrun("--standalone", "--nproc-per-nod=2", "--max-restrats=1", "true"), 2,
            "--max-restrats", "--max-restarts")


def test_a_missing_program_is_127(box):
    refused(box.ctrun("--standalone", "no-such-program-here"), 127, "no-such-program-here")


def test_a_program_without_the_right_to_execute_is_126(box):
    path = box.write("program", "#!/bin/sh\n", mode=0o644)
    refused(box.ctrun("--standalone", "--no-python", path), 126, path)


@pytest.mark.parametrize("nnodes", ["0", "2:1", "x", "1:2:3"])
def test_a_bad_nnodes_is_refused(box, nnodes):
    run = box.ctrun(f"--nnodes={nnodes}", "true")
    assert run.code in (1, 2), run
    assert "nnodes" in first_line(run) and nnodes in first_line(run), run


@pytest.mark.parametrize("taken, endpoint", [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"),
                                             ("::1", "::1"), ("::", "127.0.0.1"), ("::", "::1")])
@pytest.mark.parametrize("backend", ["static", "c10d"])
def test_t11_a_busy_port_names_its_owner_before_any_worker_starts(box, backend, taken, endpoint):
    with socket.socket(socket.AF_INET6 if ":" in taken else socket.AF_INET) as busy:
        busy.bind((taken, 0))
        busy.listen()
        port = busy.getsockname()[1]
        where = (["--nnodes=1", "--rdzv-backend=static", f"--master-addr={endpoint}", f"--master-port={port}"]
                 if backend == "static" else
                 ["--nnodes=1:2", f"--rdzv-endpoint=[{endpoint}]:{port}" if ":" in endpoint
                  else f"--rdzv-endpoint={endpoint}:{port}"])
        run = box.ctrun(*where, "--no-python", "touch", box.path("started"))
        refused(run, 77, "E_PORT_BUSY", str(port), f"pid {os.getpid()}")
        assert "free now" in run.err  # the message names another port
        assert not box.path("started").exists()


def test_an_endpoint_that_nobody_serves_is_named(box):
    with socket.socket() as closed:  # bound, not listening: connections are refused
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        run = box.ctrun("--nnodes=2", f"--rdzv-endpoint=127.0.0.1:{port}",
                        "--rdzv-conf=is_host=0,read_timeout=1", "true")
        assert run.code == 75 or run.code == 77, run
        assert f"127.0.0.1:{port}" in first_line(run), run


def test_an_endpoint_that_does_not_resolve_is_named(box):
    run = box.ctrun("--nnodes=2", "--rdzv-endpoint=no-such-host.invalid:29400",
                    "--rdzv-conf=read_timeout=1", "true")
    assert run.code not in (0, None), run
    assert "no-such-host.invalid" in first_line(run), run
