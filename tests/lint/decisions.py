#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""No decision depends on a sentence: programs decide by codes and fields, never by the words of an
error or of a message, which may change at any time.

usage: decisions.py [SOURCE_DIRECTORY]

A call of strstr() and its like is refused when an argument is such a text: a member `text`,
`message`, `exception`, `reason` or `why`, a variable of those names but `text`, `facts`, or a
literal that begins one ("error[", "warning", "E_...", "ctrun: "). ALLOWED are functions that must
read text of others, which comes without a code. An entry that nothing needs is a mistake, too."""
import os
import re
import sys

ALLOWED = {  # (file, function)
    ("agent/watch/own_ranks.c", "find"),      # the environment of a process: `text` holds it
    ("agent/watch/own_ranks.c", "has_word"),  # the same of its arguments
    ("launcher/etcd/etcd.c", "weigh"),        # etcd's own code 3 has many meanings
    ("launcher/etcd/http.c", "is_own_certificate_refused"),  # curl has no code for an alert of TLS
    ("launcher/ha/ha_cluster.c", "finish"),   # etcd's own code 9 has many meanings
    ("launcher/report/json_summary.c", "read_root"),  # a fixed word of our own JSON
}
PLACES = ("agent", "launcher", "rendezvous", "worker_sdk", "examples")
CALLS = r"\b(strstr|strcasestr|strn?cmp|strn?casecmp|memmem|ct_starts_with|regexec|fnmatch)\s*\("
TEXT = re.compile(r"""(?:->|\.)(?:text|message|exception|reason|why)\b(?!\s*\[)
                      |(?<![\w.>])(?:err|message|exception|reason|why|facts)\b(?!\s*(?:->|\.|\())
                      |"(?:error\[|warning|E_[A-Z]|ctrun:)""", re.X)
FUNCTION = re.compile(r"^[A-Za-z_][\w \t*]*?\b(\w+)\([^;]*$")


def arguments_of(text, at):
    """What stands between the parenthesis that opens before `at` and its end."""
    depth, begin = 1, at
    while depth and at < len(text):
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        at += 1
    return text[begin:at - 1]


def find_calls(path):
    """(line, function, call) of each call that reads a sentence."""
    with open(path, encoding="utf-8") as file:
        text = re.sub(r"/\*.*?\*/", lambda m: re.sub(r"[^\n]", " ", m[0]), file.read(), flags=re.S)
    names, function = [], "?"
    for line in text.split("\n"):
        match = FUNCTION.match(line)
        function = match[1] if match else function
        names.append(function)
    for match in re.finditer(CALLS, text):
        call = arguments_of(text, match.end())
        if TEXT.search(call):
            number = text.count("\n", 0, match.start())
            yield number + 1, names[number], " ".join(f"{match[1]}({call})".split())


def check():
    complaints, used = [], set()
    paths = [os.path.join(root, name) for place in PLACES for root, _, names in os.walk(place)
             for name in names if name.endswith((".c", ".h"))]
    for path in sorted(paths):
        for number, function, call in find_calls(path):
            if (path, function) in ALLOWED:
                used.add((path, function))
            else:
                complaints.append(f"{path}:{number}: {function}() decides by a sentence: {call}")
    return complaints + [f"{path}: {name}() needs no allowance: take it out of the table"
                         for path, name in sorted(ALLOWED - used)]


def main():
    os.chdir(sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
    complaints = check()
    print("\n".join(complaints))
    return bool(complaints)


sys.exit(main())
