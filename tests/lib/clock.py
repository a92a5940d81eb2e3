# SPDX-License-Identifier: Apache-2.0
"""A clock of programs under test that the test sets, in place of a sleep.

    clock = Clock(box)
    run = box.start_ctrun(..., env=clock.env)
    clock.advance(2)    # for them two seconds pass at once
    clock.suspend(60)   # for them the machine was suspended for a minute
    clock.stand()       # for them no time passes, but by advance(), until go_on()

A wait in the kernel (epoll, a timer) takes as long as before: a program reads the clock when it
wakes up."""
import os
import struct
import time

import ctrun

STANDS_NS = 1 << 62  # as in clock.c


class Clock:
    def __init__(self, box):
        self.path = box.path("clock")
        self.path.write_bytes(bytes(16))
        self.ahead_ns = self.suspended_ns = self.stands_ns = 0
        self.env = {"LD_PRELOAD": str(ctrun.BUILD / "tests" / "lib" / "libclock.so"),
                    "CTRUN_TEST_CLOCK": str(self.path),
                    "ASAN_OPTIONS": f"{os.environ.get('ASAN_OPTIONS', '')}:verify_asan_link_order=0"}

    def advance(self, seconds):
        self.ahead_ns += int(seconds * 10**9)
        self._write()

    def suspend(self, seconds):
        """CLOCK_MONOTONIC stands still meanwhile, and so do libuv's timers."""
        self.suspended_ns += int(seconds * 10**9)
        self._write()

    def stand(self):
        self.stands_ns = STANDS_NS + time.monotonic_ns() + 10**9  # no program has seen a later time
        self._write()

    def go_on(self):
        self.ahead_ns -= time.monotonic_ns() - (self.stands_ns - STANDS_NS)
        self.stands_ns = 0
        self._write()

    def _write(self):
        with open(self.path, "r+b") as file:  # one write: nobody reads half a number
            file.write(struct.pack("<qq", self.stands_ns + self.ahead_ns, self.suspended_ns))
