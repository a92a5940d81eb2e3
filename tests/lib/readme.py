# SPDX-License-Identifier: Apache-2.0
"""What README.md shows: the commands behind `$`, and what they print."""
import re

import ctrun


def samples():
    """({name: text} of what is shown by `$ cat`, [(command, lines that it prints)] of all others)."""
    files, commands, is_shown = {}, [], False
    for line in (ctrun.ROOT / "README.md").read_text().splitlines():
        is_shown = line.startswith("    ") and (is_shown or line.startswith("    $ "))
        if line.startswith("    $ "):
            commands.append((line[6:], []))
        elif is_shown:
            commands[-1][1].append(line[4:])
    for command, printed in commands:
        if command.startswith("cat "):
            files[command.split()[1]] = "\n".join(printed) + "\n"
    return files, [(command, printed) for command, printed in commands if not command.startswith("cat ")]


def shape(lines):
    """The lines, with replacements for what differs between machines and runs."""
    text = "\n".join(lines)
    text = re.sub(r"\(\S+, pid \d+\) exited with (\d+), [\d.]+ s", r"(HOST, pid N) exited with \1, N s", text)
    return sorted(re.sub(r"/\S*/(\w+\.py)", r"/DIR/\1", text).splitlines())
