# SPDX-License-Identifier: Apache-2.0
"""Finds libctrun and declares the functions of <ctrun.h> that this package calls.

It is looked for in this order: the file that CTRUN_LIBRARY names; lib/ of this package, which the
wheel has (one library for glibc, one for musl); lib/ of Python's environment, as with conda; what
the system's loader finds."""
import ctypes
import os
import pathlib
import sys
from typing import Any, List, Optional

SONAME = "libctrun.so.0"
OWN = pathlib.Path(__file__).parent / "lib"


class ErrorText(ctypes.Structure):
    """struct ctrun_error, which never changes."""
    _fields_ = [("code", ctypes.c_int), ("text", ctypes.c_char * 1024)]


class Error(RuntimeError):
    """A call failed. `code` is a negative errno or one of ctrun.h's CTRUN_E_ codes, `text` says
    where, what and why."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


Error.__module__ = "ctrun"  # as its users know it


# Name, result, arguments; a last argument `struct ctrun_error *` is left to call().
_p, _int, _u64, _size = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64, ctypes.c_size_t
_key, _err = ctypes.c_char_p, ctypes.POINTER(ErrorText)
_FUNCTIONS: List[Any] = [
    ("ctrun_version", ctypes.c_char_p, []),
    ("ctrun_open", _int, [ctypes.POINTER(_p), _p, _err]),
    ("ctrun_close", None, [_p]),
    ("ctrun_rank", _int, [_p]),
    ("ctrun_world_size", _int, [_p]),
    ("ctrun_local_rank", _int, [_p]),
    ("ctrun_local_world_size", _int, [_p]),
    ("ctrun_node_rank", _int, [_p]),
    ("ctrun_restart_count", _int, [_p]),
    ("ctrun_generation", _u64, [_p]),
    ("ctrun_step", None, [_p, _u64]),
    ("ctrun_metric", _int, [_p, _key, ctypes.c_double, _err]),
    ("ctrun_batch", None, [_p, ctypes.POINTER(_u64), _size]),
    ("ctrun_should_stop", ctypes.c_bool, [_p]),
    ("ctrun_world_changes", ctypes.c_bool, [_p]),
    ("ctrun_world_shrinks", ctypes.c_bool, [_p]),
    ("ctrun_world_next", _int, [_p, _u64, ctypes.POINTER(_int), _int, ctypes.POINTER(ctypes.c_uint32), _err]),
    ("ctrun_world_store", ctypes.c_char_p, [_p, ctypes.POINTER(_int)]),
    ("ctrun_hold_open", _int, [ctypes.POINTER(_p), _p, _key, _p, _err]),
    ("ctrun_hold_write", _int, [_p, _p, _size, _err]),
    ("ctrun_hold_commit", _int, [_p, _err]),
    ("ctrun_hold_close", None, [_p]),
    ("ctrun_hold_wait", _int, [_p, _u64, _err]),
    ("ctrun_hold_find", _int, [_p, _key, _u64, ctypes.POINTER(_int), _err]),
    ("ctrun_store_open", _int, [ctypes.POINTER(_p), _p, _err]),
    ("ctrun_store_close", None, [_p]),
    ("ctrun_store_set", _int, [_p, _key, ctypes.c_char_p, _size, _err]),
    ("ctrun_store_get", _int, [_p, _key, ctypes.POINTER(_p), ctypes.POINTER(_size), _err]),
    ("ctrun_store_add", _int, [_p, _key, ctypes.c_int64, ctypes.POINTER(ctypes.c_int64), _err]),
    ("ctrun_store_wait", _int, [_p, ctypes.POINTER(_key), _size, _u64, _err]),
    ("ctrun_store_delete", _int, [_p, _key, _err]),
]


def _load() -> ctypes.CDLL:
    named = os.environ.get("CTRUN_LIBRARY")
    beside = os.path.join(sys.prefix, "lib", SONAME)
    places = [named] if named else [*sorted(map(str, OWN.glob("libctrun*.so*"))), beside, SONAME]
    reasons = []
    for place in places:
        try:
            return ctypes.CDLL(place)
        except OSError as error:  # for another libc, or missing
            reasons.append(str(error))
    raise ImportError(f"ctrun: cannot load libctrun: {'; '.join(reasons)}; install it, or name "
                      "the file in CTRUN_LIBRARY")


def _declare(library: ctypes.CDLL) -> ctypes.CDLL:
    for name, result, arguments in _FUNCTIONS:
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    return library


_library: Optional[ctypes.CDLL] = None
_free = ctypes.CDLL(None).free  # free() of the libc that libctrun uses
_free.argtypes = [_p]
_free.restype = None


def library() -> ctypes.CDLL:
    """Loads libctrun at the first call. Raises ImportError with the reason when that fails."""
    global _library
    if _library is None:
        _library = _declare(_load())
    return _library


def call(name: str, *arguments: Any) -> int:
    """Calls a function that can fail; raises Error with its code and text."""
    error = ErrorText()
    code: int = getattr(library(), name)(*arguments, ctypes.byref(error))
    if code < 0:
        raise Error(code, error.text.decode("utf-8", "replace"))
    return code


def take_bytes(value: ctypes.c_void_p, length: int) -> bytes:
    """Copies memory that the library allocated for us, and frees it."""
    try:
        return ctypes.string_at(value, length)
    finally:
        _free(value)
