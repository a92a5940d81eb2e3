# SPDX-License-Identifier: Apache-2.0
"""A Spack recipe: put it into packages/ctrun/ of a repository of yours, with the path of a clone."""
from spack.package import *


class Ctrun(CMakePackage):
    """Elastic launcher and rendezvous daemon for distributed training, with a worker SDK in C: takes
    torchrun's command line and environment."""

    homepage = "https://ctrun.invalid/"
    git = "https://ctrun.invalid/ctrun.git"

    license("Apache-2.0")

    version("main", branch="main")

    variant("munge", default=True, description="Nodes of a Slurm job prove themselves by MUNGE")
    variant("onednn", default=False, description="ctrun-mnist computes with oneDNN")
    variant("static", default=False, description="ctrun, ctrunctl and ctrund without shared libraries")

    depends_on("c", type="build")
    depends_on("cmake@3.18:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("libuv@1.41:")
    depends_on("cjson")
    depends_on("libsodium")
    depends_on("zlib-api")
    depends_on("munge", when="+munge")
    depends_on("curl")
    depends_on("onednn", when="+onednn")

    generator("ninja")

    def cmake_args(self):
        arguments = [
            self.define("CTRUN_CUDA", "OFF"),
            self.define("CTRUN_TESTS", "OFF"),
            self.define_from_variant("CTRUN_STATIC", "static"),
        ]
        # A library that is no dependency must not be found in the system.
        if self.spec.satisfies("~munge"):
            arguments.append(self.define("MUNGE_INCLUDE_DIR", ""))
        if self.spec.satisfies("~onednn"):
            arguments.append(self.define("DNNL_LIBRARY", ""))
        return arguments

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def starts_two_workers(self):
        ctrun = Executable(self.prefix.bin.ctrun)
        ctrun("--standalone", "--nproc-per-node=2", "sh", "-c", 'test "$WORLD_SIZE" = 2')
