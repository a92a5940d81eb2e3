# SPDX-License-Identifier: Apache-2.0
"""Roots to run programs in: an overlay of this machine's own Debian or of a bare one, or any folder."""
import os
import pathlib
import shutil
import subprocess

import ctrun
import pytest

MINUTES = 60
SUITE = "bookworm"


class Root:
    """A system in a folder, with its own /proc for each command. Tests write files into it through
    `folder`."""
    mounts = ""

    def __init__(self, box, folder):
        self.box, self.folder = box, folder
        for name in ("proc", "dev", "tmp"):
            (folder / name).mkdir(parents=True, exist_ok=True)

    def run(self, *words):
        root = self.box.path("root")
        return self.box.run(
            "unshare", "-mpf", "sh", "-ec", f"{self.mounts}\nmount -t proc proc {root}/proc\n"
            f"mount --rbind /dev {root}/dev\nexec chroot {root} \"$@\"", "-", *words, seconds=10 * MINUTES,
            env={"DEBIAN_FRONTEND": "noninteractive", "TMPDIR": "/tmp", "CTRUN_EVENTS": "/tmp/events",
                 "CTRUN_CONTROL_DIR": "/tmp/ctl", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})


class Overlay(Root):
    """`below` is not changed: what is written goes to `folder`."""

    def __init__(self, box, below="/"):
        for name in ("root", "work"):
            box.path(name).mkdir()
        self.mounts = (f"mount -t overlay overlay -o lowerdir={below},upperdir={box.path('upper')},"
                       f"workdir={box.path('work')} {box.path('root')}")
        super().__init__(box, box.path("upper"))
        if (tried := self.run("dpkg", "--version")).code:
            pytest.skip(f"no overlay of a Debian can be made here: {tried.err.strip()}")


def needs_root():
    if os.geteuid():
        pytest.skip("a root of its own needs root")
    ctrun.needs_mounts()


def bare():
    """A bare Debian 12 with python3-venv; nothing may write into it. The first use makes it, in
    half a minute, from a mirror; it is kept in the build folder. CTRUN_TEST_DEBIAN_ROOT names
    another."""
    there = pathlib.Path(os.environ.get("CTRUN_TEST_DEBIAN_ROOT", ctrun.BUILD / "bare-debian"))
    if there.exists():
        return there
    if not shutil.which("debootstrap"):
        pytest.skip("no debootstrap here")
    new = there.with_name(f"{there.name}.{os.getpid()}")
    found = subprocess.run(["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages",
                            f"Codename: {SUITE}"], capture_output=True, text=True).stdout.split()
    made = subprocess.run(["debootstrap", "--variant=minbase", "--include=python3-venv", SUITE, new, *found[:1]],
                          capture_output=True, text=True, timeout=10 * MINUTES)
    if made.returncode:
        shutil.rmtree(new, ignore_errors=True)
        pytest.skip(f"debootstrap: {made.stdout.splitlines()[-1:]}")
    new.rename(there)
    return there
