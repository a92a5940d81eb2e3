# SPDX-License-Identifier: Apache-2.0
"""In front of a worker's program: torch's flight recorder can be read from outside, and the first step of
torch's optimizer is seen, and the beginning and the end of init_process_group().

Python imports this as sitecustomize, because recorder_folder.c puts our folder into PYTHONPATH; a
worker that the template of --warm has forked runs it as another name. Then environment and sys.path
are as without it, the sitecustomize that was there before runs, and Python itself runs the program.
When that has imported torch.distributed, and not before, torch's own server of its recorder is
started where the folder says so, on a thread without Python, at a Unix socket with our number as its name.
Then the first call of two functions inside of init_process_group() sends a datagram to the socket 0, too.
When it has imported torch.optim, a hook sends a datagram to the socket 0 after the first step of an optimizer, and
in it, where the folder says so, the names of the modules of installed packages that are imported then.
Whatever fails here costs the program nothing: ctrun then reads stacks instead. Any Python may be below a
worker, 2 too."""
import os
import sys

NAMES_MAX_BYTES = 120000  # a datagram has room for them everywhere


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


def serve(folder):
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


def installed():
    """In the order of their imports. Files of the user's own folders may change until the next round."""
    names = []
    for name, module in list(sys.modules.items()):
        path = module.__dict__.get("__file__") if isinstance(module, type(sys)) else None
        if isinstance(path, str) and "-packages" + os.sep in path:
            names.append(name)
    text = ",".join(names).encode(errors="replace")
    return text if len(text) <= NAMES_MAX_BYTES else text[:NAMES_MAX_BYTES].rpartition(b",")[0]


def find_names(folder):
    try:
        learns = os.environ.get("LOCAL_RANK") == "0" and os.path.exists(os.path.join(folder, "learn"))
        return installed() if learns else b""
    except Exception:
        return b""  # the step is seen even so


def send(folder, mark=None):
    import socket
    try:
        to = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        to.setblocking(False)
        to.sendto(mark or find_names(folder), os.path.join(folder, "0"))
        to.close()
    except Exception:
        pass


def watch_init(folder):
    """Both functions return at once; each is as before when it has been called."""
    module = sys.modules["torch.distributed.distributed_c10d"]

    def mark(name, word):
        real = getattr(module, name)

        def first(*args, **kwargs):
            setattr(module, name, real)
            send(folder, word)
            return real(*args, **kwargs)
        setattr(module, name, first)
    mark("rendezvous", b"!import")
    mark("_update_default_pg", b"!init")


def watch_steps(folder):
    """The hook stays: while it runs, the list of hooks may not change. In a step that is compiled it is nothing."""
    import torch  # which is being imported now
    from torch.optim.optimizer import register_optimizer_step_post_hook
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 4):
        return  # without is_compiling() there
    waiting = [folder]

    def on_step(*_):
        if not torch.compiler.is_compiling() and waiting:
            send(waiting.pop())
    register_optimizer_step_post_hook(on_step)


def attempt(call, folder):
    try:
        call(folder)
    except Exception:
        pass  # an older torch, or none with a recorder


def watch_group(folder):
    attempt(watch_init, folder)
    if os.path.exists(os.path.join(folder, "serve")):
        serve(folder)


class Finder(object):
    """Finds nothing itself, but sees the import of some modules, and calls then what is to be called."""

    def __init__(self, folder, calls):
        self.folder = folder
        self.calls = calls

    def find_spec(self, name, path=None, target=None):
        call = self.calls.pop(name, None)
        if call is None:
            return None
        others = [finder for finder in sys.meta_path if finder is not self]
        if not self.calls:
            try:
                sys.meta_path.remove(self)
            except ValueError:
                pass  # a thread that imports another of the modules has removed it
        for finder in others:
            find = getattr(finder, "find_spec", None)  # a very old one has none
            spec = find(name, path, target) if find else None
            if spec is not None:
                self.follow(spec.loader, call)
                return spec
        return None

    def follow(self, loader, call):
        run = getattr(loader, "exec_module", None)
        if run is None:
            return

        def exec_module(module):
            del loader.exec_module
            run(module)
            attempt(call, self.folder)
        loader.exec_module = exec_module


def begin(folder):
    calls = {"torch.optim.optimizer": watch_steps, "torch.distributed.distributed_c10d": watch_group}
    for name in [name for name in calls if name in sys.modules]:
        attempt(calls.pop(name), folder)
    if calls:
        sys.meta_path.insert(0, Finder(folder, calls))


FOLDER = take_back()
if FOLDER is not None and sys.version_info >= (3, 8):
    begin(FOLDER)
if __name__ == "sitecustomize":
    del sys.modules[__name__]
    import sitecustomize  # the one that was there before; where there was none, site expects this ImportError
