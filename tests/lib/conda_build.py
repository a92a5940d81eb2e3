# SPDX-License-Identifier: Apache-2.0
"""Builds a conda recipe and runs its tests, in a Python that has rattler-build. The packages of
conda-forge are stand-ins: the tools and libraries of the system do their work.

usage: conda_build.py RECIPE FOLDER CMAKE     CMAKE: what `cmake` does, in sh"""
import pathlib
import sys

from rattler_build import PlatformConfig, RenderConfig, Stage0Recipe, ToolConfiguration, VariantConfig, assemble_package

HERE = "linux-64"
SYSTEM = "/usr/bin/python3"


class Printer:
    """Prints the log of rattler-build."""

    def on_log(self, event):
        print(event.message)

    def __getattr__(self, _):
        return lambda _: None


def stand_in(channel, files, name, version):
    (files / "share").mkdir(parents=True, exist_ok=True)
    (files / "share" / f"{name}.txt").write_text("a stand-in\n")
    assemble_package(name, version, HERE, "0", channel / HERE, files_dir=files)


def main(recipe, folder, cmake):
    channel, files = folder / "channel", folder / "files"
    (channel / HERE).mkdir(parents=True)
    for name in ("gcc_linux-64", "ninja", "pkg-config", "cjson", "libcurl", "libsodium", "libuv", "zlib"):
        stand_in(channel, files / name, name, "1.0")
    (files / "cmake/bin").mkdir(parents=True)
    (files / "cmake/bin/cmake").write_text(f"#!/bin/sh\n{cmake}\n")
    (files / "cmake/bin/cmake").chmod(0o755)
    stand_in(channel, files / "cmake", "cmake", "3.25")
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"  # also of the system's Python, which made this environment
    (files / "python/bin").mkdir(parents=True)
    (files / "python/bin/python").symlink_to(SYSTEM)
    (files / "python/pyvenv.cfg").write_text(f"home = {SYSTEM.rpartition('/')[0]}\n")
    (files / f"python/lib/python{version}/site-packages").mkdir(parents=True)
    (files / f"python/lib/python{version}/site-packages/README.txt").write_text("packages\n")
    stand_in(channel, files / "python", "python", f"{version}.0")
    where = PlatformConfig(**{f"{name}_platform": HERE for name in ("target", "build", "host")})
    versions = VariantConfig({"c_compiler": ["gcc"], "python": [version]})
    made, = Stage0Recipe.from_file(recipe).render(versions, RenderConfig(where))
    made.run_build(ToolConfiguration(test_strategy="native"), output_dir=channel, channels=[channel.as_uri()],
                   progress_callback=Printer())


main(sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3])
