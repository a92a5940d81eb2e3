# SPDX-License-Identifier: Apache-2.0
"""The template of --warm: imports what all workers will import, and is forked for each of them.

usage: python -u -c BOOT THIS-TEXT SOCKET MODULES SCRIPT WORKERS     (template.h has the protocol)

It runs on one thread and never runs the program itself. For each batch of workers it forks a starter,
which forks the workers and ends, so that they become children of the agent, as if it had started them.
It also has what a worker does until its program begins: the same as Python does after an exec."""
import array
import atexit
import builtins
import contextlib
import ctypes
import errno
import gc
import importlib
import importlib.machinery
import importlib.util
import io
import os
import pkgutil
import runpy
import signal
import socket
import struct
import sys
import time
import warnings

WITH_TORCH = ("torch.distributed", "torch._dynamo")  # what the first step of torch imports
PR_SET_PDEATHSIG = 1
MADV_DONTNEED = 4
MADV_COLLAPSE = 25  # since Linux 6.1
HUGE_PAGE = 2 << 20
MANY = 32  # for so many workers huge pages are worth their time, that of 50 forks
NEVER = 1 << 30  # a threshold of full collections that is not reached
SIGKILLED = 128 + signal.SIGKILL
AUTO = "auto"  # among the modules: learn() is called later
IMPORT = b"IMPORT "
MESSAGE_MAX = 1 << 18
LINE_MAX = 300
STDIO = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))
libc = ctypes.CDLL(None)
libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def set_name(name, words):
    """Sets what ps and pgrep -f show. A last byte that is not 0 marks a title for the kernel."""
    with open("/proc/self/comm", "w", encoding="utf-8") as file:
        file.write(name)
    with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    start, size = int(fields[45]), int(fields[46]) - int(fields[45])
    text = b" ".join(words)[:size - 2]
    if start and size > 2:
        ctypes.memset(start, 0, size)
        ctypes.memmove(start, text, len(text))
        ctypes.memset(start + size - 1, 1, 1)


def tell(agent, kind, data=b""):
    try:
        agent.send(kind + data)
    except OSError:
        os._exit(SIGKILLED)  # the agent has ended, or has closed its end


def refuse(agent, obstacle):
    tell(agent, b"N", obstacle.encode(errors="replace")[:500])
    os._exit(1)


# ---- The template ---------------------------------------------------------------------------

def set_old_threshold(wanted):
    """Sets the threshold of full garbage collections; returns the one before."""
    young, middle, before = gc.get_threshold()
    gc.set_threshold(young, middle, wanted)
    return before


def import_all(names):
    """Imports without full garbage collections, in an eighth less time: nearly all objects stay
    anyway."""
    before = set_old_threshold(NEVER)
    try:
        import_each(names)
    finally:
        now = set_old_threshold(before)
        if now != NEVER:  # a module has set its own
            set_old_threshold(now)


def import_each(names):
    for name in names:
        importlib.import_module(name)
        for other in WITH_TORCH if name == "torch" else ():
            if importlib.util.find_spec(other):
                importlib.import_module(other)


def folder_of(script):
    """sys.path[0] of the program."""
    return os.path.dirname(os.path.realpath(script)) if script else os.getcwd()


def is_safe_path():
    return getattr(sys.flags, "safe_path", False)


def thread_names():
    """Of the threads of this process; one may end while they are read."""
    names = []
    for thread in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{thread}/comm", encoding="utf-8", errors="replace") as file:
                names.append(file.read().strip())
        except OSError:
            pass
    return names


def find_obstacle():
    """Why no worker can be forked; empty if one can."""
    if sys.version_info < (3, 8):
        return f"it needs Python 3.8 or later, and this is {sys.version_info[0]}.{sys.version_info[1]}"
    pid = os.fork()  # libraries that know of it end their threads for it, and start them when they need them
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    names = thread_names()
    for _ in range(100):  # a thread that was joined is listed until the kernel has ended it
        if len(names) == 1:
            break
        time.sleep(0.01)
        names = thread_names()
    if len(names) > 1:
        return f"{len(names)} threads after the imports ({', '.join(sorted(names))})"
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda and cuda.is_initialized():
        return "CUDA is initialized by the imports"
    for fd in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue  # the descriptor of the listing
        if target.startswith(("/dev/nvidia", "/dev/kfd", "/dev/dri/")):
            return f"{target} is open after the imports"
    return ""


