#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs every GPU test and benchmark of this tree, and adds a section about them to RESULTS.md.

usage: tests/gpu/run.py [REPORT]     REPORT: another file, default tests/gpu/RESULTS.md

Builds the preset gpu, or takes the build folder that CTRUN_BUILD names. CTRUN_TEST_MNIST names a folder with
MNIST or Fashion-MNIST for the benchmarks, CTRUN_TEST_TORCH a python with a torch for CUDA (default python3). Exit
code: 0, 1 when something failed, 77 without a GPU."""
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

TOP = pathlib.Path(__file__).resolve().parents[2]
DATA = os.environ.get("CTRUN_TEST_MNIST", "/usr/share/datasets/fashion-mnist")
SECONDS = 1800  # of one command


def output(*command, **env):
    """What a command prints on stdout, or None when it cannot run, fails or does not end."""
    try:
        done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True, timeout=SECONDS,
                              stderr=subprocess.DEVNULL, cwd=TOP, env={**os.environ, **env}, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def build():
    if "CTRUN_BUILD" in os.environ:
        return pathlib.Path(os.environ["CTRUN_BUILD"]).resolve()
    subprocess.run(["cmake", "--preset", "gpu"], cwd=TOP, check=True)
    subprocess.run(["cmake", "--build", "--preset", "gpu"], cwd=TOP, check=True)
    return TOP / "build" / "gpu"


def run_tests(folder):
    """(name, verdict) of each test with the label gpu."""
    with tempfile.TemporaryDirectory() as place:
        report = pathlib.Path(place, "tests.xml")
        subprocess.run(["ctest", "--test-dir", folder, "-L", "gpu", "--output-junit", report, "--output-on-failure"],
                       check=False)
        cases = list(xml.etree.ElementTree.parse(report).iter("testcase"))
    words = {"run": "passed", "notrun": "skipped", "fail": "FAILED", "disabled": "disabled"}
    return [(case.get("name"), words.get(case.get("status"), "FAILED")) for case in cases]


# Every rank is a host of its own for NCCL, which refuses two of one host on one GPU.
APART = ["sh", "-c", 'NCCL_HOSTID="rank-$RANK" NCCL_SOCKET_IFNAME=lo NCCL_MULTI_RANK_GPU_ENABLE=1 exec "$@"', "sh"]


def train(folder, ranks, exchange, apart):
    """(images a second in the second epoch of the reference trainer, digest of the parameters), or None."""
    out = output(folder / "bin" / "ctrun", "--standalone", f"--nproc-per-node={ranks}", *(APART if apart else []),
                 folder / "bin" / "ctrun-mnist", "--json", "--backend=cuda", f"--exchange={exchange}", "--epochs=2",
                 "--data", DATA)
    epochs = [json.loads(line) for line in (out or "").splitlines() if "images_per_s" in line]
    return (f"{epochs[-1]['images_per_s']:.0f}", epochs[-1]["params_digest"]) if epochs else None


def all_reduce(folder, *command):
    """Size -> median of microseconds; empty when it did not run."""
    out = output(*command, CTRUN_PLUGIN_DIR=str(folder / "lib"))
    times = {}
    for line in (out or "").splitlines():
        times.setdefault(int(line.split()[0]), []).append(float(line.split()[1]))
    return {size: statistics.median(took) for size, took in times.items()}


def all_reduce_table(folder, gpus):
    program, torch = folder / "tests/bench/all_reduce", os.environ.get("CTRUN_TEST_TORCH", "python3")
    columns = {}
    for ranks in sorted({2, max(2, gpus)}):
        columns |= {f"nccl, {ranks} ranks": all_reduce(folder, program, "nccl", ranks, 3, gpus),
                    f"torch's nccl, {ranks} ranks": all_reduce(folder, torch, TOP / "tests/bench/all_reduce_gloo.py",
                                                               ranks, 3, gpus),
                    f"host, shared memory, {ranks} ranks": all_reduce(folder, program, "direct", ranks, 3)}
    lines = ["All-reduce of f32, SUM, median of \u00b5s; 0 bytes are a barrier; the host's data are in its memory:", "",
             f"| bytes | {' | '.join(columns)} |", "|---" * (1 + len(columns)) + "|"]
    for size in sorted({size for times in columns.values() for size in times}):
        cells = (f"{times[size]:.1f}" if size in times else "did not run" for times in columns.values())
        lines.append(f"| {size} | {' | '.join(cells)} |")
    return [*lines, ""]


def train_table(folder, gpus):
    lines = ["The reference trainer, two epochs:", "",
             "| ranks | GPUs | exchange | images/s, second epoch | parameters |", "|---|---|---|---|---|"]
    for ranks in sorted({1, 2, gpus}):
        for exchange in ("host", "nccl"):
            speed, digest = train(folder, ranks, exchange, ranks > gpus) or ("did not run", "")
            lines.append(f"| {ranks} | {min(ranks, gpus)} | {exchange} | {speed} | {digest} |")
    return lines


def main():
    gpus = (output("nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader") or "").splitlines()
    if not gpus:
        print("no NVIDIA GPU here: nvidia-smi finds none")
        return 77
    folder = build()
    tests = run_tests(folder)
    lines = ["", f"## {datetime.date.today()}: `tests/gpu/run.py`", "",
             output("git", "log", "-1", "--format=Commit %H.") or "", *(f"- {gpu}" for gpu in gpus), "",
             "| test | verdict |", "|---|---|", *(f"| {name} | {verdict} |" for name, verdict in tests), "",
             *all_reduce_table(folder, len(gpus)), *train_table(folder, len(gpus))]
    with open(sys.argv[1] if len(sys.argv) > 1 else TOP / "tests/gpu/RESULTS.md", "a", encoding="utf-8") as report:
        report.write("\n".join(lines) + "\n")
    return 1 if not tests or any(verdict == "FAILED" for _, verdict in tests) else 0


sys.exit(main())
