# SPDX-License-Identifier: Apache-2.0
"""Several hosts on one machine: a wrapper of the script `lab` (network, PID and IPC namespaces
with names, addresses and power switches), which lies beside the repository where there is one."""
import os
import subprocess

import ctrun

SCRIPT = os.environ.get("CTRUN_LAB", str(ctrun.ROOT.parent / "shared" / "lab" / "lab"))


def why_not():
    """Why there can be no lab here; empty when there can."""
    if not os.access(SCRIPT, os.X_OK):
        return "no lab beside the repository (CTRUN_LAB names the script)"
    return "" if os.geteuid() == 0 else "the lab needs root"


class Lab:
    """Hosts node1 to nodeN for one test; the box's folder is the same on all of them."""

    def __init__(self, box, nodes):
        self.box = box
        self.name = f"t{os.getpid()}"
        self._call("up", "-n", str(nodes), "--keep", str(box.dir), "--keep", str(ctrun.BUILD))

    def _call(self, *words):
        done = subprocess.run([SCRIPT, "-L", self.name, *words], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=120 * ctrun.SLOW)
        assert done.returncode == 0, f"lab {' '.join(words)}: {done.stdout}{done.stderr}"
        return done.stdout

    def start(self, host, *argv, **how):
        """Starts a program on a host; the Run is that of `lab exec`, which passes signals on."""
        return self.box.start(SCRIPT, "-L", self.name, "exec", host, *argv, **how)

    def ip(self, host):
        return self._call("ip", host).strip()

    def cut_power(self, host):
        """Its peers see silence, then every process on it is gone."""
        self._call("kill", host)

    def partition(self, *hosts):
        self._call("partition", *hosts)

    def heal(self):
        self._call("heal")

    def down(self):
        self._call("down")
