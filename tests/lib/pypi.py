# SPDX-License-Identifier: Apache-2.0
"""Tools that PyPI has and Debian has not: loaded at the first use, and kept in the build folder."""
import os
import shutil
import subprocess

import ctrun
import pytest


def python_with(*packages):
    """The python of an environment with these packages in it, or the test is skipped."""
    name = "+".join(packages)
    there = ctrun.BUILD / "pypi" / name
    if not there.exists():
        new = there.with_name(f"{name}.{os.getpid()}")
        for words in ((ctrun.DEBIAN_PYTHON, "-m", "venv", new),
                      (new / "bin/python", "-m", "pip", "install", "-q", *packages)):
            made = subprocess.run(words, capture_output=True, text=True)
            if made.returncode:
                shutil.rmtree(new, ignore_errors=True)
                pytest.skip(f"no {name} here: {(made.stdout + made.stderr).strip().splitlines()[-1:]}")
        new.rename(there)
    return there / "bin/python"
