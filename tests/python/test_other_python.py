# SPDX-License-Identifier: Apache-2.0
"""All tests of the module once more, with the newest Python that is here beside Debian's."""
import os
import pathlib
import re
import subprocess
import sys

import pytest
from test_module import other_pythons

HERE = pathlib.Path(__file__).parent


def test_the_tests_of_the_module_pass_with_another_python():
    pythons = other_pythons()
    if not pythons:
        pytest.skip("no other Python than Debian's here")
    newest = pythons[max(pythons, key=lambda name: int(name.rpartition(".")[2]))]
    run = subprocess.run([sys.executable, "-B", "-m", "pytest", "-q", "-k", "not each_python_that_is_here",
                          HERE / "test_module.py", HERE / "test_hold.py"],
                         env={**os.environ, "CTRUN_TEST_PYTHON": newest}, capture_output=True, text=True)
    assert run.returncode == 0 and int(re.search(r"(\d+) passed", run.stdout)[1]) > 20, run.stdout + run.stderr
