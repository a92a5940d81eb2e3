# SPDX-License-Identifier: Apache-2.0
"""Several hosts on one machine: a wrapper of the script `lab` (network, PID and IPC namespaces
with names, addresses and power switches), which may be beside the repository."""
import os
import pathlib
import subprocess

import ctrun

SCRIPT = os.environ.get("CTRUN_LAB", str(ctrun.ROOT.parent / "shared" / "lab" / "lab"))


def why_not():
    """Why there can be no lab here; empty when there can."""
    if not os.access(SCRIPT, os.X_OK):
        return "no lab beside the repository (CTRUN_LAB names the script)"
    if os.geteuid():
        return "the lab needs root"
    return ctrun.why_no_mounts()


class Lab:
    """Hosts node1 to nodeN for one test; the box's folder is the same on all of them."""

    def __init__(self, box, nodes, nics=1):
        self.box = box
        self.name = f"t{os.getpid()}"
        kept = [box.dir, ctrun.BUILD]
        if "CTRUN_TEST_TORCH" in os.environ:  # a virtual environment
            kept += pathlib.Path(os.environ["CTRUN_TEST_TORCH"]).parents[1:2]
        self._call("up", "-n", str(nodes), "--nics", str(nics), *(w for path in kept for w in ("--keep", str(path))))

    def _call(self, *words):
        done = subprocess.run([SCRIPT, "-L", self.name, *words], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=120 * ctrun.SLOW)
        assert done.returncode == 0, f"lab {' '.join(words)}: {done.stdout}{done.stderr}"
        return done.stdout

    def start(self, host, *argv, **how):
        """Starts a program on a host; the Run is that of `lab exec`, which sends its signals on."""
        return self.box.start(SCRIPT, "-L", self.name, "exec", host, *argv, **how)

    def sh(self, host, script):
        """Runs a shell script on a host as root; its standard output."""
        return self._call("exec", host, "sh", "-ec", script)

    def ip(self, host):
        return self._call("ip", host).strip()

    def cut_power(self, host):
        """Its peers receive nothing more, then every process on it is killed."""
        self._call("kill", host)

    def boot(self, host):
        """Switches a host on again whose power was cut."""
        self._call("boot", host)

    def freeze(self, host):
        """Every process on it stops; its kernel continues."""
        self._call("freeze", host)

    def thaw(self, host):
        self._call("thaw", host)

    def partition(self, *hosts):
        self._call("partition", *hosts)

    def heal(self):
        self._call("heal")

    def agents(self, host):
        """The pids, as seen from here, of the box's agents on a host that is not frozen."""
        uts = self.sh(host, "readlink /proc/self/ns/uts").strip()

        def is_there(pid):
            try:
                return os.readlink(f"/proc/{pid}/ns/uts") == uts
            except OSError:
                return False  # it has ended

        return [pid for pid in self.box.pids()
                if b"(ctrun-agent)" in ctrun._read(f"/proc/{pid}/stat") and is_there(pid)]

    def down(self):
        self._call("down")


class Slurm(Lab):
    """A lab with a real Slurm on it; `login1` is where srun and sbatch are typed."""

    def __init__(self, box, nodes, *options):
        super().__init__(box, nodes)
        try:
            self._slurm("up", *options, tries=10)  # it may miss a host that is up
        except AssertionError:
            self.down()
            raise

    def _slurm(self, *words, tries=1):
        script = os.path.join(os.path.dirname(SCRIPT), "slurm-lab")
        for _ in range(tries):
            done = subprocess.run([script, "-L", self.name, *words], stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, timeout=180 * ctrun.SLOW)
            if done.returncode == 0:
                return
        raise AssertionError(f"slurm-lab {' '.join(words)}: {done.stdout}{done.stderr}")

    def down(self):
        self._slurm("down", "--all")


class EtcdLab(Lab):
    """A lab with a real etcd, a member on each of the hosts `on`."""

    def __init__(self, box, nodes, on, *options):
        super().__init__(box, nodes)
        self.on = on
        self.is_tls = "--tls" in options or "--mtls" in options
        self.etcd("up", "--on", ",".join(on), *options)

    def etcd(self, *words):
        script = os.path.join(os.path.dirname(SCRIPT), "etcd-lab")
        done = subprocess.run([script, "-L", self.name, *words], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=120 * ctrun.SLOW)
        assert done.returncode == 0, f"etcd-lab {' '.join(words)}: {done.stdout}{done.stderr}"
        return done.stdout.strip()

    def file(self, name):
        """The path of a TLS file: ca.pem, client.pem, client.key; valid on all hosts."""
        return os.path.join(self._call("path").strip(), "etcd", "tls", name)

    @property
    def endpoint(self):
        return ",".join(f"{host}:2379" for host in self.on)

    def down(self):
        self.etcd("down", "--all")
