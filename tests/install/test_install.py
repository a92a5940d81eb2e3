# SPDX-License-Identifier: Apache-2.0
"""The installed tree runs from anywhere, and programs of other projects build against it."""
import os
import pathlib
import re
import shlex
import shutil
import subprocess

import ctrun
import pypi
import pytest

SCHEMAS = pathlib.Path(__file__).resolve().parents[2] / "packaging/schema"

HELLO = ctrun.ROOT / "examples" / "01_hello.c"
REPLICAS = ctrun.ROOT / "examples" / "11_data_parallel.c"
MODEL = ctrun.ROOT / "examples" / "llm"


@pytest.fixture
def tree(box):
    """An installed tree that was moved away from where it was installed to."""
    box.run("cmake", "--install", ctrun.BUILD, "--prefix", box.path("first"))
    assert box.path("first/include/ctrun.h").exists(), box.runs[-1]
    box.path("first").rename(box.path("moved"))
    return box.path("moved")


def words(tree, *arguments):
    env = {**os.environ, "PKG_CONFIG_PATH": str(next(tree.glob("lib*/**/pkgconfig")))}
    return subprocess.run(["pkg-config", *arguments, "ctrun"], env=env, check=True,
                          capture_output=True, text=True).stdout.split()


def says_hello(box, program, **env):
    run = box.run(program, env=env)
    assert run.code == 0 and run.out.startswith("hello from rank 0 of 1"), run


def test_pkg_config_builds_a_program_against_the_shared_library(box, tree):
    flags = words(tree, "--cflags", "--libs")
    assert box.run("cc", HELLO, "-o", box.path("hello"), *flags).code == 0, box.runs[-1]
    library = next(tree.glob("lib*/**/libctrun.so")).parent
    says_hello(box, box.path("hello"), LD_LIBRARY_PATH=str(library))
    assert box.run("cc", REPLICAS, "-o", box.path("replicas"), *flags).code == 0, box.runs[-1]
    run = box.run(box.path("replicas"), env={"LD_LIBRARY_PATH": str(library)})
    assert run.code == 0 and run.out == "y = 3.0 x - 1.0, by 4 replicas\n", run


def test_the_language_model_builds_with_the_command_in_its_head_and_trains(box, tree):
    command = "cc -O3 -fopenmp-simd train.c gpt.c -o train $(pkg-config --cflags --libs ctrun) -lm"
    assert command in (MODEL / "train.c").read_text()
    assert box.run("cc", "-O3", "-fopenmp-simd", MODEL / "train.c", MODEL / "gpt.c", "-o", box.path("train"),
                   *words(tree, "--cflags", "--libs"), "-lm").code == 0, box.runs[-1]
    library = next(tree.glob("lib*/**/libctrun.so")).parent
    run = box.run(tree / "bin" / "ctrun", "--standalone", "--nproc-per-node=2", box.path("train"), MODEL / "gpt.c", 1,
                  env={"LD_LIBRARY_PATH": str(library)})
    assert run.code == 0, run


def test_pkg_config_builds_a_program_against_the_static_library(box, tree):
    archive = next(tree.glob("lib*/**/libctrun.a"))
    flags = [word for word in words(tree, "--cflags", "--libs", "--static") if word != "-lctrun"]
    assert box.run("cc", HELLO, archive, "-o", box.path("hello"), *flags).code == 0, box.runs[-1]
    says_hello(box, box.path("hello"))


@pytest.mark.parametrize("target", ["ctrun::ctrun", "ctrun::static"])
def test_find_package_builds_a_program(box, tree, target):
    source = box.path("project")
    source.mkdir()
    shutil.copy(HELLO, source / "hello.c")
    (source / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(hello C)\nfind_package(ctrun 0.1 REQUIRED)\n"
        f"add_executable(hello hello.c)\ntarget_link_libraries(hello {target})\n")
    build = box.path("build")
    configure = ["-G", "Ninja", "-S", source, "-B", build, f"-DCMAKE_PREFIX_PATH={tree}"]
    for step in (configure, ["--build", build]):
        assert box.run("cmake", *step).code == 0, box.runs[-1]
    says_hello(box, build / "hello")


