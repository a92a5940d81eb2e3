# SPDX-License-Identifier: Apache-2.0
"""Helpers of the command line tests: workers that write their environment and arguments to
files."""
import json
import pathlib

import ctrun
import schema

free_port = ctrun.free_port

def steps(box):
    """rank -> its last step, of those that tell steps. An agent that answers has looked at the clock."""
    runs = json.loads(box.run(ctrun.program("ctrunctl"), "status", "--json").out)["runs"]
    return {worker["rank"]: worker["step"] for run in runs for worker in run["workers"] if worker["step"] >= 0}


def is_stopped_as_the_last(box, rank, pid):
    """The process of that rank is stopped, and no rank has made fewer steps."""
    if pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        return False
    found = steps(box)
    return rank in found and found[rank] == min(found.values())


DUMP = """#!/bin/sh
# One file per worker and attempt: the environment, and argv as NUL-terminated words.
name="$DUMP_DIR/$RANK.$TORCHELASTIC_RESTART_COUNT"
printf '%s\\0' "$0" "$@" > "$name.argv"
env -0 > "$name.env.new"
mv "$name.env.new" "$name.env"
"""


class Dump:
    """A program for all workers, and the files that it wrote."""

    def __init__(self, box, folder="dump"):
        self.dir = box.path(folder)
        self.dir.mkdir()
        self.program = box.write(f"{folder}.sh", DUMP, 0o755)
        self.env = {"DUMP_DIR": str(self.dir)}

    def environments(self, attempt=0):
        """{rank: {name: value}} of one attempt."""
        found = {}
        for path in self.dir.glob(f"*.{attempt}.env"):
            words = path.read_bytes().decode().split("\0")
            found[int(path.name.split(".")[0])] = dict(
                word.split("=", 1) for word in words if "=" in word)
        return found

    def argv(self, rank=0, attempt=0):
        return (self.dir / f"{rank}.{attempt}.argv").read_bytes().decode().split("\0")[:-1]


def plan(box, *arguments, env=None):
    """The output of --dry-run --json, checked against its schema."""
    run = box.ctrun("--dry-run", "--json", *arguments, env=env)
    assert run.code == 0, run
    found = json.loads(run.out)
    schema.check(found, "plan")
    return found