def drop_file_pages():
    """Unmaps the pages of libraries that imports have read: a worker maps what it uses. The kernel
    keeps the files in memory, and maps their pages again when they are used. Mappings with changed
    pages, as by relocations, are kept."""
    where, own = None, 0

    def drop():
        if where and own == 0:
            libc.madvise(where[0], where[1] - where[0], MADV_DONTNEED)

    with open("/proc/self/smaps", encoding="utf-8", errors="replace") as file:
        for line in file:
            words = line.split()
            if words[0] in ("Anonymous:", "Swap:"):
                own += int(words[1])
            elif not words[0].endswith(":"):  # the first line of the next mapping
                drop()
                first, _, end = words[0].partition("-")
                is_file = words[4] != "0" and words[1][1] == "-" and words[1][3] == "p"
                where, own = (int(first, 16), int(end, 16)) if is_file else None, 0
    drop()


def use_huge_pages():
    """fork() copies an entry for each page: 13 ms for PyTorch, and 3 ms with huge pages. A worker that writes to a huge
    page still copies 4 KiB of it."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        lines = [line.split() for line in file]
    for words in lines:
        if words[1] == "rw-p" and words[5:] in ([], ["[heap]"]):
            first, end = (int(place, 16) // HUGE_PAGE for place in words[0].split("-"))
            for page in range(first + 1, end):
                libc.madvise(page * HUGE_PAGE, HUGE_PAGE, MADV_COLLAPSE)  # on failure the pages stay as they are


@contextlib.contextmanager
def unmoved():
    """Imports may change the current folder and sys.path: workers have those from before."""
    here = os.open(".", os.O_PATH | os.O_CLOEXEC)
    path = list(sys.path)
    try:
        yield
    finally:
        sys.path[:] = path
        os.fchdir(here)
        os.close(here)


def describe(error):
    text = "".join(letter if letter.isprintable() else "?" for letter in " ".join(str(error).split()))
    return f"{type(error).__name__}{': ' if text else ''}{text}"


def prepare(modules, script, workers):
    """Imports the modules. Returns why no worker can be forked; empty if one can."""
    try:
        with unmoved():
            if not is_safe_path():
                sys.path.insert(0, folder_of(script))
            import_all([name for name in modules.split(",") if name != AUTO])
    except BaseException as error:  # SystemExit, too
        return f"import of {modules}: {describe(error)}"
    importlib.invalidate_caches()  # workers read folders anew; in a worker this call would write to the pages of all finders
    gc.disable()
    gc.collect()
    gc.freeze()
    if workers >= MANY:
        use_huge_pages()
    drop_file_pages()
    return ""


def receive(agent):
    """(number, fds) of the next worker; ends the process at the end of a batch."""
    data, parts, flags, _ = agent.recvmsg(4, socket.CMSG_SPACE(5 * 4))
    fds = array.array("i")
    for level, kind, part in parts:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(part)
    if len(data) != 4 or len(fds) != 5 or flags & socket.MSG_CTRUNC:
        os._exit(0)
    return struct.unpack("=i", data)[0], list(fds)


def start_batch(agent):
    """Runs in the starter. Returns only in workers: what was received for each."""
    while True:
        number, fds = receive(agent)
        try:
            pid = os.fork()
        except OSError as error:
            tell(agent, b"W", struct.pack("=ii", number, -error.errno))
            os._exit(1)
        if pid == 0:
            return number, fds
        for fd in fds:
            os.close(fd)


def wait_for_end():
    """Waits until the agent kills a template that has failed: an earlier end would lose what is in
    the socket."""
    while True:
        signal.pause()


def import_what_works(names):
    """Returns what failed, and why."""
    failed = []
    for name in names:
        try:
            with unmoved():
                importlib.import_module(name)
        except BaseException as error:  # SystemExit, too
            failed.append(f"{name}: {describe(error)}")
    return failed


def learn(names):
    """Imports what the workers had imported at their first step, too. What fails is left out. Returns why no worker can
    be forked now; empty if one can."""
    failed = import_what_works(names)
    if failed:
        more = f"; and {len(failed) - 1} more" if len(failed) > 1 else ""
        os.write(2, f"ctrun: --warm=auto leaves out {failed[0][:LINE_MAX]}{more}\n".encode(errors="replace"))
    importlib.invalidate_caches()
    gc.collect()
    gc.freeze()
    drop_file_pages()
    return find_obstacle()


def serve(agent):
    """Returns only in a worker."""
    while True:
        begin = agent.recv(len(IMPORT), socket.MSG_PEEK)
        if not begin:
            break
        if begin == IMPORT:
            obstacle = learn(agent.recv(MESSAGE_MAX)[len(IMPORT):].decode(errors="replace").split(","))
            if obstacle:
                refuse(agent, obstacle)
            continue
        try:
            pid = os.fork()
        except OSError as error:
            tell(agent, b"W", struct.pack("=ii", 0, -error.errno))
            wait_for_end()
        if pid == 0:
            return start_batch(agent)
        _, status = os.waitpid(pid, 0)
        tell(agent, b"D", struct.pack("=i", status))
        if status:
            wait_for_end()
    os._exit(0)  # the agent has ended


# ---- A worker, until its program begins -----------------------------------------------------

def wait_for_agent(agent, parent, number, fds):
    """Makes the session and the streams, and waits until the agent knows all of the batch. Returns
    argv and environment."""
    request, barrier, *streams = fds
    os.setsid()
    for place, fd in enumerate(streams):
        os.dup2(fd, place)
        os.close(fd)
    with open(request, "rb") as file:
        file.seek(0)
        argc, envc = struct.unpack("=II", file.read(8))
        words = file.read().split(b"\0")
    tell(agent, b"W", struct.pack("=ii", number, 0))
    agent.close()
    if os.read(barrier, 1) != b"g":
        os._exit(SIGKILLED)
    os.close(barrier)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(SIGKILLED)  # the agent ended before that
    return words[:argc], words[argc:argc + envc]


def set_environment(pairs):
    wanted = {}
    for pair in pairs:
        name, equal, value = pair.partition(b"=")
        if equal and name:
            wanted.setdefault(name, value)
    for name in set(os.environb) - set(wanted):
        del os.environb[name]
    for name, value in wanted.items():
        if os.environb.get(name) != value:
            os.environb[name] = value


def open_stream(place, mode, old):
    """As Python does with -u: output is not buffered."""
    name = f"<{STDIO[place][0]}>"
    try:
        binary = open(place, mode + "b", 0 if mode == "w" else -1, closefd=False)
    except OSError as error:
        if error.errno in (errno.EBADF, errno.EISDIR):
            return None
        raise
    (binary if mode == "w" else binary.raw).name = name
    text = io.TextIOWrapper(binary, encoding=old.encoding, errors=old.errors, newline="\n",
                            write_through=True)
    text.mode = mode
    return text


def set_streams():
    for place, (name, mode) in enumerate(STDIO):
        old = getattr(sys, f"__{name}__")
        if old is not None:
            stream = open_stream(place, mode, old)
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)


def set_main(loader, filename=None):
    """Makes __main__ as it is before the first line of a program."""
    space = sys.modules["__main__"].__dict__
    space.clear()
    space.update(__name__="__main__", __doc__=None, __package__=None, __loader__=loader,
                 __spec__=None, __builtins__=builtins)
    if sys.version_info < (3, 14):
        space["__annotations__"] = {}
    if filename:
        space["__file__"] = filename
        if sys.version_info < (3, 15):
            space["__cached__"] = None
    return space


def insert_path(folder):
    if not is_safe_path():
        sys.path.insert(0, folder)


def load_script(script):
    """Returns the function that runs the script, and its arguments."""
    filename = os.path.join(os.getcwd(), script) if sys.version_info >= (3, 9) else script
    if pkgutil.get_importer(filename) is not None:  # a folder or archive with a __main__
        sys.path.insert(0, filename)
        set_main(None)
        return runpy._run_module_as_main, ("__main__", False)
    insert_path(folder_of(script))
    space = set_main(importlib.machinery.SourceFileLoader("__main__", filename), filename)
    try:
        with io.open_code(filename) as file:
            code = pkgutil.read_code(file)
        if code is None:
            with io.open_code(filename) as file:
                code = compile(file.read(), filename, "exec", dont_inherit=True)
    except OSError as error:
        print(f"{sys.executable}: can't open file {filename!r}: [Errno {error.errno}] {error.strerror}",
              file=sys.stderr)
        sys.exit(2)
    return exec, (code, space)


def load(words):
    """Returns the same for the words after `python -u`."""
    sys.argv = list(words)
    if words[0] == "-m":
        sys.argv[:2] = ["-m"]
        insert_path(os.getcwd())
        set_main(None)
        return runpy._run_module_as_main, (words[1], True)
    if words[0] == "-c":
        sys.argv[:2] = ["-c"]
        insert_path("")
        return exec, (compile(words[1], "<string>", "exec", dont_inherit=True),
                      set_main(importlib.machinery.BuiltinImporter))
    return load_script(words[0])


def start_recorder():
    """Starts the recorder (agent/recorder), as Python does with --hang-timeout after an exec."""
    folder = os.environ.get("CTRUN_RECORDER")
    if folder:
        with open(os.path.join(folder, "sitecustomize.py"), encoding="utf-8") as file:
            text = file.read()
        exec(compile(text, file.name, "exec", dont_inherit=True), {"__name__": "ctrun.recorder"})


def become_worker(name, argv, environment):
    set_environment(environment)
    set_streams()
    start_recorder()
    set_name(name, argv)
    words = [os.fsdecode(word) for word in argv]
    if hasattr(sys, "orig_argv"):
        sys.orig_argv = list(words)
    if "numpy.random" in sys.modules:  # `random` does that by itself
        sys.modules["numpy.random"].seed()
    atexit.register(gc.unfreeze)  # runs last: objects are freed as usual at the end
    gc.enable()
    return words[2:]


def hide_own_frames(hook):
    """An excepthook that removes the frames of this file, and then calls `hook`."""
    def show(kind, value, trace):
        sys.excepthook = hook
        trace = trace.tb_next
        while trace and trace.tb_frame.f_globals is globals():
            trace = trace.tb_next
        value.__traceback__ = trace
        hook(kind, value, trace)
    return show


def main():
    """Never returns in the template; returns in a worker at the end of its program."""
    agent, modules, script = socket.socket(fileno=int(sys.argv[2])), *sys.argv[3:5]
    workers = int(sys.argv[5])
    agent.set_inheritable(False)
    parent = os.getppid()
    with open("/proc/self/comm", encoding="utf-8") as file:
        name = file.read().strip()
    if not is_safe_path():
        del sys.path[0]
    set_name("ctrun-template", [b"ctrun-template", os.fsencode(modules)])
    obstacle = prepare(modules, script, workers)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "use of fork() may lead to deadlocks": find_obstacle() looks for that
        obstacle = obstacle or find_obstacle()
        if obstacle:
            refuse(agent, obstacle)
        tell(agent, b"R")
        number, fds = serve(agent)
    argv, environment = wait_for_agent(agent, parent, number, fds)
    try:
        run, arguments = load(become_worker(name, argv, environment))
        run(*arguments)
    except BaseException:
        sys.excepthook = hide_own_frames(sys.excepthook)
        raise
