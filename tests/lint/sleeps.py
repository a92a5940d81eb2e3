# SPDX-License-Identifier: Apache-2.0
"""No test sleeps: it waits for a condition (tests/lib/ctrun.py: wait_until) or sets the clock
(tests/lib/clock.py). Workers and stand-ins that are text in a test are not checked.

usage: sleeps.py [SOURCE_DIRECTORY]"""
import ast
import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
ROOT = ROOT if ROOT.is_dir() else ROOT.parents[2]
POLLS = "tests/lib/ctrun.py"  # wait_until(), the one place
PROGRAMS = ("tests/bench/", "tests/lib/victim.c", "tests/lib/crasher.c", "tests/lib/hung.c",
            "tests/lib/life.c", "tests/lib/fake_nccl.c", "tests/gpu/real_device.c")


def python_lines(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            called = node.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if name == "sleep":
                yield node.lineno


def c_lines(path):
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if re.search(r"\b(u|nano|clock_nano)?sleep\s*\(", line):
            yield number


found = []
for path in sorted((ROOT / "tests").rglob("*.*")):
    name = str(path.relative_to(ROOT))
    lines = {".py": python_lines, ".c": c_lines, ".h": c_lines}.get(path.suffix)
    if lines and name != POLLS and not name.startswith(PROGRAMS):
        found += [f"{name}:{number}: sleeps" for number in lines(path)]
print("\n".join(found))
sys.exit(bool(found))
