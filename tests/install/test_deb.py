# SPDX-License-Identifier: Apache-2.0
"""Debian packages, made of what is built already: by debhelper and debian/rules, without compiling.
They are installed into a copy of this machine's own Debian (an overlay), tried, and purged without a trace.

CTRUN_TEST_PACKAGES=1 has them compiled, twice, and installed into a bare Debian. That takes minutes and a
mirror. CTRUN_TEST_DEBS=FOLDER has packages that are built already, CTRUN_TEST_DEBIAN_ROOT a root of
debootstrap, which is copied."""
import os
import pathlib
import re
import shutil
import subprocess

import ctrun
import debian
import pytest

NAMES = ["ctrun", "ctrun-mnist", "libctrun-dev", "libctrun0"]
MINUTES = 60
IN_FULL = os.environ.get("CTRUN_TEST_PACKAGES") == "1"


def has_packages(*groups):
    missing = subprocess.run([ctrun.ROOT / "scripts/deps", "-n", *groups], capture_output=True, text=True)
    if missing.returncode:
        pytest.skip(missing.stdout.strip() or "this is not Debian")


def build(folder):
    has_packages("build", "package")
    made = subprocess.run([ctrun.ROOT / "scripts/package", "deb", folder], capture_output=True, text=True,
                          timeout=20 * MINUTES)
    assert made.returncode == 0, made.stdout + made.stderr
    return folder


def pack(folder):
    """As build(), with ctrun.BUILD in place of what dh would compile."""
    for name in ("dh", "fakeroot"):
        if not shutil.which(name):
            pytest.skip(f"no {name} here (debhelper, fakeroot)")
    tree = folder / "ctrun"
    shutil.copytree(ctrun.ROOT / "packaging/debian", tree / "debian")
    shutil.copy(ctrun.ROOT / "README.md", tree)
    shutil.copytree(ctrun.ROOT / "examples", tree / "examples")
    staged = folder / "staged"
    subprocess.run(["cmake", "--install", ctrun.BUILD, "--prefix", "/usr"], check=True, capture_output=True,
                   env={**os.environ, "DESTDIR": str(staged)})
    here = subprocess.run(["dpkg-architecture", "-qDEB_HOST_MULTIARCH"], check=True, capture_output=True,
                          text=True).stdout.strip()
    (staged / "usr/lib" / here).mkdir(exist_ok=True)
    for each in [*(staged / "usr/lib").glob("libctrun*"), staged / "usr/lib/pkgconfig", staged / "usr/lib/cmake"]:
        if each.exists():  # a build for /usr has them there
            each.rename(staged / "usr/lib" / here / each.name)
    for plugin in (staged / "usr/lib" / here).glob("*-*.so"):
        plugin.unlink()  # GPU parts: off in a package
    done = folder / "done"
    done.mkdir()
    for step in ("auto_configure", "auto_build", "auto_install", "auto_clean", "dwz"):
        text = f"mkdir -p debian/tmp && cp -a {staged}/. debian/tmp" if step == "auto_install" else ""
        (done / f"dh_{step}").write_text(f"#!/bin/sh\n{text}\n")
        (done / f"dh_{step}").chmod(0o755)
    made = subprocess.run(["fakeroot", "debian/rules", "binary"], cwd=tree, capture_output=True, text=True,
                          env={**os.environ, "PATH": f"{done}:{os.environ['PATH']}", "DEB_BUILD_OPTIONS": "noautodbgsym"})
    assert made.returncode == 0, made.stdout + made.stderr
    return folder


@pytest.fixture(scope="module")
def debs(tmp_path_factory):
    named = os.environ.get("CTRUN_TEST_DEBS")
    made = tmp_path_factory.mktemp("debs")
    folder = pathlib.Path(named) if named else build(made) if IN_FULL else pack(made)
    found = {path.name.partition("_")[0]: path for path in folder.glob("*.deb") if "dbgsym" not in path.name}
    assert sorted(found) == NAMES
    return found


class Own(debian.Overlay):
    """This machine's own Debian."""

    def install(self, names):
        return self.run("dpkg", "-i", *names)

    def purge(self):
        return self.run("dpkg", "--purge", *NAMES)

    def left(self):
        """What is new or removed, without folders that the overlay has only copied."""
        return {path for path in files(self.folder)
                if not ((self.folder / path).is_dir() and pathlib.Path("/", path).is_dir())}


