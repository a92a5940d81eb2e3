#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A program that was built with the libctrun that tests/lint/libctrun.abi describes works with this one.

usage: abi.py [--record] SOURCE LIBRARY

New functions, and structs that begin with their size and grow at the end, are fine. LIBRARY has debug information.
--record writes the file: for a new release, or for a change that is meant to break what was never released."""
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as tree


def describe(source, library):
    """libabigail's description, without places and blanks, which change with every comment."""
    text = subprocess.run(
        ["abidw", "--exported-interfaces-only", "--drop-private-types", "--headers-dir", f"{source}/worker_sdk/include",
         "--no-show-locs", "--no-corpus-path", "--no-comp-dir-path", "--no-elf-needed", library],
        stdout=subprocess.PIPE, text=True, check=True).stdout
    text = re.sub(r" (filepath|column|line|mangled-name)='[^']*'|^ +", "", text, flags=re.M)
    if "<function-decl name='ctrun_" not in text:
        sys.exit(f"{library}: no function of ctrun.h with debug information")
    return text


def structs(corpus):
    """{name: [declarations]} of the structs that begin with their size."""
    found = {}
    for struct in corpus.iter("class-decl"):
        members = struct.findall("data-member")
        if members and members[0].find("var-decl").get("name") == "size":
            found.setdefault(struct.get("name"), []).append(struct)
    return found


def shorten(now, known):
    """Removes what structs have beyond the size that they had: an older program passes that
    size."""
    before = structs(known)
    for name, places in structs(now).items():
        size = before[name][0].get("size-in-bits") if name in before else None
        for struct in places if size else ():
            for member in struct.findall("data-member"):
                if int(member.get("layout-offset-in-bits")) >= int(size):
                    struct.remove(member)
            if int(struct.get("size-in-bits")) > int(size):
                struct.set("size-in-bits", size)


def main():
    words = [word for word in sys.argv[1:] if word != "--record"]
    if len(words) != 2:
        sys.exit(__doc__)
    source, library = words
    path = f"{source}/tests/lint/libctrun.abi"
    text = describe(source, library)
    if "--record" in sys.argv:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return 0
    known, now = tree.parse(path).getroot(), tree.fromstring(text)
    machines = [corpus.get("architecture") for corpus in (known, now)]
    if machines[0] != machines[1]:
        print(f"not compared: recorded on {machines[0]}, and this is {machines[1]}")
        return 0
    shorten(now, known)
    with tempfile.TemporaryDirectory() as folder:
        tree.ElementTree(now).write(os.path.join(folder, "now"))
        code = subprocess.run(["abidiff", "--no-added-syms", path, os.path.join(folder, "now")], check=False).returncode
    if code:
        print("older programs would break: give the function another name or version, or add at the struct's end.\n"
              f"If nobody can have it yet: {sys.argv[0]} --record . {library}")
    return 1 if code else 0


sys.exit(main())
