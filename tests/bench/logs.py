#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Log throughput: one worker writes lines of 80 bytes as fast as they are read, each launcher
puts a prefix in front of them; its own output goes to /dev/null. With a file beside it (tee) and,
for those that know no files, without. The plain prefixer is sed, once with tee(1).

usage: logs.py [MEGABYTES [SAMPLES]]     default 400, 5; torchrun writes a tenth of them, once"""
import os
import shutil
import subprocess
import sys
import time

from launchers import NO_REDIRECTS, PROBE, ctrun, launchers, table


def commands(box):
    """Name -> words in front of the worker."""
    found = {}
    logs = str(box.path("logs"))
    for name, command in launchers(1).items():
        if name == "ctrun":
            command[-1:-1] = ["-t1", f"--log-dir={logs}"]
        elif name.startswith("torchrun"):
            at = command.index(NO_REDIRECTS[0])
            command[at:at + 2] = ["--redirects=9:1", "--tee=0:1", f"--log_dir={logs}"]
            name += ", file"
        elif name.startswith("mpirun"):
            command[1:1] = ["--tag-output"]
            name += ", no file"
        elif name.startswith("hydra"):
            command[1:1] = ["-prepend-rank"]
            name += ", no file"
        found["ctrun" if name == "ctrun" else name] = command
    file = str(box.path("sed.log"))
    found["sed, no file"] = ["sh", "-c", '"$0" "$@" | sed "s/^/[default0]:/"']
    found["tee and sed, file"] = ["sh", "-c", f'"$0" "$@" | tee {file} | sed "s/^/[default0]:/"']
    return found


def sample(words, megabytes, box):
    """(MB/s, seconds of processor for a GB) of one launch."""
    size = int(megabytes * 1e6)
    with open(os.devnull, "wb") as null:
        began = time.monotonic()
        process = subprocess.Popen([*words, PROBE, "pour", str(size)], stdout=null, cwd=box.dir,
                                   stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, env=box.env)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.monotonic() - began
    assert process.returncode == 0, words
    for name in ("logs", "sed.log"):
        path = box.path(name)
        if path.is_dir():
            shutil.rmtree(path)
        elif path.exists():
            path.unlink()
    return size / 1e6 / seconds, (usage.ru_utime + usage.ru_stime) / size * 1e9


def main():
    megabytes = float(sys.argv[1]) if len(sys.argv) > 1 else 400
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    speed, cost = {}, {}
    for turn in range(count):
        box = ctrun.Box()
        for name, words in commands(box).items():
            is_slow = name.startswith("torchrun")
            if is_slow and turn > 0:
                continue
            values = sample(words, megabytes / 10 if is_slow else megabytes, box)
            speed.setdefault(name, []).append(values[0])
            cost.setdefault(name, []).append(values[1])
        box.close()
    table("log throughput with prefix", "MB/s", speed)
    table("processor time of launcher and worker for a GB", "s", cost)


main()
