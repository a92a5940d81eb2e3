# SPDX-License-Identifier: Apache-2.0
"""CTRUN_STATIC and its wheel: programs that need nothing of the system, in a bare Debian 12 and in
a root that has only musl; they contain the backend etcd.

The libraries are compiled out of Debian's sources (`scripts/package sources`), which takes a minute and
a mirror once; all is kept in the build folder. CTRUN_TEST_WHEEL names a wheel of `scripts/package wheel`,
which is tried instead."""
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import zipfile

import ctrun
import debian
import pytest
import readme
from proxy import Proxy
from test_wheel import backend, sdist, unpacked  # noqa: F401

KEPT = ctrun.BUILD / "static"
VERSION = re.search(r"project\(ctrun VERSION ([\d.]+)", (ctrun.ROOT / "CMakeLists.txt").read_text())[1]
PROGRAMS = ["ctrun", "ctrunctl", "ctrund"]
EXAMPLE = ctrun.ROOT / "examples/03_all_reduce.c"
MUSL = pathlib.Path("/usr/lib/x86_64-linux-musl/libc.so")  # Debian's, and its loader


def work(*words, **env):
    made = subprocess.run([str(word) for word in words], capture_output=True, text=True,
                          env={**os.environ, **env})
    assert made.returncode == 0, made.stdout + made.stderr
    return made.stdout


def configure(source, build, *words, **env):
    work("cmake", "-G", "Ninja", "-S", source, "-B", build, "-DCMAKE_BUILD_TYPE=Release",
         "-DCMAKE_C_FLAGS_RELEASE=-O0", *words, **env)


def libraries():
    """The folder where cJSON, libcurl and the others are installed to."""
    sources, there = KEPT / "sources", KEPT / "there"
    if not sources.exists():
        loaded = subprocess.run([ctrun.ROOT / "scripts/package", "sources", f"{sources}.{os.getpid()}"],
                                capture_output=True, text=True)
        if loaded.returncode:
            pytest.skip(f"no sources of Debian here: {loaded.stderr.strip().splitlines()[-1:]}")
        pathlib.Path(f"{sources}.{os.getpid()}").rename(sources)
    configure(ctrun.ROOT / "packaging/wheel/libraries", KEPT / "libraries", f"-DCTRUN_SOURCES={sources}",
              "-DCTRUN_CURL=ON", f"-DCMAKE_INSTALL_PREFIX={there}")
    work("ninja", "-C", KEPT / "libraries", "install")
    return there


def static(there):
    """(words for cmake, the environment), with the libraries there."""
    return (["-DCTRUN_STATIC=ON", f"-DCJSON_ARCHIVE={there}/lib/libcjson.a",
             f"-DCURL_ARCHIVES={there}/lib/libcurl.a;{there}/lib/libmbedtls.a"],
            {"PKG_CONFIG_LIBDIR": f"{there}/lib/pkgconfig"})


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    if os.environ.get("CTRUN_TEST_WHEEL"):
        return pathlib.Path(os.environ["CTRUN_TEST_WHEEL"])
    build, folder = KEPT / "build", tmp_path_factory.mktemp("wheel")
    words, env = static(libraries())
    configure(ctrun.ROOT, build, *words, "-DCTRUN_CUDA=OFF", "-DCTRUN_TESTS=OFF", "-DCMAKE_SKIP_RPATH=ON", **env)
    work("ninja", "-C", build, *PROGRAMS, "libctrun")
    return folder / backend("build_wheel", folder, CTRUN_WHEEL_BUILD=str(build))


@pytest.fixture
def programs(box, wheel):
    """The folder of the three programs."""
    with zipfile.ZipFile(wheel) as opened:
        opened.extractall(box.path("x"))
    folder, = box.path("x").glob("*.data/scripts")
    for name in PROGRAMS:
        (folder / name).chmod(0o755)
        assert "not a dynamic executable" in box.run("ldd", folder / name).err
    return folder


def test_in_a_bare_debian_the_readme_holds_word_for_word(box, wheel):
    debian.needs_root()
    root = debian.Overlay(box, debian.bare())
    files, commands = readme.samples()
    assert commands[0] == ("scripts/package wheel", []) and len(commands) == 5
    home = root.folder / "home/me"
    (home / "dist").mkdir(parents=True)
    shutil.copy(wheel, home / "dist")
    for name, text in files.items():
        (home / name).write_text(text)
    def shell(command):
        run = root.run("sh", "-ec", f"cd /home/me\n{command}")
        told = (run.out + run.err[run.err.find("ctrun: error"):]) if run.code else run.out
        return run, told.splitlines()

    run, _ = shell(commands[1][0])
    assert run.code == 0, run
    for command, printed in commands[2:]:
        run, told = shell(f". venv/bin/activate\n{command}")
        assert set(readme.shape(printed)) <= set(readme.shape(told)), run
    run = root.run("/home/me/venv/bin/ctrunctl", "doctor")
    assert run.code in (0, 1) and "error" not in run.err, run
    package, = home.glob("venv/lib/*/site-packages/ctrun")
    library = package / "lib"
    work("cc", EXAMPLE, "-I", package / "include", "-o", home / "worker", library / "libctrun.so.0")
    run = root.run("env", f"LD_LIBRARY_PATH=/{library.relative_to(root.folder)}", "/home/me/venv/bin/ctrun",
                   "--standalone", "--nproc-per-node=2", "/home/me/worker")
    assert run.code == 0 and "on every rank" in run.out, run


