# SPDX-License-Identifier: Apache-2.0
"""Scripts under torchrun, and as ctrunctl migrate has rewritten them: the same ranks, the same
arguments."""
import ctrun
import pytest
import scripts


@pytest.mark.parametrize("name", scripts.SCRIPTS)
def test_a_migrated_script_does_what_torchrun_did(box, name):
    if not scripts.has_torch():
        pytest.skip(f"{ctrun.DEBIAN_PYTHON} has no torch")
    before = scripts.SCRIPTS[name][0]
    scripts.stage(box)
    path = box.write("job.sh", before)
    assert box.run(ctrun.program("ctrunctl"), "migrate", "--write", path).code == 0
    after = scripts.ranks(box, box.path("job.sh").read_text())
    assert box.events("worker_started")
    assert after[:2] == scripts.ranks(box, before)[:2]
    assert after[0] == scripts.expected(name)
