# SPDX-License-Identifier: Apache-2.0
"""Behaviour that torchrun's users rely on is a list of numbered items; each has a test that can be
picked by its number: `pytest tests -k torchrun_084`."""
import re
import subprocess
import sys

import ctrun

LAST_ITEM = 158


def collected(folder):
    run = subprocess.run([sys.executable, "-m", "pytest", "--collect-only", "-q", "-k", "torchrun_",
                          "-p", "no:cacheprovider", ctrun.ROOT / "tests" / folder],
                         capture_output=True, text=True, cwd=ctrun.ROOT)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def test_every_item_of_torchruns_checklist_has_a_test_of_its_number():
    text = "".join(collected(folder) for folder in ("cli", "proc", "interop", "gpu"))
    names = re.findall(r"torchrun((?:_[0-9]{3})+)", text)
    found = {int(number) for name in names for number in name[1:].split("_")}
    wanted = set(range(1, LAST_ITEM + 1))
    assert found == wanted, f"without a test: {sorted(wanted - found)}; no item: {sorted(found - wanted)}"
