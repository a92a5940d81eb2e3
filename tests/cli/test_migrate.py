# SPDX-License-Identifier: Apache-2.0
"""ctrunctl migrate: scripts as people have them are rewritten, and then really run. That torchrun
gives the same ranks is in tests/interop/test_migrate.py."""
import json
import os
import subprocess

import ctrun
import pytest
import scripts
from scripts import SCRIPTS, STEP, STEP_AFTER

def migrate(box, *words):
    return box.run(ctrun.program("ctrunctl"), "migrate", *words)


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_rewritten_script_has_the_ranks_that_it_had(box, name):
    script, _, lines = SCRIPTS[name]
    scripts.stage(box)
    done = migrate(box, "--write", box.write("job.sh", script, 0o750))
    assert done.code == 0, done
    after = box.path("job.sh").read_text()
    for line in lines:
        assert line in after, after
    found, _, run = scripts.ranks(box, after)
    assert found == scripts.expected(name), run
    assert box.events("worker_started"), "it was not ctrun that ran"


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_diff_is_the_change_and_shows_no_other_byte(box, name):
    path = box.write("job.sh", SCRIPTS[name][0])
    shown = migrate(box, path)
    assert box.path("job.sh").read_text() == SCRIPTS[name][0]  # only shown
    assert os.listdir(box.dir).count("job.sh.orig") == 0
    patched = box.write("patched.sh", SCRIPTS[name][0])
    subprocess.run(["patch", "-s", patched], input=shown.out, text=True, check=True)
    written = migrate(box, "--write", path)
    assert written.out == shown.out
    assert box.path("job.sh").read_text() == box.path("patched.sh").read_text()
    assert migrate(box, path).out == ""  # twice changes nothing more


def test_a_step_of_slurm_needs_no_endpoint_and_no_exports(box):
    done = migrate(box, box.write("job.sbatch", STEP), "--write")
    assert done.code == 0 and box.path("job.sbatch").read_text() == STEP_AFTER, done
    path = box.path("job.sbatch")
    told = done.err.splitlines()
    assert f"{path}:6: MASTER_ADDR, MASTER_PORT: goes: ctrun tells the workers where they meet" \
        in told
    for line, start in [(9, "torchrun: becomes ctrun"), (11, '--rdzv_id "$SLURM_JOB_ID": goes'),
                        (12, "--rdzv-backend=c10d: goes"),
                        (13, '--rdzv-endpoint "$MASTER_ADDR:$MASTER_PORT": goes'),
                        (5, "hint: head_node: nothing in this script reads it")]:
        assert any(text.startswith(f"{path}:{line}: {start}") for text in told), (start, done)


def test_the_backup_is_the_old_file_and_the_mode_stays(box):
    path = box.write("job.sh", "torchrun --standalone x.py\n", 0o751)
    os.symlink("job.sh", box.path("link.sh"))
    done = migrate(box, "--write", box.path("link.sh"))
    assert done.code == 0, done
    assert box.path("link.sh").is_symlink()
    assert box.path("job.sh").read_text() == "ctrun --standalone x.py\n"
    assert box.path("job.sh.orig").read_text() == "torchrun --standalone x.py\n"
    assert os.stat(path).st_mode & 0o777 == os.stat(path + ".orig").st_mode & 0o777 == 0o751
    # A backup that is there is not lost, and nothing is written.
    box.write("job.sh", "torchrun y.py\n")
    done = migrate(box, "--write", path)
    assert done.code == 1 and "job.sh.orig: File exists; move it away" in done.err, done
    assert box.path("job.sh").read_text() == "torchrun y.py\n"
    assert sorted(name for name in os.listdir(box.dir) if name.startswith("job")) == [
        "job.sh", "job.sh.orig"]


def test_what_is_not_understood_stays_is_named_and_tells_by_the_exit_code(box):
    text = ("torchrun --standalone a.py\n$(which torchrun) b.py\ntorchrun --frob c.py\n"
            "torchrun --logs-specs=x d.py\ncat <<EOF\ntorchrun e.py\nEOF\n"
            "srun --container-image=i torchrun f.py\neval \"torchrun g.py\"\n"
            "python -W ignore -m torch.distributed.run h.py\n")
    path = box.write("job.sh", text)
    done = migrate(box, "--json", path)
    assert done.code == 1, done
    answer = json.loads(done.out)
    assert [item["line"] for item in answer["left"]] == [2, 3, 4, 6, 8, 9, 10]
    assert [item["line"] for item in answer["changes"]] == [1] and answer["launches"] == 1
    assert answer["backup"] is None and "+ctrun --standalone a.py\n" in answer["diff"]
    done = migrate(box, "--write", path)
    assert done.code == 1
    assert box.path("job.sh").read_text() == text.replace("torchrun --standalone a", "ctrun "
                                                          "--standalone a")


@pytest.mark.parametrize("text, words", [
    ("echo 'torchrun\n", "line 1: no end of the quote '"),
    ("torchrun x.py\ncat <<EOF\n", "line 2: no end of the here-document"),
    ("torchrun $(x\n", "line 1: no end of ("),
    ("torchrun \0\n", "a NUL byte"),
])
def test_a_script_that_does_not_end_is_left_alone(box, text, words):
    path = box.write("job.sh", text)
    done = migrate(box, "--write", path)
    assert done.code == 1 and words in done.err and done.out == "", done
    assert box.path("job.sh").read_text() == text


def test_a_script_without_torchrun_and_files_that_are_none(box):
    done = migrate(box, box.write("job.sh", "# torchrun\nmultinode_torchrun.py; echo torchrun\n"))
    assert (done.code, done.out) == (0, "") and "nothing in it starts torchrun" in done.err
    os.mkfifo(box.path("fifo"))
    for name, why in [("fifo", "no regular file"), ("nosuch", "No such file")]:
        done = migrate(box, box.path(name))
        assert done.code == 1 and why in done.err, done
    assert migrate(box).code == 2
