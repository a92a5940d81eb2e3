# SPDX-License-Identifier: Apache-2.0
"""A clock of programs under test that the test sets, in place of a sleep.

    clock = Clock(box)
    run = box.start_ctrun(..., env=clock.env)
    clock.advance(2)    # for them two seconds pass at once
    clock.suspend(60)   # for them the machine was suspended for a minute

A wait in the kernel (epoll, a timer) takes as long as before: a program reads the clock when it
wakes up."""
import os
import struct

import ctrun


class Clock:
    def __init__(self, box):
        self.path = box.path("clock")
        self.path.write_bytes(bytes(16))
        self.ahead_ns = self.suspended_ns = 0
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

    def _write(self):
        with open(self.path, "r+b") as file:  # one write: nobody reads half a number
            file.write(struct.pack("<qq", self.ahead_ns, self.suspended_ns))
