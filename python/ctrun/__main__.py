# SPDX-License-Identifier: Apache-2.0
"""python -m ctrun: ctrun(1), whose workers run under this Python."""
import os
import shutil
import sys
import sysconfig


def _scripts() -> str:
    """The folder where pip put the programs of this package: with --user it is not this Python's own."""
    package = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    for scheme in sysconfig.get_scheme_names():
        if package in [os.path.realpath(sysconfig.get_path(name, scheme)) for name in ("purelib", "platlib")]:
            return sysconfig.get_path("scripts", scheme)
    return sysconfig.get_path("scripts")


here = os.path.join(_scripts(), "ctrun")
program = here if os.access(here, os.X_OK) else shutil.which("ctrun")
if program is None:
    print(f"ctrun: error[E_EXEC]: there is no {here}, and no program ctrun in PATH: install ctrun", file=sys.stderr)
    sys.exit(127)
os.environ.setdefault("PYTHON_EXEC", sys.executable)
os.execv(program, ["ctrun", *sys.argv[1:]])