class Bare(debian.Root):
    """A bare Debian; apt finds a mirror."""

    def __init__(self, box):
        root = box.path("root")
        assert box.run("cp", "-a", debian.bare(), root, seconds=200).code == 0, box.runs[-1]
        super().__init__(box, root)
        shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
        shutil.copytree("/etc/apt/apt.conf.d", root / "etc/apt/apt.conf.d", dirs_exist_ok=True)
        if self.run("apt-get", "update", "-q").code:
            pytest.skip("the bare Debian reaches no mirror")
        self.before = files(root)

    def install(self, names):
        return self.run("apt-get", "install", "-y", "-q", "--no-install-recommends", *names)

    def purge(self):
        return self.run("apt-get", "purge", "-y", "-q", "--autoremove", *NAMES)

    def left(self):
        return files(self.folder) - self.before


HAS_BARE = IN_FULL or bool(os.environ.get("CTRUN_TEST_DEBIAN_ROOT"))


@pytest.fixture
def root(box):
    debian.needs_root()
    return Bare(box) if HAS_BARE else Own(box)


def files(folder):
    """The files that a package could leave: not those of apt and dpkg."""
    own = ("var/lib/apt", "var/cache", "var/log", "var/lib/dpkg", "tmp", "dev", "proc", "etc/ld.so.cache")
    return {str(path.relative_to(folder)) for top in folder.iterdir() if top.name not in own
            for path in [top, *(top.rglob("*") if not top.is_symlink() else ())]
            if not str(path.relative_to(folder)).startswith(own)}


@pytest.mark.skipif(not IN_FULL, reason="CTRUN_TEST_PACKAGES=1 is not set")
def test_two_builds_are_equal(debs, tmp_path):
    again = {path.name: path for path in build(tmp_path).glob("*.deb")}
    for path in debs.values():
        assert again[path.name].read_bytes() == path.read_bytes(), path.name


def test_lintian_finds_nothing(debs):
    """What was compiled for the tests lacks the flags of packages."""
    if not shutil.which("lintian"):
        pytest.skip("no lintian here")
    ours = [] if IN_FULL or os.environ.get("CTRUN_TEST_DEBS") else \
        ["--suppress-tags", "hardening-no-fortify-functions,hardening-no-bindnow"]
    run = subprocess.run(["lintian", "--allow-root", "--fail-on=error,warning", *ours, *debs.values()],
                         capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


def test_installed_they_run_a_job_and_purged_they_leave_nothing(root, debs):
    for path in debs.values():
        shutil.copy(path, root.folder / path.name)
    run = root.install([f"/{path.name}" for path in debs.values()])
    assert run.code == 0, run
    assert {"usr/bin/ctrun", "usr/bin/ctrund", "lib/systemd/system/ctrund.service"} <= {
        path.replace("usr/lib/systemd", "lib/systemd") for path in root.left()}
    for path in debs.values():
        (root.folder / path.name).unlink()
    run = root.run("ctrun", "--standalone", "--nproc-per-node=2", "sh", "-c", "echo $RANK of $WORLD_SIZE")
    assert run.code == 0 and sorted(run.out.split("\n")) == ["", "0 of 2", "1 of 2"], run
    for name in ["launcher", "sdk"] if isinstance(root, Own) else ["launcher"]:
        script = (ctrun.ROOT / "packaging/debian/tests" / name).read_text()
        run = root.run("env", "AUTOPKGTEST_TMP=/tmp", "sh", "-c", script)
        assert run.code == 0, run
    run = root.purge()
    assert run.code == 0, run
    assert root.left() == set()
    assert "ctrun" not in root.run("dpkg", "-l").out


@pytest.mark.skipif(not HAS_BARE, reason="neither CTRUN_TEST_PACKAGES=1 nor CTRUN_TEST_DEBIAN_ROOT is set")
def test_autopkgtest_passes(root, debs, box):
    """debian/tests in a bare Debian, by the tool that is for them."""
    if not shutil.which("autopkgtest"):
        pytest.skip("no autopkgtest here")
    tree = box.path("source/ctrun")
    shutil.copytree(ctrun.ROOT / "packaging/debian", tree / "debian")
    run = box.run("unshare", "-mpf", "sh", "-ec", f"mount -t proc proc {root.folder}/proc\nmount --rbind /dev {root.folder}/dev\n"
                  "exec autopkgtest --no-built-binaries \"$@\"", "-", *debs.values(), f"{tree}/", "--", "chroot",
                  root.folder, seconds=20 * MINUTES, env={"TMPDIR": "/tmp"})
    assert run.code == 0 and re.findall(r"^(\w+) +PASS$", run.out, re.M) == ["launcher", "sdk"], run
