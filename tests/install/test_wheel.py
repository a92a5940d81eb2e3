# SPDX-License-Identifier: Apache-2.0
"""pip: the sdist is whole, and pip makes a wheel of it, out of the programs that are built already; that
is installed into a fresh environment without a network, and runs a job there. CTRUN_TEST_WHEEL names a
wheel of `scripts/package wheel`, which is tried instead."""
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

import ctrun
import pytest

CLEAN = {"PYTHONPATH": "", "PYTHONDONTWRITEBYTECODE": "1", "SOURCE_DATE_EPOCH": "1700000000"}
MEBIBYTE = 1 << 20
WORKER = """
import sys
import ctrun
with ctrun.store() as store:
    store.set(f"at/{ctrun.run().rank}", sys.prefix)
    print("said", ctrun.run().rank, ctrun.run().world_size, store.get("at/0").decode(), ctrun.__file__)
"""


@pytest.fixture(scope="module")
def tools(tmp_path_factory):
    """The python of an environment with pip in it."""
    folder = tmp_path_factory.mktemp("venv")
    made = subprocess.run([ctrun.DEBIAN_PYTHON, "-m", "venv", folder], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"no python3-venv here: {made.stdout.strip().splitlines()[:1]}")
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sdist")
    return folder / backend("build_sdist", folder)


