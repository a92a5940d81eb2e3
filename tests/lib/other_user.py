# SPDX-License-Identifier: Apache-2.0
"""Another user of this machine: processes with the uid of nobody."""
import os
import pwd
import shutil
import sys

import ctrun
import pytest

UID = pwd.getpwnam("nobody").pw_uid
needed = pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"),
                            reason="only root acts as another user, by setpriv")


def start(box, code, *arguments, **how):
    """Runs Python code as nobody; `arguments` are its sys.argv[1:]."""
    return box.start("setpriv", f"--reuid={UID}", "--regid=65534", "--clear-groups", sys.executable,
                     "-I", "-c", code, *arguments, cwd="/", **how)


def run(box, code, *arguments, **how):
    """Runs it to its end; returns what it printed."""
    it = start(box, code, *arguments, **how)
    assert it.wait() == 0, it
    return it.out


HOLD = """
import socket, sys, time
socks = []
for _ in range(int(sys.argv[2])):
    s = socket.socket()
    s.settimeout(60)
    s.connect(("127.0.0.1", int(sys.argv[1])))
    s.sendall(sys.argv[3].encode())
    socks.append(s)
print("held", flush=True)
time.sleep(600)
"""


def hold(box, port, count, text=""):
    """Opens `count` connections to the port; each sends `text`, then nothing. .signal(9) ends
    it."""
    it = start(box, HOLD, port, count, text)
    ctrun.wait_until(lambda: "held" in it.out, lambda: f"{count} connections: {it}")
    return it
