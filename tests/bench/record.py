#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs benchmarks and adds what they print to RESULTS.md, with the date, the command and the machine.

usage: record.py BENCHMARK...     BENCHMARK: a file here without .py, with its arguments, such as 'death 20'"""
import datetime
import os
import pathlib
import platform
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent


def heading():
    system = platform.freedesktop_os_release()
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=HERE, stdout=subprocess.PIPE, text=True,
                            stderr=subprocess.DEVNULL, check=False).stdout.strip()
    return (f"## {datetime.date.today()}, {os.cpu_count()} cores, {system['NAME']} {system.get('VERSION_ID', '')}, "
            f"commit {commit or 'unknown'}")


def run(words):
    """What a benchmark printed, and its exit code, as lines of Markdown."""
    load = os.getloadavg()[0]
    done = subprocess.run([sys.executable, "-B", HERE / f"{words[0]}.py", *words[1:]], stdout=subprocess.PIPE, text=True,
                          check=False)
    print(done.stdout, flush=True)
    command = " ".join([f"tests/bench/{words[0]}.py", *words[1:]])
    end = "" if done.returncode == 0 else f" **It failed with {done.returncode}.**"
    return ["", f"`{command}`; the machine's load before it: {load:.1f}.{end}", "", "```", *done.stdout.rstrip().splitlines(),
            "```"], done.returncode


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    lines, worst = ["", heading()], 0
    for benchmark in sys.argv[1:]:
        found, code = run(benchmark.split())
        lines += found
        worst = worst or code
    with open(HERE / "RESULTS.md", "a", encoding="utf-8") as results:
        results.write("\n".join(lines) + "\n")
    return 1 if worst else 0


sys.exit(main())
