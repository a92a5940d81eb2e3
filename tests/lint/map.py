# SPDX-License-Identifier: Apache-2.0
"""The map in CONTRIBUTING.md is right: each file exists and holds the name beside it, and the list
of folders is that of the folders with sources.

usage: map.py [SOURCE_DIRECTORY]"""
import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
ROOT = ROOT if ROOT.is_dir() else ROOT.parents[2]
PLACES = ("worker_sdk", "rendezvous", "agent", "launcher", "examples")
QUESTIONS_MIN = 20

text = (ROOT / "CONTRIBUTING.md").read_text()
complaints = []

map_rows = re.findall(r"^\| (\.\.\. .*?) \| `([^`]+)` \| `([^`]+)` \|$", text, re.M)
if len(map_rows) < QUESTIONS_MIN or len(map_rows) != len(re.findall(r"^\| \.\.\. ", text, re.M)):
    complaints.append(f"{len(map_rows)} rows of the map can be read; {QUESTIONS_MIN} are the least")
for question, name, word in map_rows:
    path = ROOT / name
    if not path.is_file():
        complaints.append(f"{question} {name} is not there")
    elif not re.search(rf"\b{re.escape(word)}\b", path.read_text()):
        complaints.append(f"{question} {name} does not hold {word}")

folders = text[text.index("| folder |"):text.index("## Where is")]
listed = set(re.findall(r"^\| `([a-z_/]+)` \| [^|]+ \|$", folders, re.M))
sources = [path for place in PLACES for path in (ROOT / place).rglob("*.[ch]")] + [*(ROOT / "python").rglob("*.py")]
there = {str(path.parent.relative_to(ROOT)) for path in sources}
complaints += [f"{name} is not in the list of folders" for name in sorted(there - listed)]
complaints += [f"{name} is in the list of folders, and has no sources" for name in sorted(listed - there)]

print("\n".join(complaints))
sys.exit(bool(complaints))