@pytest.fixture(scope="module")
def wheel(tools, sdist, tmp_path_factory):
    if os.environ.get("CTRUN_TEST_WHEEL"):
        return pathlib.Path(os.environ["CTRUN_TEST_WHEEL"])
    folder = tmp_path_factory.mktemp("wheel")
    env = {**os.environ, **CLEAN, "CTRUN_WHEEL_BUILD": str(ctrun.BUILD)}
    made = subprocess.run([tools, "-m", "pip", "wheel", "-q", "--no-deps", "--no-index", "-w", folder, sdist],
                          env=env, capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr
    found, = folder.glob("*.whl")
    return found


def backend(call, folder, root=ctrun.ROOT, umask=0o022, **env):
    """Calls the backend of the tree in a process of its own; returns the name of what it made."""
    code = f"import backend, sys; print(backend.{call}(sys.argv[1]))"
    env = {**os.environ, **CLEAN, "PYTHONPATH": str(root / "packaging/wheel"), **env}
    made = subprocess.run([sys.executable, "-c", code, str(folder)], env=env, umask=umask,
                          capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr
    return made.stdout.split()[-1]


def test_the_wheel_is_installed_and_runs_a_job_with_the_python_beside_it(box, tools, wheel):
    venv = box.path("venv")
    assert box.run(ctrun.DEBIAN_PYTHON, "-m", "venv", "--without-pip", venv).code == 0, box.runs[-1]
    pip = [tools, "-m", "pip", "--python", venv / "bin/python", "--disable-pip-version-check"]
    install = box.run(*pip, "install", "-q", "--no-index", wheel, env=CLEAN, seconds=200)
    assert install.code == 0, install
    script = box.write("train.py", WORKER)
    path = {"PATH": f"{venv}/bin:{os.environ['PATH']}", **CLEAN}
    run = box.run(venv / "bin/ctrun", "--standalone", "--nproc-per-node=2", script, env=path)
    said = sorted(re.findall(r"said (\d) (\d) (\S+) (\S+)", run.out))
    assert [words[:3] for words in said] == [("0", "2", str(venv)), ("1", "2", str(venv))], run
    assert said[0][3].startswith(str(venv)), run
    run = box.run(venv / "bin/python", "-m", "ctrun", script, env=CLEAN)
    assert f"said 0 1 {venv} " in run.out, run
    run = box.run(venv / "bin/ctrun-launch", "--nproc-per-node=1", "--use-env", "--no-python", "true",
                  env=path)
    assert run.code == 0, run
    assert box.run(venv / "bin/ctrunctl", "--version", env=path).code == 0, box.runs[-1]
    assert box.run(venv / "bin/ctrund", "--version", env=path).code == 0, box.runs[-1]
    left = set(pathlib.Path(venv).rglob("*ctrun*"))
    assert box.run(*pip, "uninstall", "-q", "-y", "ctrun", env=CLEAN).code == 0, box.runs[-1]
    assert left and not set(pathlib.Path(venv).rglob("*ctrun*")), "uninstalled without a trace"


def test_the_wheel_says_of_itself_what_is_in_it(wheel):
    with zipfile.ZipFile(wheel) as opened:
        assert opened.testzip() is None
        names = opened.namelist()
        record, = [name for name in names if name.endswith("/RECORD")]
        lines = opened.read(record).decode().splitlines()
    assert sorted(line.split(",")[0] for line in lines) == sorted(names)
    for name in ("ctrun/__init__.py", "ctrun/py.typed", "ctrun/include/ctrun.h", "ctrun/lib/libctrun.so.0"):
        assert name in names
    version = re.search(r"project\(ctrun VERSION ([\d.]+)", (ctrun.ROOT / "CMakeLists.txt").read_text())
    assert f"ctrun-{version[1]}.data/scripts/ctrun" in names
    pages = {name.split("/")[-1].split(".")[0] for name in names if re.search(r"/man[18]/", name)}
    assert pages == {name.split("/")[-1] for name in names if "/scripts/" in name}


def test_a_wheel_for_every_linux_is_small_and_its_programs_need_no_library(box, wheel):
    if "manylinux" not in wheel.name:
        pytest.skip("CTRUN_TEST_WHEEL names no wheel of `scripts/package wheel`")
    assert "manylinux_2_17_" in wheel.name and "musllinux_1_1_" in wheel.name
    assert wheel.stat().st_size <= 3 * MEBIBYTE
    with zipfile.ZipFile(wheel) as opened:
        opened.extractall(box.path("x"))
    paths = [next(box.path("x").glob(f"*.data/scripts/{name}")) for name in ("ctrun", "ctrunctl", "ctrund")]
    for path in paths:
        assert "(NEEDED)" not in box.run("readelf", "-d", path).out
    assert sum(path.stat().st_size for path in paths) <= 4 * MEBIBYTE, "packaging/oci has them"


def test_libctrun_of_the_wheel_works_with_musl(box, wheel):
    with zipfile.ZipFile(wheel) as opened:
        names = [name for name in opened.namelist() if name.endswith("libctrun_musl.so.0")]
        if not names or not shutil.which("musl-gcc"):
            pytest.skip("no wheel of `scripts/package wheel`, or no musl-gcc (musl-tools)")
        opened.extractall(box.path("x"))
    made = box.run("musl-gcc", ctrun.ROOT / "examples/03_all_reduce.c", "-I", box.path("x/ctrun/include"),
                   "-o", box.path("worker"), box.path(f"x/{names[0]}"))
    assert made.code == 0, made
    program, = box.path("x").glob("*.data/scripts/ctrun")
    program.chmod(0o755)
    box.path("x/libctrun.so.0").symlink_to(box.path(f"x/{names[0]}"))
    run = box.run(program, "--standalone", "--nproc-per-node=2", box.path("worker"),
                  env={"LD_LIBRARY_PATH": str(box.path("x"))})
    assert run.code == 0 and "on every rank" in run.out, run


def unpacked(box, sdist, name, *options):
    """The sdist in a folder of this name."""
    folder = box.path(name)
    folder.mkdir(parents=True)
    assert box.run("tar", *options, "-xzf", sdist, "-C", folder, "--strip-components=1").code == 0, box.runs[-1]
    return folder


def test_an_sdist_that_is_made_of_an_unpacked_one_is_equal_to_it(box, sdist):
    tree = unpacked(box, sdist, "else/where", "--touch")
    name = backend("build_sdist", box.dir, root=tree, umask=0o077)
    assert sdist.read_bytes() == box.path(name).read_bytes()


def test_the_sdist_has_all_that_the_build_reads(box, sdist):
    """All that the compiler has read here; and CMake finds what it needs."""
    assert box.run("tar", "-xzf", sdist, "-C", box.dir, "--strip-components=1").code == 0, box.runs[-1]
    told = box.run("ninja", "-C", ctrun.BUILD, "-t", "deps")
    assert told.code == 0, told
    blocks = [block.splitlines() for block in told.out.split("\n\n") if not block.startswith("tests/")]
    read = {line.strip() for block in blocks for line in block[1:]}
    ours = {os.path.relpath(path, ctrun.ROOT) for path in
            (os.path.join(ctrun.BUILD, path) for path in read) if path.startswith(f"{ctrun.ROOT}/")}
    ours = {path for path in ours if not path.startswith("build/")}
    assert len(ours) > 500, "what ninja has noted"
    assert [path for path in sorted(ours) if not box.path(path).exists()] == []
    made = box.run("cmake", "-S", box.dir, "-B", box.path("b"), "-G", "Ninja", "-DCTRUN_CUDA=OFF",
                   "-DCTRUN_TESTS=OFF", seconds=100)
    assert made.code == 0, made


@pytest.mark.skipif(os.environ.get("CTRUN_TEST_PACKAGES") != "1", reason="CTRUN_TEST_PACKAGES=1 is not set")
def test_two_wheels_for_every_linux_are_equal(tmp_path):
    """Minutes, and a mirror: see scripts/package."""
    made = []
    for name in ("one", "two"):
        run = subprocess.run([ctrun.ROOT / "scripts/package", "wheel", tmp_path / name], capture_output=True, text=True)
        assert run.returncode == 0, run.stdout + run.stderr
        made += (tmp_path / name).glob("*.whl")
    assert made[0].name == made[1].name
    assert made[0].read_bytes() == made[1].read_bytes()


def test_the_first_step_of_a_package_that_fails_ends_it(box):
    """With the tools of this box: nothing is installed or fetched."""
    tools = {"dpkg-query": "echo installed", "python3": "echo no venv here; exit 3",
             "apt-get": f"echo $0 >>{box.path('called')}", "cmake": f"echo $0 >>{box.path('called')}"}
    box.path("tools").mkdir()
    for name, text in tools.items():
        box.write(f"tools/{name}", f"#!/bin/sh\n{text}\n", 0o755)
    run = box.run(ctrun.ROOT / "scripts/package", "wheel", box.path("out"),
                  env={"PATH": f"{box.path('tools')}:{os.environ['PATH']}", "TMPDIR": str(box.dir)})
    assert run.code == 3 and "no venv here" in run.err, run
    assert not box.path("called").exists()
    assert not list(box.dir.glob("tmp.*")), "nothing is left"


def tagged(monkeypatch, needs, glibc):
    """The tag of a wheel whose files need these libraries and glibcs."""
    spec = importlib.util.spec_from_file_location("backend", ctrun.ROOT / "packaging/wheel/backend.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "needs", needs.__getitem__)
    monkeypatch.setattr(module, "glibc_of", glibc.__getitem__)
    monkeypatch.setattr(module.platform, "machine", lambda: "x86_64")
    return module.tag(["ctrun"], [name for name in needs if name != "ctrun"])


@pytest.mark.parametrize("needs, glibc, tag", [
    ({"ctrun": [], "a": ["libc.so.6"]}, {"ctrun": (2, 5), "a": (2, 17)}, "manylinux_2_17_x86_64"),
    ({"ctrun": [], "a": ["libc.so.6"], "m": ["libc.so"]}, {"ctrun": (2, 5), "a": (2, 34)},
     "manylinux_2_34_x86_64.musllinux_1_1_x86_64"),
    ({"ctrun": ["libc.so.6", "libuv.so.1"], "a": ["libc.so.6"]}, {"ctrun": (2, 5), "a": (2, 17)},
     "linux_x86_64"),
])
def test_the_tag_says_where_it_runs(monkeypatch, needs, glibc, tag):
    assert tagged(monkeypatch, needs, glibc) == f"py3-none-{tag}"
