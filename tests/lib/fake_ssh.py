# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for ssh, which run the command on this machine, or on a host of a lab.

As sshd does, they give it a fresh environment, the home folder and a shell; $FAKE_HOST tells
which host it is on. Names that begin with `bad` cannot be reached, `evil` greet with an escape
sequence, `mute` never answer, `shut` close their output and do not end, `noisy` have a login script that
talks."""
import os
import select
import socket
import subprocess
import threading

import lab as hosts

LOCAL = """#!/bin/sh
host=$1; shift
echo "$host" >> "{calls}"
case $host in
bad*) echo "ssh: Could not resolve hostname $host: Name or service not known" >&2; exit 255 ;;
evil*) printf '\\033]0;owned\\007\\n' >&2; exit 255 ;;
mute*) exec sleep 600 ;;
shut*) exec sleep 600 >&- ;;
noisy*) echo "Welcome to $host"; echo "you have mail" >&2 ;;
bare*) set -- "exec /nowhere/ctrun --relay" ;;
esac
cd /
exec env -i HOME=/ PATH=/usr/bin:/bin ${{FAKE_SSH_ENV:-}} {mark} FAKE_HOST="$host" sh -c "$*"
"""


def local(box):
    """Writes one into the box; returns its path. It adds the host of each call to the file
    `calls`."""
    return box.write("ssh", LOCAL.format(calls=box.path("calls"),
                                         mark=f"CTRUN_TEST_MARK={box.mark}"), 0o755)


def calls(box):
    return box.path("calls").read_text().split()


LAB = """#!/usr/bin/env python3
# Runs on any host of a lab. A process outside, which may enter all of them, starts the command
# with our own pipes; we end with its exit code.
import array, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({path!r})
    fds = array.array("i", [0, 1, 2])
    server.sendmsg(["\\0".join(sys.argv[1:]).encode()],
                   [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
    for fd in fds:
        os.close(fd)
    code = server.recv(1)
sys.exit(code[0] if code else 255)
"""


class Lab:
    """ssh between the hosts of a lab: `command` is for --ssh."""

    def __init__(self, box, lab):
        self.box, self.lab = box, lab
        path = str(box.path("sshd"))
        self.command = "/usr/bin/python3 " + box.write("lab-ssh", LAB.format(path=path), 0o755)
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(path)
        self.server.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self.server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        with client:
            words, fds, _, _ = socket.recv_fds(client, 1 << 20, 3)
            host, command = words.decode().split("\0", 1)
            # As sshd does: a fresh environment, the home folder, a shell.
            child = subprocess.Popen(
                [hosts.SCRIPT, "-L", self.lab.name, "exec", "-d", "/", host, "env", "-i", "HOME=/",
                 "PATH=/usr/bin:/bin", f"CTRUN_TEST_MARK={self.box.mark}", "sh", "-c", command],
                stdin=fds[0], stdout=fds[1], stderr=fds[2])
            for fd in fds:
                os.close(fd)
            # An ssh that is killed closes its connection, and sshd ends what it started for it.
            ended = threading.Thread(target=child.wait, daemon=True)
            ended.start()
            while ended.is_alive():
                ready, _, _ = select.select([client], [], [], 0.05)
                if ready:
                    child.terminate()
                    ended.join()
                    return
            client.send(bytes([child.returncode & 0xFF]))

    def close(self):
        self.server.close()
