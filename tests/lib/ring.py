# SPDX-License-Identifier: Apache-2.0
"""ring.py FOLDER ADDRESS [handle]: a rank of a stand-in for a collective library. Each rank reads from
the next one of a ring, for ever; when that fails, it writes FOLDER/raised.RANK: the time in ns, and
which of its other connections (the worker store's, one to another program where FOLDER/other has its port)
are alive. It ends only when all ranks but those in FOLDER/gone have written theirs: so the end of
one survivor does not free another. ADDRESS is this host's; handle: it has a handler for SIGTERM,
which Python runs only when a system call has ended."""
import os
import pathlib
import select
import signal
import socket
import sys
import time

ROOT, ADDRESS = pathlib.Path(sys.argv[1]), sys.argv[2]
FOLDER = ROOT / os.environ["TORCHELASTIC_RESTART_COUNT"]
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def write(name, text):
    (FOLDER / f".{name}").write_text(text + "\n")
    (FOLDER / f".{name}").rename(FOLDER / name)


def wait_read(name):
    """A text that ends with a line feed is whole."""
    path = FOLDER / name
    while not (path.exists() and path.read_text().endswith("\n")):
        select.select([], [], [], 0.002)
    return path.read_text()


def is_alive(connection):
    try:
        return bool(connection.recv(1, socket.MSG_DONTWAIT))
    except BlockingIOError:
        return True
    except OSError:
        return False


def main():
    FOLDER.mkdir(exist_ok=True)
    if "handle" in sys.argv:
        signal.signal(signal.SIGTERM, lambda *_: None)
    listener = socket.create_server((ADDRESS, 0))
    write(f"address.{RANK}", f"{ADDRESS} {listener.getsockname()[1]}")
    host, port = wait_read(f"address.{(RANK + 1) % WORLD}").split()
    following = socket.create_connection((host, int(port)))
    previous = listener.accept()[0]
    others = {"store": socket.create_connection((os.environ["MASTER_ADDR"],
                                                 int(os.environ["MASTER_PORT"])))}
    if (ROOT / "other").exists():
        others["other"] = socket.create_connection(("127.0.0.1", int((ROOT / "other").read_text())))
    write(f"ready.{RANK}", str(os.getpid()))
    try:
        following.recv(1)
    except OSError:
        pass
    alive = [name for name, connection in others.items() if is_alive(connection)]
    write(f"raised.{RANK}", f"{time.time_ns()} {' '.join(alive)}")
    gone = [int(n) for n in wait_read("gone").split()]
    for rank in set(range(WORLD)) - set(gone):
        wait_read(f"raised.{rank}")
    previous.close()
    sys.exit(1)


main()
