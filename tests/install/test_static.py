# SPDX-License-Identifier: Apache-2.0
"""CTRUN_STATIC: programs that need nothing of the system they run on. Debian has no libcjson.a;
CTRUN_TEST_CJSON_ARCHIVE names one."""
import os

import ctrun
import pytest

WORKER = r"""
#include <stdio.h>
#include <stdlib.h>
int main(void)
{
    printf("rank %s of %s\n", getenv("RANK"), getenv("WORLD_SIZE"));
    return 0;
}
"""


@pytest.fixture
def static(box):
    """The folder of the three programs."""
    archive = os.environ.get("CTRUN_TEST_CJSON_ARCHIVE")
    if not archive:
        pytest.skip("CTRUN_TEST_CJSON_ARCHIVE names no libcjson.a")
    build = box.path("build")
    configure = box.run("cmake", "-S", ctrun.ROOT, "-B", build, "-G", "Ninja", "-DCTRUN_STATIC=ON",
                        "-DCTRUN_CUDA=OFF", "-DCTRUN_TESTS=OFF", f"-DCJSON_ARCHIVE={archive}")
    assert configure.code == 0, configure
    made = box.run("cmake", "--build", build, "--", "bin/ctrun", "bin/ctrunctl", "bin/ctrund",
                   seconds=500)
    assert made.code == 0, made
    return build / "bin"


def test_static_programs_run_in_an_empty_root(box, static):
    for name in ("ctrun", "ctrunctl", "ctrund"):
        assert "not a dynamic executable" in box.run("ldd", static / name).err
    assert box.run(static / "ctrun", "--rdzv-backend=etcd", "--rdzv-endpoint=127.0.0.1",
                   "--rdzv-id=J", "true").code == 2
    if os.geteuid():
        pytest.skip("chroot needs root")
    ctrun.needs_mounts()
    root = box.path("root")
    for folder in ("proc", "dev", "tmp"):
        (root / folder).mkdir(parents=True)
    worker = box.write("worker.c", WORKER)
    assert box.run("cc", "-static", "-o", root / "worker", worker).code == 0, box.runs[-1]
    (root / "ctrun").write_bytes((static / "ctrun").read_bytes())
    (root / "ctrun").chmod(0o755)
    run = box.run("unshare", "-m", "sh", "-c",
                  f"mount -t proc proc {root}/proc && mount --rbind /dev {root}/dev && "
                  f"exec chroot {root} /ctrun --nproc-per-node=2 /worker",
                  env={"CTRUN_EVENTS": "/events", "TMPDIR": "/tmp"})
    assert run.code == 0, run
    assert sorted(run.out.split("\n")) == ["", "rank 0 of 2", "rank 1 of 2"], run


def test_without_the_archive_the_cure_is_told(box):
    run = box.run("cmake", "-S", ctrun.ROOT, "-B", box.path("build"), "-G", "Ninja",
                  "-DCTRUN_STATIC=ON", "-DCTRUN_CUDA=OFF", "-DCJSON_ARCHIVE=CJSON_ARCHIVE-NOTFOUND",
                  "-DUV_ARCHIVE=UV_ARCHIVE-NOTFOUND", "-DCMAKE_FIND_LIBRARY_SUFFIXES=.none")
    assert run.code != 0 and "build cJSON" in run.err, run
