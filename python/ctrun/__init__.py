# SPDX-License-Identifier: Apache-2.0
"""A worker's side of ctrun(1), over libctrun: no compiler, no dependency.

    import ctrun

    for step in range(start, end):
        ...
        ctrun.step(step)                 # how far this rank is, for `ctrunctl status`
        ctrun.metric("loss", loss)       # what it measures, for Prometheus
        if ctrun.should_stop():          # the same answer at the same step on all ranks
            save()
            break

ctrun.run() returns rank and world size, ctrun.store() opens the store that all ranks see.
ctrun.lightning and ctrun.transformers have callbacks. A process without a launcher is a run of one
rank: step() and metric() do nothing, should_stop() is False. Under torchrun run() and store() work,
and should_stop() is False.

Any thread may call anything; calls on one object wait for each other. After fork() a child has a
session of its own: let only the process that ctrun started call should_stop()."""
import ctypes
import io
import itertools
import os
import threading
from types import TracebackType
from typing import Iterable, NamedTuple, Optional, Sequence, SupportsFloat, SupportsInt, Type, Union

from ._hold import Hold, find
from ._library import Error, call, library, take_bytes

__all__ = ["Error", "Hold", "Run", "Store", "batch", "held", "hold", "hold_wait", "library_version", "metric", "run", "should_stop", "step", "store"]
__version__ = "0.1.0"


class Run(NamedTuple):
    """The place of this process in the run; constant."""
    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    node_rank: int
    restart_count: int  # of the whole group; the same on every rank
    generation: int     # number of the world we are part of; 0 when not started by ctrun


_lock = threading.Lock()  # of the session
_session: Optional[ctypes.c_void_p] = None


def _open() -> ctypes.c_void_p:
    """The session of this process. Holds _lock."""
    global _session
    if _session is None:
        session = ctypes.c_void_p()
        call("ctrun_open", ctypes.byref(session), None)
        _session = session
    return _session


def _forget() -> None:
    """In a child of fork(): drops the parent's session, and a lock that another thread held."""
    global _session, _lock
    _session, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget)


def library_version() -> str:
    """The version of the libctrun that was found, for example "0.1.0"."""
    text: bytes = library().ctrun_version()
    return text.decode()


def run() -> Run:
    """Raises Error when RANK, WORLD_SIZE and their like are set, but wrong."""
    with _lock:
        session = _open()
        return Run(*(getattr(library(), f"ctrun_{field}")(session) for field in Run._fields))


def step(number: int) -> None:
    """Tells the agent that this rank has finished step `number`; at most a few messages a second
    leave the process. Never blocks."""
    if not 0 <= number < 1 << 64:
        raise ValueError(f"step {number} is not from 0 to 2^64 - 1")
    with _lock:
        library().ctrun_step(_open(), number)


def metric(name: str, value: SupportsFloat) -> None:
    """Sets a gauge of this rank. The last value is shown at /metrics of the rendezvous server, by
    `ctrunctl status --json` and, once this process has ended, in its event worker_ended. Names are
    Prometheus names of at most 63 characters, 32 per process; those that begin with "ctrun" or "__"
    are reserved. Raises Error for a wrong name. Never blocks."""
    with _lock:
        call("ctrun_metric", _open(), _encode(name), float(value))


def batch(ids: Iterable[SupportsInt]) -> None:
    """Tells the agent which samples this rank works on from now on, by ids that stay the same after a
    restart, from 0 to 2^64 - 1, in a sequence or a tensor. When this rank fails, and it worked on some of
    them at an earlier failure of this run, too, the failure report names these. The first 64 are kept.
    Never blocks."""
    first = [int(i) for i in itertools.islice(ids, 65)]
    if any(not 0 <= i < 1 << 64 for i in first):
        raise ValueError("batch: a sample's id is not from 0 to 2^64 - 1")
    with _lock:
        library().ctrun_batch(_open(), (ctypes.c_uint64 * len(first))(*first), len(first))