def test_the_installed_programs_run_where_they_were_moved_to(box, tree):
    ours = sorted(path.name for path in SCHEMAS.iterdir())
    assert sorted(path.name for path in (tree / "share/ctrun/schema").iterdir()) == ours
    names = sorted(path.name for path in (tree / "bin").iterdir())
    assert names == ["ctrun", "ctrun-launch", "ctrun-mnist", "ctrunctl", "ctrund"]
    hello = box.path("hello")
    assert box.run("cc", HELLO, "-o", hello, *words(tree, "--cflags", "--libs"),
                   f"-Wl,-rpath,{next(tree.glob('lib*/**/libctrun.so')).parent}").code == 0
    run = box.run(tree / "bin" / "ctrun", "--standalone", "--nproc-per-node=2", hello)
    assert run.code == 0, run
    assert sorted(line[:26] for line in run.out.splitlines()) == [
        "hello from rank 0 of 2 (lo", "hello from rank 1 of 2 (lo"], run


def test_the_oldest_cmake_that_is_named_configures_the_tree(box):
    """With PyPI's: no Debian of today has it."""
    oldest = re.search(r"cmake_minimum_required\(VERSION (\S+)\)", (ctrun.ROOT / "CMakeLists.txt").read_text())[1]
    cmake = [pypi.python_with(f"cmake=={oldest}.*"), "-c", "import cmake; cmake.cmake()"]
    assert f"version {oldest}." in box.run(*cmake, "--version").out, box.runs[-1]
    run = box.run(*cmake, "-G", "Ninja", "-S", ctrun.ROOT, "-B", box.path("build"), "-DCTRUN_TESTS=OFF", "-DCTRUN_CUDA=OFF",
                  seconds=200)
    assert run.code == 0 and "Warning" not in run.err, run
    assert box.path("build/build.ninja").exists()


def test_nothing_in_the_tree_names_the_place_where_it_was_built(box, tree):
    for path in tree.rglob("*"):
        if path.is_file() and path.suffix in (".pc", ".cmake", ".h", ".service"):
            text = pathlib.Path(path).read_text()
            assert str(ctrun.ROOT) not in text and str(box.path("first")) not in text, path


def test_the_launcher_has_both_its_names(box, tree):
    run = box.run(tree / "bin" / "ctrun-launch", "--use-env", "--no-python", "true")
    assert run.code == 0, run


def test_the_unit_of_ctrund_is_one_that_systemd_takes_and_keeps_a_journal(box, tree):
    if not shutil.which("systemd-analyze"):
        pytest.skip("no systemd-analyze here")
    unit = tree / "lib/systemd/system/ctrund.service"
    assert box.run("systemd-analyze", "verify", "--man=no", unit).code == 0, box.runs[-1]
    text = unit.read_text()
    assert "--journal %S/ctrund" in text and "StateDirectory=ctrund\n" in text
    assert "Restart=always\n" in text and "Type=notify\n" in text


def test_the_unit_of_ctrund_makes_a_token_once_and_starts_with_it(box, tree):
    box.path("ctrund").mkdir()
    text = (tree / "lib/systemd/system/ctrund.service").read_text().replace("%S", str(box.dir))
    lines = {name: shlex.split(line.replace("$$", "$")) for name, _, line in
             (line.partition("=") for line in text.splitlines()) if name.startswith("ExecStart")}
    assert "UMask=0077\n" in text
    tokens = set()
    for _ in range(2):
        assert box.run("sh", "-c", 'umask 077; exec "$@"', "sh", *lines["ExecStartPre"]).code == 0
        tokens.add(box.path("ctrund/token").read_text())
    assert [len(token) for token in tokens] == [64], tokens
    assert box.path("ctrund/token").stat().st_mode & 0o777 == 0o600
    daemon = box.start(*lines["ExecStart"], "--listen=127.0.0.1:0")
    ctrun.wait_until(lambda: "listening on" in daemon.out, lambda: f"a port: {daemon}")
    assert "no token" not in daemon.err
    daemon.signal(15)
    assert daemon.wait() == 0
