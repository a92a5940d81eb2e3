# SPDX-License-Identifier: Apache-2.0
"""A terminal with ctrun in the foreground."""
import contextlib
import fcntl
import os
import select
import struct
import subprocess
import termios

import ctrun


class Terminal:
    """ctrun as the job in the foreground of a terminal of its own."""

    def __init__(self, box, *words, rows=24, columns=80, err=None, env=None):
        self.master, slave = os.openpty()
        self.resize(rows, columns)
        self.text = ""
        self.process = subprocess.Popen(
            [ctrun.program("ctrun"), "--standalone", *words], stdin=slave, stdout=slave,
            stderr=slave if err is None else err, env={**box.env, **(env or {})}, cwd=box.dir, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(slave)

    def resize(self, rows, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))

    def _read(self):
        if select.select([self.master], [], [], 0)[0]:
            with contextlib.suppress(OSError):  # EIO: no process has it open any more
                self.text += os.read(self.master, 4096).decode(errors="replace")
                return True
        return False

    def expect(self, words):
        def is_there():
            self._read()
            return words in self.text

        ctrun.wait_until(is_there, lambda: f"{words!r} in {self.text!r}")

    def type(self, text):
        os.write(self.master, text.encode())

    def wait(self):
        def is_over():
            self._read()
            return self.process.poll() is not None

        ctrun.wait_until(is_over, lambda: f"the end after {self.text!r}")
        while select.select([self.master], [], [], 0)[0] and self._read():
            pass  # the rest
        os.close(self.master)
        return self.process.returncode
