# SPDX-License-Identifier: Apache-2.0
"""What the launch benchmarks share: the launchers side by side, samples, and a table of ratios.

Every benchmark measures ctrun and its peers in turn, in one run, so that noise hits all alike. A
peer that is not installed is left out (scripts/deps bench installs them)."""
import contextlib
import os
import pathlib
import re
import select
import shutil
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "lib"))
os.environ.setdefault("CTRUN_BUILD", str(ROOT / "build" / "release"))

import ctrun  # noqa: E402

PROBE = ctrun.program("probe")
try:
    FIRST = ctrun.program("first")  # without a libc of its own
except FileNotFoundError:
    FIRST = PROBE
# torch 1.13's own default, "0", breaks under Python 3.11: name a rank that does not exist.
NO_REDIRECTS = ["--redirects=9:1", "--tee=9:1"]


def launchers(workers, *options):
    """Name -> command line in front of the worker, of those that can be started here."""
    found = {"ctrun": [ctrun.program("ctrun"), "--standalone", f"--nproc-per-node={workers}",
                       *options, "--no-python"]}
    if os.system(f"{ctrun.DEBIAN_PYTHON} -c 'import torch' 2>/dev/null") == 0:
        found["torchrun 1.13"] = [ctrun.DEBIAN_PYTHON, "-m", "torch.distributed.run",
                                  "--standalone", f"--nproc_per_node={workers}",
                                  "--monitor_interval=0.1", *NO_REDIRECTS, *options,
                                  "--no_python"]
    if not options:  # MPI launchers cannot restart
        if shutil.which("mpirun.openmpi"):
            found["mpirun (Open MPI)"] = ["mpirun.openmpi", "--allow-run-as-root",
                                          "--oversubscribe", "-n", str(workers)]
        if shutil.which("mpiexec.hydra"):
            found["hydra (MPICH)"] = ["mpiexec.hydra", "-n", str(workers)]
    return found


def box():
    """A box for one sample: as for a user, without an event file."""
    room = ctrun.Box()
    room.env["CTRUN_EVENTS"] = ""
    return room


def run_before_others():
    """Where it is permitted, all that is started from now on runs before all other processes of the
    machine, so that their load is not measured."""
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))


def end_of(run, seconds=120):
    """When it has ended, in nanoseconds. Popen.wait() with a limit would look every few
    milliseconds, which is more than what is measured."""
    fd = os.pidfd_open(run.pid)
    ready = select.select([fd], [], [], seconds)[0]
    over = time.monotonic_ns()
    os.close(fd)
    assert ready and run.process.wait() == 0, run
    return over


@contextlib.contextmanager
def waiting(command, workers):
    """Pids of a launcher, its workers left out, while all of them wait."""
    room = box()
    try:
        run = room.start(*command, PROBE, "wait")
        ctrun.wait_until(lambda: len(stamps(run.out)) == workers, lambda: f"workers\n{run}", 60)
        probe = os.stat(PROBE)
        yield [pid for pid in room.pids()
               if not os.path.samestat(os.stat(f"/proc/{pid}/exe"), probe)]
        run.signal(15)
        run.wait(60)
    finally:
        room.close()


def stamps(text, word="first"):
    return [int(ns) for ns in re.findall(rf"^{word} (\d+)$", text, re.M)]


def table(title, unit, samples):
    """Prints median, best and worst of each launcher, and how many times ctrun's median and best
    they are: other programs disturb the best least."""
    print(f"{title} [{unit}], median of {len(samples['ctrun'])}")
    ours = statistics.median(samples["ctrun"]), min(samples["ctrun"])
    for name, values in samples.items():
        median = statistics.median(values)
        print(f"  {name:20} {median:10.2f}   {min(values):.2f} to {max(values):.2f}"
              f"   {median / ours[0]:8.1f} x, best {min(values) / ours[1]:.1f} x", flush=True)