def hold(path: Union[str, "os.PathLike[str]"]) -> Hold:
    """A checkpoint file in memory. The agent has that memory, too, and writes it to the disk, even if
    this process dies:

        with ctrun.hold("last.pt") as f:
            torch.save(state, f)

    Waits while two committed files are not on the disk yet. Without an agent the end of the
    `with` writes the file. Raises Error when the workers of the node hold half of its memory.
    A run whose last file was lost fails, unless hold_wait() has told the worker."""
    with _lock:
        session = _open()
    return Hold(session, _path(path))


def hold_wait(timeout: float = 300.0) -> None:
    """Waits until all files that this rank committed are on the disk; raises Error if the last is lost."""
    with _lock:
        session = _open()
    call("ctrun_hold_wait", session, _milliseconds(timeout))


def held(path: Union[str, "os.PathLike[str]"], timeout: float = 300.0) -> Optional[io.BufferedReader]:
    """Opens the file at path from the agent's memory, which is faster than a disk. None when the agent
    does not have the file, or the disk has another one now:

        with ctrun.held("last.pt") or open("last.pt", "rb") as f:
            state = torch.load(f)"""
    with _lock:
        session = _open()
    return find(session, _path(path), _milliseconds(timeout))


def should_stop() -> bool:
    """True once the run is to end (`ctrunctl stop` or `drain`, pre-emption, resize): save, then
    leave. Call it once a step on every rank: then all get True at the same call. About ten times a
    second it asks the store."""
    with _lock:
        answer: bool = library().ctrun_should_stop(_open())
        return answer


class Store:
    """A client of the TCPStore at MASTER_ADDR:MASTER_PORT. Keys are text of at most 8191 bytes, values
    bytes of at most 8 MiB. Every call has a deadline, 300 s where none is given; after the deadline,
    and when the network fails, it raises Error."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._handle: Optional[ctypes.c_void_p] = ctypes.c_void_p()
        with _lock:
            call("ctrun_store_open", ctypes.byref(self._handle), _open())

    def _live(self) -> ctypes.c_void_p:
        if self._handle is None:
            raise ValueError("the store is closed")
        return self._handle

    def set(self, key: str, value: Union[bytes, str]) -> None:
        data = value.encode() if isinstance(value, str) else bytes(value)
        with self._lock:
            call("ctrun_store_set", self._live(), _encode(key), data, len(data))

    def get(self, key: str) -> bytes:
        """Waits until the key exists."""
        value, length = ctypes.c_void_p(), ctypes.c_size_t()
        with self._lock:
            call("ctrun_store_get", self._live(), _encode(key), ctypes.byref(value),
                 ctypes.byref(length))
        return take_bytes(value, length.value)

    def add(self, key: str, delta: int = 1) -> int:
        """Adds to a counter that begins at 0; returns its new value. Atomic."""
        if not -(1 << 63) <= delta < 1 << 63:
            raise ValueError(f"{delta} does not fit into 64 bits")
        result = ctypes.c_int64()
        with self._lock:
            call("ctrun_store_add", self._live(), _encode(key), delta, ctypes.byref(result))
        return result.value

    def wait(self, keys: Sequence[str], timeout: float = 300.0) -> None:
        """Waits until all keys exist, for at most `timeout` seconds."""
        names = (ctypes.c_char_p * len(keys))(*map(_encode, keys))
        with self._lock:
            call("ctrun_store_wait", self._live(), names, len(keys), _milliseconds(timeout))

    def delete(self, key: str) -> bool:
        """Deletes the key; returns whether it existed."""
        with self._lock:
            return call("ctrun_store_delete", self._live(), _encode(key)) == 1

    def close(self) -> None:
        """May be called twice."""
        with self._lock:
            handle, self._handle = self._handle, None
            if handle is not None:
                library().ctrun_store_close(handle)

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        self.close()


def _milliseconds(seconds: float) -> int:
    """At most thirty years: infinity would not fit."""
    return int(min(max(seconds, 0), 1e9) * 1000)


def _encode(key: str) -> bytes:
    data = key.encode()
    if b"\0" in data:
        raise ValueError(f"the key {key!r} has a NUL in it")
    return data


def _path(path: Union[str, "os.PathLike[str]"]) -> bytes:
    name = os.fsencode(path)
    if b"\0" in name:
        raise ValueError(f"the path {path!r} has a NUL in it")
    return name


def store() -> Store:
    """Connects, trying again until 300 s are over. Close it, or use it in a `with`."""
    return Store()
