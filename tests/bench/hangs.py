#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How often --hang-timeout names the right rank of a stock PyTorch job, how late, and how often it is wrong.

usage: hangs.py [-n HANGS] [-f FAULT-FREE] [-t SECONDS] [-p PYTHON]... [-k KIND]...

Three ranks on gloo; rank 1 comes to a stop in one of several ways, in turn; skip, leave and shape (calls that do not
match) need a torch with a recorder. Right is: E_HANG, rank 1, and the line
of the script where it is known. Late is from the last sign of progress, which the script leaves, to the decision; then
the evidence is saved, a debugger has five seconds for it, and then it is printed."""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import ctrun  # noqa: E402  (tests/lib)
from hang_bodies import FINE, HANGS, SCRIPT, line_of  # noqa: E402

# The culprit says when; the others are in the call by then, or shortly after.
MARK = "        pathlib.Path(sys.argv[3], 'hung').touch()\n        globals()[kind]()"


def run(python, kind, limit, seconds):
    """(right, seconds late, text)"""
    with tempfile.TemporaryDirectory(prefix="ctrun-hangs-") as folder:
        script, events = f"{folder}/train.py", f"{folder}/events"
        pathlib.Path(script).write_text(
            SCRIPT.replace("        globals()[kind]()", MARK).replace("import os,", "import pathlib, os,"))
        ended = subprocess.run(
            [ctrun.program("ctrun"), "--standalone", "--nproc-per-node=3", f"--hang-timeout={limit}",
             "--shutdown-timeout=2", script, kind, str(seconds), folder], capture_output=True, text=True, timeout=300,
            env={**os.environ, "PYTHON_EXEC": python, "CTRUN_EVENTS": events})
        hung = pathlib.Path(folder, "hung")
        late = None
        for line in open(events):
            event = json.loads(line)
            if event["event"] == "round_changed" and event.get("why") == "hang" and hung.exists():
                late = event["time_ns"] / 1e9 - hung.stat().st_mtime - limit
    place = f"{HANGS.get(kind)} ({script}:{line_of(HANGS[kind])})" if kind in HANGS else ""
    if kind not in FINE:
        right = "E_HANG" in ended.stderr and re.search(r"rank 1 \([^)]*\) is stuck", ended.stderr) and place in ended.stderr
    else:
        right = ended.returncode == 0 and "E_HANG" not in ended.stderr
    return bool(right), late if kind in HANGS else None, ended.stderr


def series(name, python, kinds, count, limit):
    right, late = 0, []
    for i in range(count):
        kind = kinds[i % len(kinds)]
        seconds = {"first": limit / 2, "quiet": limit / 2, "evaluation": 2.5 * limit, "checkpoint": 2.5 * limit}
        good, delay, text = run(python, kind, limit, seconds.get(kind, 0))
        right += good
        late += [delay] if delay is not None else []
        if not good:
            print(f"{name} {kind}: wrong:\n{text}", flush=True)
    late.sort()
    print(f"{python} {name}: {right} of {count} right" + (
        f"; told after limit + {late[len(late) // 2]:.2f} s (median), {late[-1]:.2f} s (most)" if late else ""), flush=True)
    return right == count


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("-n", type=int, default=50)
    parser.add_argument("-f", type=int, default=20)
    parser.add_argument("-t", type=int, default=2)
    parser.add_argument("-p", action="append")
    parser.add_argument("-k", action="append")
    words = parser.parse_args()
    good = True
    for python in words.p or [ctrun.DEBIAN_PYTHON]:
        begun = time.monotonic()
        good &= series("hangs", python, words.k or sorted(HANGS) + (
            [] if python == ctrun.DEBIAN_PYTHON else ["leave", "shape", "skip"]), words.n, words.t)
        good &= series("fault-free", python, FINE, words.f, words.t)
        print(f"{python}: {time.monotonic() - begun:.0f} s", flush=True)
    return not good


sys.exit(main())
