# SPDX-License-Identifier: Apache-2.0
"""Which worlds run: each worker appends lines with the time to a file of its own while it lives.
All hosts of the lab share the monotonic clock. No two worlds may overlap."""
import collections

import ctrun

# A worker: it writes "<monotonic s> <generation> <rank> <world> <host> <restart count> <group
# rank>" at once and then five times a second. SIGTERM ends it.
SCRIPT = r"""#!/bin/sh
host=$(hostname)
out="$1/$host.$CTRUN_GENERATION.$RANK.$$"
while :; do
    read -r now _ </proc/uptime
    echo "$now $CTRUN_GENERATION $RANK $WORLD_SIZE $host $TORCHELASTIC_RESTART_COUNT $GROUP_RANK" >>"$out"
    sleep 0.2
done
"""

Line = collections.namedtuple("Line", "at generation rank world host restart group_rank")


class Beacon:
    def __init__(self, box, name="beacon"):
        self.folder = box.path(name)
        self.folder.mkdir()
        self.program = [box.write("beacon.sh", SCRIPT, 0o755), str(self.folder)]

    def lines(self):
        found = []
        for path in sorted(self.folder.iterdir()):
            for text in path.read_text().splitlines(keepends=True):
                words = text.split()
                if text.endswith("\n") and len(words) == 7:
                    found.append(Line(float(words[0]), int(words[1]), int(words[2]),
                                      int(words[3]), words[4], int(words[5]), int(words[6])))
        return sorted(found)

    def now(self):
        """{(generation, host, rank, world)} of the workers that wrote a line in the last second."""
        with open("/proc/uptime", encoding="ascii") as file:
            latest = float(file.read().split()[0])
        return {(line.generation, line.host, line.rank, line.world)
                for line in self.lines() if line.at > latest - ctrun.SLOW}

    def is_world(self, hosts, world=None):
        """True when all live workers are one world on exactly these hosts."""
        live = self.now()
        return (len({entry[0] for entry in live}) == 1
                and sorted({entry[1] for entry in live}) == sorted(hosts)
                and {entry[3] for entry in live} == {world or len(hosts)}
                and len(live) == (world or len(hosts)))

    def spans(self):
        """generation -> times of the first and the last line of its workers."""
        spans = {}
        for line in self.lines():
            first, last = spans.get(line.generation, (line.at, line.at))
            spans[line.generation] = (min(first, line.at), max(last, line.at))
        return spans

    def check(self):
        """Fails if a generation begins before the one before it ended. (The clock has 10 ms
        steps.)"""
        before = None
        for generation, (first, last) in sorted(self.spans().items()):
            assert before is None or first >= before - 0.02, (
                f"generation {generation} began at {first}, the one before lived until {before}\n"
                + "\n".join(map(str, self.lines())))
            before = last if before is None else max(before, last)
