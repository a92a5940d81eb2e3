# SPDX-License-Identifier: Apache-2.0
"""A stand-in for srun's PMI-2 server (mpi/pmi2): a socket a task, one key-value space, fences.

    pmi = Pmi(2)
    box.start_ctrun(..., env=pmi.env(0), fds=pmi.fds(0))
"""
import re
import socket
import threading

import ctrun


class Pmi:
    """Answers as Slurm 22.05 does. `reply`: the answer to the first line; empty: it closes the
    connection, None: it sends nothing. `tamper` changes each value before other tasks get it."""

    def __init__(self, size, reply=b"cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n",
                 tamper=None):
        self.size = size
        self.reply = reply
        self.tamper = tamper or (lambda value: value)
        self.kvs = {}
        self.names = {}  # as srun keeps them; None: srun does not answer its PMI
        self.answers_names = threading.Event()  # those of requests about names; cleared: later
        self.answers_names.set()
        self.held = "name-"  # how the names of these requests begin
        self.heard = [[] for _ in range(size)]  # names of the requests of each task
        self._told = {}
        self._new = {}
        self._at_fence = []
        self._lock = threading.Lock()
        self._ours, self._theirs = zip(*(socket.socketpair() for _ in range(size)))
        self._threads = [threading.Thread(target=self._serve, args=(rank,), daemon=True)
                         for rank in range(size)]
        for thread in self._threads:
            thread.start()

    def env(self, rank):
        return {"PMI_FD": str(self._theirs[rank].fileno()), "PMI_RANK": str(rank),
                "PMI_SIZE": str(self.size), "PMI_JOBID": "41.0", "SLURM_MPI_TYPE": "pmi2"}

    def fds(self, rank):
        return (self._theirs[rank].fileno(),)

    def wait_told(self):
        """The values that were put before the first fence, as they were put."""
        return ctrun.wait_until(lambda: list(self.kvs.values()), "the tasks have met at a fence")

    def close(self):
        self.answers_names.set()
        for end in self._ours + self._theirs:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # the task has done so
        for thread in self._threads:
            thread.join()
        for end in self._ours + self._theirs:
            end.close()

    def _read(self, rank, length):
        data = b""
        while len(data) < length:
            more = self._ours[rank].recv(length - len(data))
            if not more:
                raise EOFError
            data += more
        return data

    def _say(self, rank, text):
        self._ours[rank].sendall(b"%-6d%s" % (len(text), text.encode()))

    def _serve(self, rank):
        try:
            line = b""
            while not line.endswith(b"\n"):
                line += self._read(rank, 1)
            self.heard[rank].append(line.decode().strip())
            if self.reply is None:
                self._read(rank, 1)  # until the task hangs up
            self._ours[rank].sendall(self.reply)
            if not self.reply:
                self._ours[rank].shutdown(socket.SHUT_RDWR)
            while self._answer(rank, self._read(rank, int(self._read(rank, 6))).decode()):
                pass
            self._ours[rank].shutdown(socket.SHUT_RDWR)
        except (EOFError, OSError):
            pass  # the task has ended

    def _answer(self, rank, body):
        words = dict(re.findall("([^=;]+)=([^;]*);", body))
        name = words["cmd"]
        self.heard[rank].append(name)
        if name == "kvs-fence":
            self._come(rank)
            return True
        more, rc = "", 0
        if name == "name-publish" and self.names is not None:
            self.names[words["name"]] = words["port"]
        elif name.startswith("name-"):
            value = self.names and self.names.get(words["name"])
            more, rc = (f"value={value};", 0) if value else ("", 1)
        if name.startswith(self.held):
            self.answers_names.wait()
        if name == "fullinit":
            more = f"pmi-version=2;pmi-subversion=0;rank={rank};size={self.size};appnum=-1;"
        elif name == "kvs-put":
            self._new[words["key"]] = words["value"]
        elif name == "kvs-get":
            found = self._told.get(words["key"])
            more = "found=FALSE;" if found is None else f"found=TRUE;value={found};"
        self._say(rank, f"cmd={name}-response;rc={rc};{more}")
        return name != "finalize"

    def _come(self, rank):
        with self._lock:
            self._at_fence.append(rank)
            if len(self._at_fence) < self.size:
                return
            self.kvs.update(self._new)
            self._told.update({key: self.tamper(value) for key, value in self._new.items()})
            for one in self._at_fence:
                self._say(one, "cmd=kvs-fence-response;rc=0;")
            self.answers_names.set()
            self._at_fence.clear()
