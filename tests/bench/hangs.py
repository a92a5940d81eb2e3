#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How often --hang-timeout names the right rank of a stock PyTorch job, how late, and how often it is wrong.

usage: hangs.py [-n HANGS] [-f FAULT-FREE] [-s FIRST] [-t SECONDS] [-w] [-p PYTHON]... [-k KIND]...

Three ranks on gloo; rank 1 hangs in one of several ways, in turn; skip, leave and shape (calls that
do not match) need a torch with a recorder. Right is: E_HANG, rank 1, and the line of the script
where it is known. Late is the time from the last sign of progress, which the script writes, to the
decision; then the evidence is saved, for which a debugger has five seconds, and printed. A line a
run; -s begins with case FIRST, counted from 1; with -w ranks are forked (--warm=torch), and a run
takes a third of the time. Without -p: CTRUN_TEST_TORCH, else Debian's."""
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

# The culprit marks the time; the others are in the call by then, or shortly after.
FAULT = "    if rank == CULPRIT and i == AT"
MARK = f"{FAULT}: pathlib.Path(sys.argv[3], 'hung').touch()\n{FAULT}"


def run(words, python, kind, limit):
    """(is right, seconds late, text)"""
    seconds = {"first": limit / 2, "quiet": limit / 2, "evaluation": 2.5 * limit, "checkpoint": 2.5 * limit}.get(kind, 0)
    with tempfile.TemporaryDirectory(prefix="ctrun-hangs-") as folder:
        script, events = f"{folder}/train.py", f"{folder}/events"
        pathlib.Path(script).write_text(
            SCRIPT.replace(FAULT, MARK, 1).replace("import os,", "import pathlib, os,"))
        ended = subprocess.run(
            [ctrun.program("ctrun"), "--standalone", "--nproc-per-node=3", f"--hang-timeout={limit}", "--shutdown-timeout=2",
             *words, script, kind, str(seconds), folder], capture_output=True, text=True, timeout=300,
            env={**os.environ, "PYTHON_EXEC": python, "CTRUN_EVENTS": events, "CTRUN_CONTROL_DIR": folder})
        hung = pathlib.Path(folder, "hung")
        late = None
        for line in open(events):
            event = json.loads(line)
            if event["event"] == "round_changed" and event.get("why") == "hang" and hung.exists():
                late = event["time_ns"] / 1e9 - hung.stat().st_mtime - limit
    place = f"{kind} ({script}:{line_of(kind)})" if kind in HANGS else ""
    if kind in FINE:
        right = ended.returncode == 0 and "E_HANG" not in ended.stderr
    else:
        right = "E_HANG" in ended.stderr and re.search(r"rank 1 \([^)]*\) is stuck", ended.stderr) and place in ended.stderr
    return bool(right), late if kind not in FINE else None, ended.stderr


def series(name, words, python, kinds, cases, limit):
    right, late = 0, []
    for case in cases:
        kind, begun = kinds[(case - 1) % len(kinds)], time.monotonic()
        good, delay, text = run(words, python, kind, limit)
        right += good
        late += [delay] if delay is not None else []
        print(f"  {name} {case} of {cases[-1]}, {kind}: {'right' if good else 'WRONG'}"
              + (f", after limit + {delay:.2f} s" if delay is not None else "")
              + f"; {time.monotonic() - begun:.1f} s, load {os.getloadavg()[0]:.1f}", flush=True)
        if not good:
            print(text, flush=True)
    late.sort()
    print(f"{python} {name}: {right} of {len(cases)} right" + (
        f"; told after limit + {late[len(late) // 2]:.2f} s (median), {late[-1]:.2f} s (most), "
        f"{sum(delay <= 1 for delay in late)} within 1 s" if late else ""), flush=True)
    return right == len(cases)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("-n", type=int, default=50)
    parser.add_argument("-f", type=int, default=20)
    parser.add_argument("-s", type=int, default=1)
    parser.add_argument("-t", type=int, default=2)
    parser.add_argument("-w", action="store_true")
    parser.add_argument("-p", action="append")
    parser.add_argument("-k", action="append")
    given = parser.parse_args()
    good, words = True, ["--warm=torch"] if given.w else []
    for python in given.p or [os.environ.get("CTRUN_TEST_TORCH", ctrun.DEBIAN_PYTHON)]:
        begun = time.monotonic()
        hangs = [*HANGS, *(() if python == ctrun.DEBIAN_PYTHON else ("leave", "shape", "skip"))]
        for name, kinds, count in (("hangs", given.k or hangs, given.n), ("fault-free", FINE, given.f)):
            if count >= given.s:
                good &= series(name, words, python, kinds, range(given.s, count + 1), given.t)
        print(f"{python}: {time.monotonic() - begun:.0f} s", flush=True)
    return not good


sys.exit(main())