def test_a_job_runs_where_there_is_musl_alone(box, programs):
    """With the library for musl where the wheel has it: what scripts/package makes."""
    debian.needs_root()
    if not shutil.which("musl-gcc") or not MUSL.exists():
        pytest.skip("no musl-gcc here (musl-tools)")
    root = debian.Root(box, box.path("root"))
    (root.folder / "lib").mkdir()
    shutil.copy(MUSL, root.folder / "lib/ld-musl-x86_64.so.1")
    for name in PROGRAMS:
        shutil.copy(programs / name, root.folder / name)
    source, ours = box.path("worker.c"), box.path("x/ctrun/lib/libctrun_musl.so.0")
    source.write_text('#include <stdio.h>\n#include <stdlib.h>\nint main(void)\n{\n'
                      '    return printf("on every rank %s\\n", getenv("RANK")) < 0;\n}\n')
    if ours.exists():
        shutil.copy(ours, root.folder / "lib/libctrun.so.0")
        source = EXAMPLE
    made = box.run("musl-gcc", source, "-I", box.path("x/ctrun/include"), "-o", root.folder / "worker",
                   *[ours] * ours.exists())
    assert made.code == 0, made
    run = root.run("/ctrun", "--standalone", "--nproc-per-node=2", "/worker")
    assert run.code == 0 and "on every rank" in run.out, run
    run = root.run("/ctrunctl", "doctor", "--json")
    told = {each["what"]: each["value"] for each in json.loads(run.out)["findings"]}
    assert told["libcurl"] == "linked into ctrun" and "built without it" in told["MUNGE"], run
    assert "unknown" in told["NCCL, cuDNN"], run
    assert root.run("/ctrund", "--version").code == 0, box.runs[-1]


def test_the_other_names_are_stubs_that_start_the_ctrun_beside_them(box, programs):
    """Through a link of any name, too; and ps and pgrep find them by their own names."""
    sizes = [(programs / name).stat().st_size for name in PROGRAMS]
    assert sizes[0] > 1 << 20 and max(sizes[1:]) < 1 << 16, sizes
    link = box.path("other-name")
    link.symlink_to(programs / "ctrund")
    daemon = box.start(link, "--listen=127.0.0.1:0")
    ctrun.wait_until(lambda: "listening on" in daemon.out, lambda: f"a port: {daemon}")
    told = pathlib.Path(f"/proc/{daemon.pid}")
    assert (told / "comm").read_text() == "ctrund\n"
    assert (told / "cmdline").read_bytes().split(b"\0")[:2] == [str(programs / "ctrund").encode(), b"--listen=127.0.0.1:0"]
    daemon.signal(signal.SIGTERM)
    assert daemon.wait() == 0
    run = box.run(programs / "ctrunctl", "no-such-verb")
    assert run.code == 2 and "ctrunctl: error[E_USAGE]" in run.err, run


def test_the_image_has_the_programs_and_other_images_take_them_from_it(box, programs):
    """packaging/oci/Containerfile: a job runs in it; `COPY --from` and `ctrunctl install` copy what runs elsewhere."""
    debian.needs_root()
    if not shutil.which("buildah"):
        pytest.skip("no buildah here")
    buildah = ["buildah", "--root", box.path("images"), "--runroot", box.path("state"), "--storage-driver", "vfs"]

    def build(file, tag):
        run = box.run(*buildah, "build", "--isolation", "chroot", "-f", file, "-t", tag, programs, seconds=200)
        assert run.code == 0, run
        made = box.run(*buildah, "from", tag).out.strip()
        return pathlib.Path(box.run(*buildah, "mount", made).out.strip())

    made = build(ctrun.ROOT / "packaging/oci/Containerfile", f"ctrun:{VERSION}")
    assert sorted(path.name for path in made.iterdir() if path.is_file()) == PROGRAMS
    shutil.copytree(made, box.path("root"))
    root = debian.Root(box, box.path("root"))
    assert root.run("/ctrunctl", "install", "/there").code == 0, box.runs[-1]
    run = root.run("/there/ctrun", "--standalone", "--nproc-per-node=2", "/there/ctrunctl", "--version")
    assert run.code == 0 and run.out.count(VERSION) == 2, run
    copied = re.search(r"COPY --from=.*", (ctrun.ROOT / "packaging/oci/Containerfile").read_text())[0]
    other = build(box.write("Other", f"FROM scratch\n{copied}\n"), "other")
    run = box.run(other / "usr/local/bin/ctrunctl", "--version")
    assert run.code == 0 and VERSION in run.out, run


