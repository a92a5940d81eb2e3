# SPDX-License-Identifier: Apache-2.0
"""In front of a worker's program for --hang-timeout: torch's flight recorder can be read from outside.

Python imports this as sitecustomize, because recorder_folder.c puts our folder into PYTHONPATH; a
worker that the template of --warm has forked runs it as another name. Then environment and sys.path
are as without it, the sitecustomize that was there before runs, and Python itself runs the program.
When that has imported torch.distributed, and not before, torch's own server of its recorder is
started, on a thread without Python, at a Unix socket with our number as its name. Whatever fails here
costs the program nothing: ctrun then reads stacks instead. Any Python may be below a worker, 2 too."""
import os
import sys

MODULE = "torch.distributed.distributed_c10d"


def take_back():
    """The folder; None: this process was not meant, or another one below the worker is."""
    folder = os.environ.pop("CTRUN_RECORDER", None)
    path = os.environ.pop("CTRUN_PYTHONPATH", None)
    if folder is None:
        return None
    if path is None:
        os.environ.pop("PYTHONPATH", None)
    else:
        os.environ["PYTHONPATH"] = path
    while folder in sys.path:
        sys.path.remove(folder)
    sys.path_importer_cache.pop(folder, None)
    return folder


def without_stderr(call, *words):
    """torch warns that it listens, and that it does not any more."""
    kept = os.dup(2)
    nothing = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nothing, 2)
        return call(*words)
    finally:
        os.dup2(kept, 2)
        os.close(nothing)
        os.close(kept)


def start(folder):
    import atexit
    import ctypes
    from torch._C._distributed_c10d import _WorkerServer  # torch 2.4 and later
    owner = os.getpid()
    path = os.path.join(folder, str(owner))
    server = without_stderr(_WorkerServer, path)
    os.chmod(path, 0o600)
    # Never destroyed: in a copy by fork() that would wait for a thread that is not there.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(server))

    def stop():
        if os.getpid() == owner:
            try:
                without_stderr(server.shutdown)
                os.unlink(path)
            except Exception:
                pass
    atexit.register(stop)


def try_start(folder):
    try:
        start(folder)
    except Exception:
        pass  # an older torch, or none with a recorder


class Finder(object):
    """Finds nothing itself, but sees the import of MODULE."""

    def __init__(self, folder):
        self.folder = folder

    def find_spec(self, name, path=None, target=None):
        if name != MODULE:
            return None
        sys.meta_path.remove(self)
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)  # a very old one has none
            spec = find(name, path, target) if find else None
            if spec is not None:
                self.follow(spec.loader)
                return spec
        return None

    def follow(self, loader):
        run = getattr(loader, "exec_module", None)
        if run is None:
            return

        def exec_module(module):
            del loader.exec_module
            run(module)
            try_start(self.folder)
        loader.exec_module = exec_module


FOLDER = take_back()
if FOLDER is not None and MODULE in sys.modules:
    try_start(FOLDER)
elif FOLDER is not None and sys.version_info >= (3, 8):
    sys.meta_path.insert(0, Finder(FOLDER))
if __name__ == "sitecustomize":
    del sys.modules[__name__]
    import sitecustomize  # the one that was there before; where there was none, site expects this ImportError
