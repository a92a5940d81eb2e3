# SPDX-License-Identifier: Apache-2.0
"""Store servers, ours and PyTorch's, for test_store_*.py."""
import contextlib
import pathlib
import re
import signal
import subprocess

import ctrun
from torch_job import interpreter  # noqa: F401

TORCH = pathlib.Path(__file__).with_name("store_torch.py")


@contextlib.contextmanager
def _server(box, *argv):
    """Starts a server that prints its port last on a line and ends with its standard input, or
    by SIGTERM."""
    run = box.start(*argv, stdin=subprocess.PIPE)
    try:
        ctrun.wait_until(lambda: "\n" in run.out or run.code is not None,
                         lambda: f"a port\n{run}", 60)
        assert run.code is None, run
        yield int(re.search(r"(\d+)\n", run.out).group(1))
        assert run.code is None, run  # it survived the test
    finally:
        run.process.stdin.close()
        if run.argv[0].endswith("ctrund"):
            run.signal(signal.SIGTERM)
        run.wait()


def our_server(box):
    """The store's engine in a small server of the tests."""
    return _server(box, ctrun.program("store_server"))


def ctrund(box, path=None):
    return _server(box, path or ctrun.program("ctrund"), "--listen", "127.0.0.1:0")


def torch_server(box, python, use_libuv):
    return _server(box, python, TORCH, "serve", use_libuv)
