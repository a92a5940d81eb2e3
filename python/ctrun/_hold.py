# SPDX-License-Identifier: Apache-2.0
"""Checkpoints in memory that the agent has, too: the Hold of ctrun.hold()."""
import ctypes
import io
import os
import threading
from types import TracebackType
from typing import Any, Optional, Type

from ._library import call, library


class _Buffer(ctypes.Structure):
    """Py_buffer."""
    _fields_ = [("buf", ctypes.c_void_p), ("obj", ctypes.py_object), ("len", ctypes.c_ssize_t),
                ("itemsize", ctypes.c_ssize_t), ("readonly", ctypes.c_int), ("ndim", ctypes.c_int),
                ("format", ctypes.c_char_p), ("shape", ctypes.c_void_p),
                ("strides", ctypes.c_void_p), ("suboffsets", ctypes.c_void_p),
                ("internal", ctypes.c_void_p)]


_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = [ctypes.py_object, ctypes.POINTER(_Buffer), ctypes.c_int]
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = [ctypes.POINTER(_Buffer)]
_release_buffer.restype = None


class Hold(io.RawIOBase):
    """A file that is written from front to back. At the end of the `with` block the file is committed,
    or dropped when the block ends by an exception."""

    def __init__(self, session: ctypes.c_void_p, path: bytes) -> None:
        super().__init__()
        self._lock, self._owner = threading.RLock(), os.getpid()
        self._handle: Optional[ctypes.c_void_p] = None
        handle = ctypes.c_void_p()
        call("ctrun_hold_open", ctypes.byref(handle), session, path, None)
        self._handle = handle
        self._length = 0

    def _live(self) -> ctypes.c_void_p:
        if self._handle is None:
            raise ValueError("the checkpoint is committed or dropped")
        return self._handle

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._length

    def write(self, data: Any) -> int:
        """Writes all bytes of any object with a contiguous buffer."""
        buffer = _Buffer()
        _get_buffer(data, ctypes.byref(buffer), 0)
        try:
            with self._lock:
                call("ctrun_hold_write", self._live(), buffer.buf, buffer.len)
                self._length += buffer.len
            return int(buffer.len)
        finally:
            _release_buffer(ctypes.byref(buffer))

    def commit(self) -> None:
        """From here on the agent writes the file even if this process dies. No more writes."""
        with self._lock:
            try:
                call("ctrun_hold_commit", self._live())
            finally:
                self.close()

    def close(self) -> None:
        """Drops the file if it is not committed. May be called twice."""
        if os.getpid() == self._owner:  # a child of fork() does not own the hold; its lock may stay locked
            with self._lock:
                handle, self._handle = self._handle, None
                if handle is not None:
                    library().ctrun_hold_close(handle)
        super().close()

    def __enter__(self) -> "Hold":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        if kind is None and self._handle is not None:
            self.commit()
        self.close()


def find(session: ctypes.c_void_p, path: bytes, timeout_ms: int) -> Optional[io.BufferedReader]:
    descriptor = ctypes.c_int(-1)
    if call("ctrun_hold_find", session, path, timeout_ms, ctypes.byref(descriptor)) == 0:
        return None
    return os.fdopen(descriptor.value, "rb")
