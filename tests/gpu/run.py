#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every GPU test and benchmark of this tree, and a report about them (report.md).

usage: tests/gpu/run.py [REPORT]

Builds the preset gpu, or takes the build folder that CTRUN_BUILD names. CTRUN_TEST_MNIST names a folder with
MNIST or Fashion-MNIST for the benchmarks. Exit code: 0, 1 when something failed, 77 without a GPU."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

TOP = pathlib.Path(__file__).resolve().parents[2]
DATA = os.environ.get("CTRUN_TEST_MNIST", "/usr/share/datasets/fashion-mnist")
SECONDS = 1800  # of one command


def output(*command):
    """What a command prints on stdout, or None when it cannot run or fails."""
    try:
        done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True, timeout=SECONDS,
                              stderr=subprocess.DEVNULL, cwd=TOP, check=False)
    except OSError:
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


def main():
    gpus = (output("nvidia-smi", "-L") or "").splitlines()
    if not gpus:
        print("no NVIDIA GPU here: nvidia-smi finds none")
        return 77
    folder = build()
    tests = run_tests(folder)
    lines = ["# GPU tests and benchmarks", "", output("git", "log", "-1", "--format=Commit %H.") or "", *gpus, "",
             "| test | verdict |", "|---|---|", *(f"| {name} | {verdict} |" for name, verdict in tests), "",
             "| ranks | GPUs | exchange | images/s, second epoch | parameters |", "|---|---|---|---|---|"]
    for ranks in sorted({1, 2, len(gpus)}):
        for exchange in ("host", "nccl"):
            speed, digest = train(folder, ranks, exchange, ranks > len(gpus)) or ("did not run", "")
            lines.append(f"| {ranks} | {min(ranks, len(gpus))} | {exchange} | {speed} | {digest} |")
    pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "report.md").write_text("\n".join(lines) + "\n", "utf-8")
    return 1 if not tests or any(verdict == "FAILED" for _, verdict in tests) else 0


sys.exit(main())
