#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All-reduce (f32, SUM) on one machine, and a barrier (0 bytes): our shared memory and TCP beside gloo and MPI.

usage: all_reduce.py [RANKS] [TURNS]     default 2 and then 4 ranks, 4 turns

Each library is run in turn, TURNS times over, every second time in the reverse order, so that noise hits all alike: an even number of TURNS.
gloo comes from Debian's torch and from the one that CTRUN_TEST_TORCH names; MPI from mpicc.mpich and mpicc.openmpi. What is not installed is left out (scripts/deps bench installs it)."""
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

from launchers import ROOT, ctrun

HERE = pathlib.Path(__file__).parent
OURS = {"ctrun shm, direct": "direct", "ctrun shm, staged": "staged", "ctrun TCP": "tcp"}
MPI_RUN = {
    "mpich": ["mpiexec.hydra", "-launcher", "fork", "-n"],
    "openmpi": ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n"],
}


def mpi_programs(folder):
    """Name -> program of each MPI that can compile."""
    for name in MPI_RUN:
        compiler = shutil.which("mpicc." + name)
        program = os.path.join(folder, "all_reduce_" + name)
        if compiler and subprocess.call([compiler, "-O2", "-o", program,
                                         HERE / "all_reduce_mpi.c"],
                                        stderr=subprocess.DEVNULL) == 0:
            yield name, program


def has_torch(python):
    return python and subprocess.call([python, "-c", "import torch"], stdout=subprocess.DEVNULL,
                                      stderr=subprocess.DEVNULL) == 0


def commands(ranks, folder):
    """Name -> command line of one turn."""
    found = {name: [ctrun.program("all_reduce"), mode, str(ranks), "1"]
             for name, mode in OURS.items()}
    for python in (ctrun.DEBIAN_PYTHON, os.environ.get("CTRUN_TEST_TORCH")):
        if has_torch(python):
            version = subprocess.check_output(
                [python, "-c", "import torch; print(torch.__version__.split('+')[0])"], text=True)
            found["gloo, torch " + version.strip()] = [
                python, HERE / "all_reduce_gloo.py", str(ranks), "1"]
    for name, program in mpi_programs(folder):
        found[name] = [*MPI_RUN[name], str(ranks), program, "1"]
    return found


def measure(command, samples):
    out = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                         text=True, timeout=300, check=True).stdout
    for line in out.splitlines():
        size, micros = line.split()
        samples.setdefault(int(size), []).append(float(micros))


def show(results):
    names = list(results)
    gloo = [name for name in names if name.startswith("gloo")]
    sizes = sorted(results[names[0]])
    print(f"{'median of µs':22}" + "".join(f"{size:>12}" for size in sizes))
    for name in names:
        print(f"{name:22}" + "".join(f"{statistics.median(results[name][size]):12.1f}"
                                     for size in sizes))
    for peer in gloo:
        for name in OURS:
            ratios = (statistics.median(results[peer][size]) /
                      statistics.median(results[name][size]) for size in sizes)
            print(f"{peer} / {name:20}" + "".join(f"{ratio:10.1f} x" for ratio in ratios))


def compare(ranks, turns):
    with tempfile.TemporaryDirectory() as folder:
        programs = commands(ranks, folder)
        results = {name: {} for name in programs}
        for turn in range(turns):
            for name in list(programs)[::-1 if turn % 2 else 1]:
                measure(programs[name], results[name])
    print(f"all_reduce, {ranks} ranks, f32 SUM", flush=True)
    show(results)


def main():
    turns = int(sys.argv[2]) if len(sys.argv) > 2 else 4
    for ranks in [int(sys.argv[1])] if len(sys.argv) > 1 else (2, 4):
        compare(ranks, turns)


main()
