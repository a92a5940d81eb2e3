# SPDX-License-Identifier: Apache-2.0
"""A stand-in for what ctrun sees of torch.distributed from outside: calls that wait in a file of
the same name, and a server with the answers of a flight recorder. install() writes the packages
that a test's script imports."""
import pathlib

C10D = '''import os
from torch._C import _distributed_c10d
ends = os.pipe()


def call(number, op="gloo:all_reduce", size=3, waits=True, pair=False):
    """One collective, or send or receive; it never ends if it waits."""
    entry = {"pg_id": 0, "process_group": ["0", "default_pg"], "collective_seq_id": 0 if pair else number,
             "p2p_seq_id": number if pair else 0, "profiling_name": op,
             "time_created_ns": __import__("time").time_ns(), "input_sizes": [[size]], "input_dtypes": ["Float"],
             "state": "scheduled" if waits else "completed", "is_p2p": pair}
    _distributed_c10d.entries.append(entry)
    if waits:
        open(f"in.{os.environ['RANK']}.{number}", "w").close()
        os.read(ends[0], 1)
'''

# The variable FAKE_RECORDER chooses the answer. "none": there is no server, as in an older torch;
# "stops N": rank 1 stops itself after an answer whose last call is N seconds old.
SERVER = '''import json, os, signal, socket, sys, threading, time
entries = []
mode, _, limit = os.environ.get("FAKE_RECORDER", "").partition(" ")


def answer():
    if mode == "garbage":
        return b"{" * 1000
    if mode == "endless":
        return None
    last = max([entry["collective_seq_id"] for entry in entries], default=0)
    return json.dumps({"entries": entries, "pg_status": {"0": {"last_enqueued_collective": str(last)}}}).encode()


def send(connection):
    is_other = b"nccl" in connection.recv(4096)
    body = b"{}" if is_other != (mode == "nccl") else answer()
    if mode == "silent":
        return body
    try:
        connection.sendall(b"HTTP/1.1 200 OK\\r\\n\\r\\n" + (body or b""))
        while body is None:
            connection.sendall(b"[" * 65536)
    except OSError:
        pass
    connection.close()
    return body


def serve(listener):
    kept = []
    while True:
        connection = listener.accept()[0]
        kept.append(connection)
        body = send(connection)
        if (mode == "stops" and os.environ["RANK"] == "1" and b"pg_id" in body and
                entries[-1]["time_created_ns"] < time.time_ns() - int(limit) * 10**9):
            os.kill(os.getpid(), signal.SIGSTOP)
            threading.Event().wait()  # the other threads may be stopped first


class Server:
    def __init__(self, path):
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen(5)
        print("listening", file=sys.stderr)  # as torch does; nobody is to see it
        threading.Thread(target=serve, args=(listener,), daemon=True).start()

    def shutdown(self):
        print("shutting down", file=sys.stderr)


if mode != "none":
    _WorkerServer = Server
'''


def install(folder):
    """Writes the packages; returns the PYTHONPATH for them."""
    for name, text in (("torch/__init__.py", ""), ("torch/_C/__init__.py", ""), ("torch/distributed/__init__.py", ""),
                       ("torch/_C/_distributed_c10d.py", SERVER), ("torch/distributed/distributed_c10d.py", C10D)):
        path = pathlib.Path(folder, "site-packages", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(pathlib.Path(folder, "site-packages"))  # a library, as torch is