def test_a_stub_that_lies_alone_says_what_is_missing(box, programs):
    alone = box.path("alone")
    alone.mkdir()
    shutil.copy(programs / "ctrunctl", alone)
    run = box.run(alone / "ctrunctl", "status")
    assert run.code == 126 and run.out == "" and run.err.count("\n") == 1, run
    assert f"ctrunctl: cannot start {alone}/ctrun, which must lie beside it" in run.err, run


def test_static_programs_meet_in_an_etcd_with_certificates_and_passwords(box, programs, etcd):
    options = etcd(tls=True, auth=True).options("job")
    job = [box.start(programs / "ctrun", *options, "--nnodes=2", "--nproc-per-node=1", "sh", "-c",
                     "echo rank $RANK of $WORLD_SIZE") for _ in range(2)]
    assert [run.wait() for run in job] == [0, 0], job
    assert sorted(run.out for run in job) == ["rank 0 of 2\n", "rank 1 of 2\n"], job


def test_static_programs_refuse_a_certificate_of_another_address(box, programs, etcd):
    server = etcd(tls=True)
    with contextlib.closing(Proxy(server.ports[0], "127.0.0.2")) as proxy:
        there = [word.replace(server.endpoint, f"127.0.0.2:{proxy.port}") for word in server.options("job")]
        run = box.run(programs / "ctrun", *there, "true")
    assert run.code == 77 and f"127.0.0.2:{proxy.port}" in run.err and "CN_MISMATCH" in run.err, run


def test_a_wheel_that_is_compiled_at_another_place_and_time_is_equal(box, wheel, sdist):  # noqa: F811
    """Of an unpacked sdist whose files are newer than the tree's."""
    if "CTRUN_TEST_WHEEL" in os.environ:
        pytest.skip("CTRUN_TEST_WHEEL was compiled elsewhere")
    tree = unpacked(box, sdist, "another/place", "--touch")
    words, env = static(libraries())
    name = backend("build_wheel", tree, root=tree, umask=0o077, CCACHE_DISABLE="1",
                   CTRUN_WHEEL_CMAKE=" ".join([*words, "-DCMAKE_C_FLAGS_RELEASE=-O0"]), **env)
    assert (name, (tree / name).read_bytes()) == (wheel.name, wheel.read_bytes())


def test_libraries_that_are_compiled_at_two_places_and_times_are_equal(box):
    """Three of them: each source file costs two compiler calls. CTRUN_TEST_PACKAGES=1 has whole wheels."""
    libraries()
    small = ["cjson", "zlib", "libuv1"]
    made = []
    for name, keeps in (("one", True), ("another/place", False)):
        sources, build = box.path(f"{name}/sources"), box.path(f"{name}/build")
        sources.mkdir(parents=True)
        for each in KEPT.glob("sources/*-[0-9]*/"):
            if each.name.rpartition("-")[0] in small:
                shutil.copytree(each, sources / each.name, copy_function=shutil.copy2 if keeps else shutil.copyfile)
            else:
                (sources / each.name).symlink_to(each)
        work("cmake", "-G", "Ninja", "-S", ctrun.ROOT / "packaging/wheel/libraries", "-B", build,
             "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_C_FLAGS_RELEASE=-O0", f"-DCTRUN_SOURCES={sources}")
        work("ninja", "-C", build, "cjson", "z", "uv_a", CCACHE_DISABLE="1")
        made.append({path.name: path.read_bytes() for path in build.glob("*.a")})
    assert sorted(made[0]) == ["libcjson.a", "libuv_a.a", "libz.a"]
    assert [name for name in made[0] if made[0][name] != made[1][name]] == []


def test_nothing_in_the_wheel_names_the_folder_that_it_was_built_in(wheel):
    folders = [b"/tmp/tmp." if os.environ.get("CTRUN_TEST_WHEEL") else str(KEPT).encode(), str(ctrun.ROOT).encode()]
    with zipfile.ZipFile(wheel) as opened:
        named = [(name, folder) for name in opened.namelist() for folder in folders if folder in opened.read(name)]
    assert named == []


def test_without_the_archive_the_cure_is_told(box):
    run = box.run("cmake", "-S", ctrun.ROOT, "-B", box.path("build"), "-G", "Ninja",
                  "-DCTRUN_STATIC=ON", "-DCTRUN_CUDA=OFF", "-DCJSON_ARCHIVE=CJSON_ARCHIVE-NOTFOUND",
                  "-DUV_ARCHIVE=UV_ARCHIVE-NOTFOUND", "-DCMAKE_FIND_LIBRARY_SUFFIXES=.none")
    assert run.code != 0 and "build cJSON" in run.err, run
