# SPDX-License-Identifier: Apache-2.0
"""When each worker lived, read from outside the hosts: each is a `life` (tests/lib/life.c), which
writes the times by CLOCK_BOOTTIME. No two worlds may run at the same time."""
import collections
import time

import ctrun

# host, world (generation, port of its store), rank, size of the world, stretches of life [(first, last)], in ns
Worker = collections.namedtuple("Worker", "host world rank size stretches")

# When a host is thawed, its workers run for less than this until its guards have killed them.
THAWED_NS = 1e9


class Observer:
    def __init__(self, box, name):
        self.folder = box.path(name)
        self.folder.mkdir()
        self.program = [ctrun.program("life"), str(self.folder)]

    def workers(self):
        found = []
        for path in self.folder.iterdir():
            words = path.name.split(".")
            lines = [line.split() for line in path.read_text().splitlines()]
            stretches = [(int(line[0]), int(line[1])) for line in lines if len(line) == 2]
            if stretches:
                found.append(Worker(words[0], (int(words[1]), words[-2]), int(words[2]),
                                    int(words[3]), stretches))
        return found

    def now(self):
        """{(world, host, rank, size)} of the workers that live."""
        since = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - 3e8 * ctrun.SLOW
        return {(worker.world, worker.host, worker.rank, worker.size)
                for worker in self.workers() if worker.stretches[-1][1] > since}

    def is_world(self, hosts):
        """True when all live workers are one world, with one worker on each of these hosts."""
        live = self.now()
        return (len({entry[0] for entry in live}) == 1 and len(live) == len(hosts)
                and sorted(entry[1] for entry in live) == sorted(hosts)
                and sorted(entry[2] for entry in live) == list(range(len(hosts))))

    def stretches(self):
        """[(first, last, world, host, is_thawed)], in order."""
        return sorted((first, last, worker.world, worker.host, i > 0 and last - first < THAWED_NS)
                      for worker in self.workers()
                      for i, (first, last) in enumerate(worker.stretches))

    def check(self):
        """Fails if two worlds ran at the same time. Returns for how many seconds workers of a
        thawed host ran beside others."""
        thawed = 0
        latest = {}  # world -> the stretch of it that ends last so far
        for one in self.stretches():
            for other in latest.values():
                if other[2] == one[2] or other[1] <= one[0]:
                    continue
                both = min(one[1], other[1]) - one[0]
                assert one[4] or other[4], (
                    f"two worlds for {both / 1e9:.3f} s: {one[2]} on {one[3]}, {other[2]} on {other[3]}\n"
                    + self.tell())
                thawed = max(thawed, both)
            if one[2] not in latest or latest[one[2]][1] < one[1]:
                latest[one[2]] = one
        return thawed / 1e9

    def tell(self):
        """When each worker lived, as text."""
        lives = self.stretches()
        began = lives[0][0] if lives else 0
        return "\n".join(f"{(first - began) / 1e9:8.3f} to {(last - began) / 1e9:8.3f} s: generation "
                         f"{world[0]} (port {world[1]}) on {host}{', thawed' if thawed else ''}"
                         for first, last, world, host, thawed in lives)
