#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A folder uses only the folders that it may use: by its include lines and the symbols of its
object files.

usage: arrows.py [SOURCE_DIRECTORY [BUILD_DIRECTORY]]

The table is cmake/folders. A folder uses only what stands in its own line: the compiler also finds the
headers of the folders that those use (cmake/ctrun_folders.cmake). With BUILD_DIRECTORY a folder in a line that
nothing needs is a mistake, too. Tests may use everything, examples only <ctrun.h>; the folders below tests/unit
are those of the product.

Inside a folder no units may need each other in a ring, by their symbols."""
import collections
import os
import pathlib
import re
import subprocess
import sys

UNITS_MAX = 25
TABLE = pathlib.Path(__file__).resolve().parents[2] / "cmake" / "folders"

# Headers of libraries: the only files that may include them.
DOORS = """
uv\\.h                  ^(agent|rendezvous)/
curl/                  ^launcher/etcd/http[._]|^worker_sdk/cnn/
mbedtls/               ^launcher/etcd/(http_linked|cert_host)\\.
cjson/|cJSON\\.h        ^agent/(error_file|recorder)/json|^launcher/(report|etcd)/json|^rendezvous/server/status\\.|^worker_sdk/ckpt/
zlib\\.h                ^worker_sdk/data/
sodium\\.h              ^worker_sdk/wire/(auth|digest|seal|text_code)\\.
munge\\.h               ^worker_sdk/wire/munge\\.
dnnl                   ^worker_sdk/cnn/
nccl\\.h                ^worker_sdk/comm/nccl/nccl
cuda|cudnn|cublas      ^worker_sdk/(cnn|comm)/
"""
ENDS = (".c", ".h", ".cu", ".cuh", ".c.in")
PLACES = ("worker_sdk", "rendezvous", "agent", "launcher", "examples")


def read_table(complaints):
    """{folder: its folders, in order}; complains about a line that names a folder that is not above
    it."""
    table = {}
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        folder, *words = line.split()
        siblings = [f"{folder.split('/')[0]}/{word}" for word in words]
        table[folder] = [s if s in table else w for s, w in zip(siblings, words)]
        complaints += [f"{folder}: {name} does not stand above it in the table of folders"
                       for name in table[folder] if name not in table or name == folder]
    return table


def list_sources():
    """Tracked files; without git all files."""
    git = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True)
    names = git.stdout.splitlines() if git.returncode == 0 else [
        os.path.relpath(os.path.join(root, name), ".") for root, _, found in os.walk(".") for name in found]
    return sorted(n for n in names if n.endswith(ENDS) and n.split("/")[0] in PLACES and os.path.isfile(n))


def find_includes(sources):
    """(file, line number, header, "<" or the quotation mark)"""
    pattern = re.compile(r'\s*#\s*include\s*(["<])([^">]+)[">]')
    for path in sources:
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                match = pattern.match(line)
                if match:
                    yield path, number, match[2], match[1]


def find_calls(build, sources):
    """(file, file that defines it, symbol), for what one object file needs of another."""
    known, objects = set(sources), {}
    for root, _, names in os.walk(build):
        match = re.search(r"(?:^|/)([^/].*?)/CMakeFiles/[^/]+\.dir(?:/(.*))?$", os.path.relpath(root, build))
        for name in names if match else ():
            path = os.path.normpath(os.path.join(match[1], (match[2] or "").replace("__", ".."), name[:-2]))
            if name.endswith(".o") and path in known:
                objects[os.path.join(root, name)] = path
    out = subprocess.run(["nm", "-A", *objects], capture_output=True, text=True).stdout if objects else ""
    defined, needed = {}, []
    for line in out.splitlines():
        name, _, rest = line.partition(":")
        *_, kind, symbol = rest.split()
        if kind in "TDBRVWG":
            defined[symbol] = objects[name]
        elif kind == "U" and not symbol.startswith("ctrun_"):  # those of ctrun.h are for all
            needed.append((objects[name], symbol))
    return sorted({(path, defined[s], s) for path, s in needed if s in defined})


def find_rings(calls):
    """Sets of units of one folder that all need each other, over any number of units."""
    needs = {}
    for path, other, _ in calls:
        if path != other and os.path.dirname(path) == os.path.dirname(other):
            needs.setdefault(path, set()).add(other)

    def reach(path):
        seen, todo = set(), [path]
        while todo:
            new = needs.get(todo.pop(), set()) - seen
            seen |= new
            todo += new
        return seen

    reached = {path: reach(path) for path in needs}
    return {frozenset(other for other in seen if path in reached.get(other, ()))
            for path, seen in reached.items() if path in seen}


def check(build):
    complaints = []
    table = read_table(complaints)
    doors = [line.split() for line in DOORS.strip().splitlines()]
    sources = list_sources()
    used = set()

    def judge(path, other, what):
        ours = os.path.dirname(path)
        theirs = os.path.dirname(other) or ours
        used.add((ours, theirs))
        if ours != theirs and theirs not in table.get(ours, ()):
            complaints.append(f"{what}: {ours} may not use {theirs}")

    units = collections.Counter(os.path.dirname(path) for path in sources if path.endswith(".c"))
    complaints += [f"{folder}: {count} .c files: no folder has more than {UNITS_MAX}"
                   for folder, count in units.items() if count > UNITS_MAX]
    complaints += [f"{path}: its folder is not in the table of folders"
                   for path in sources if os.path.dirname(path) not in table]
    tested = {os.path.relpath(root, "tests/unit") for root, _, names in os.walk("tests/unit")
              if any(name.endswith(".c") for name in names)}
    complaints += [f"tests/unit/{folder}: there is no such folder of the product"
                   for folder in sorted(tested - set(table))]
    for path, number, header, kind in find_includes(sources):
        if kind == '"':
            judge(path, header, f"{path}:{number}: {header}")
        complaints += [f"{path}:{number}: includes <{header}>; its door is {door}" for name, door in doors
                       if kind == "<" and re.match(f"(?:{name})", header) and not re.search(door, path)]
    calls = find_calls(build, sources) if build else ()
    for path, other, symbol in calls:
        judge(path, other, f"{path}: {symbol} of {other}")
    if calls:
        complaints += [f"{' '.join(sorted(ring))}: need each other in a ring" for ring in find_rings(calls)]
    return complaints + [f"{folder}: nothing in it needs {name}: take that out of its line"
                         for folder, names in table.items() for name in names if build and (folder, name) not in used]


def main():
    os.chdir(sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
    complaints = check(sys.argv[2] if len(sys.argv) > 2 else None)
    print("\n".join(complaints))
    return bool(complaints)


sys.exit(main())
