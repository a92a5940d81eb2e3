# SPDX-License-Identifier: Apache-2.0
"""A log directory whose file system stops answering delays the run by seconds and gives one
message."""
import os
import pathlib
import shutil
import signal

import ctrun
import launch
import pytest


def hung(box, folder=None):
    """The folder and the environment in which calls below it hang while it has a file "hung"."""
    folder = folder or box.path("net")
    folder.mkdir()
    return folder, {"LD_PRELOAD": str(ctrun.BUILD / "tests/lib/libhung.so"),
                    "CTRUN_TEST_HUNG": str(folder),
                    "ASAN_OPTIONS": f"{os.environ.get('ASAN_OPTIONS', '')}:verify_asan_link_order=0"}


def test_a_log_directory_that_hangs_at_the_start_is_named(box):
    folder, env = hung(box)
    (folder / "hung").touch()
    run = box.ctrun("-r3", "--log-dir", folder / "logs", "--nproc-per-node=2", "true", env=env)
    assert run.code != 0
    assert str(folder / "logs") in run.err and "its file system has not answered within 2 s" in run.err


def test_a_temporary_folder_that_hangs_is_named_where_the_variable_is_empty(box):
    folder, env = hung(box, pathlib.Path("/tmp/torchelastic"))  # so does /tmp/torchelastic_XXXXXXXX
    try:
        (folder / "hung").touch()
        run = box.ctrun("-r3", "true", env={**env, "TMPDIR": ""})
    finally:
        shutil.rmtree(folder)
    assert run.code != 0 and "log directory /tmp: its file system has not answered within 2 s" in run.err, run


def test_a_log_directory_that_hangs_later_does_not_keep_a_failure_secret(box):
    folder, env = hung(box)
    run = box.start_ctrun("-t3", "--log-dir", folder / "logs", "--nproc-per-node=2",
                          ctrun.program("victim"), "touch", "up%r", "await", "go",
                          "@0", "err", "last words\\n", "exit", "3", "@1", "hang", env=env)
    ctrun.wait_until(lambda: len(list(box.dir.glob("up?"))) == 2, lambda: str(run))
    (folder / "hung").touch()
    box.path("go").touch()
    assert run.wait() == 3
    assert "[default0]:last words\n" in run.err


def test_a_worker_goes_on_when_its_log_directory_hangs(box):
    folder, env = hung(box)
    run = box.start_ctrun("-t1", "--log-dir", folder / "logs", "--nproc-per-node=2",
                          ctrun.program("victim"), "touch", "up%r", "await", "go",
                          "write", "done\\n", env=env)
    ctrun.wait_until(lambda: len(list(box.dir.glob("up?"))) == 2, lambda: str(run))
    (folder / "hung").touch()
    box.path("go").touch()
    assert run.wait() == 0
    assert sorted(run.out.splitlines()) == ["[default0]:done", "[default1]:done"]


@pytest.mark.plain("the sanitizers' libraries come first")
def test_the_files_of_a_worker_that_hang_do_not_keep_its_state_from_being_saved(box):
    """The program of rank 1 is there, and its Python cannot be read."""
    folder, env = hung(box)
    real = os.path.realpath(ctrun.DEBIAN_PYTHON)
    python = shutil.copy(real, folder / os.path.basename(real))
    victim = f"exec {ctrun.program('victim')} await up step 42 hang"
    script = f"import pathlib, signal; pathlib.Path('{box.path('up')}').touch(); signal.pause()"
    run = box.start_ctrun("--nproc-per-node=2", "--hang-timeout=3", "--log-dir", box.path("logs"), "--shutdown-timeout=1",
                          "--no-python", "sh", "-c", f'[ $RANK = 0 ] && {victim}; PYTHONHOME=/usr exec {python} -c "{script}"', env=env)
    ctrun.wait_until(box.path("up").exists, lambda: str(run))
    (folder / "hung").touch()
    assert run.wait() == 1 and "rank 1 (" in run.err and "is stuck" in run.err, run
    [saved] = box.path("logs").glob("*/attempt_0/1/stack.txt")
    assert "state S" in saved.read_text(), run
    assert "the file system of the log directory" not in run.err, run  # that one answers


@pytest.mark.plain("sanitizers handle a crash themselves")
def test_the_files_of_a_crashed_worker_that_hang_are_not_taken_for_the_log_directory(box):
    folder, env = hung(box)
    crasher = shutil.copy(ctrun.program("crasher"), folder / "crasher")
    run = box.start_ctrun("--log-dir", box.path("logs"), "--no-python", crasher, "segv", box.path("go"),
                          env={**env, "LD_LIBRARY_PATH": str(ctrun.BUILD / "lib")})
    ctrun.wait_until(lambda: launch.steps(box) == {0: 1}, lambda: str(run))
    (folder / "hung").touch()
    box.write("go", "")
    assert run.wait() == 128 + signal.SIGSEGV and "(crasher)" in run.err, run
    assert "the file system of the log directory" not in run.err, run
