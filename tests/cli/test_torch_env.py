# SPDX-License-Identifier: Apache-2.0
"""What the PyTorch beside an interpreter needs in the environment of workers. The variables with which
Gloo starts many ranks: on all nodes or on none, and only where PyTorch is new enough."""
import socket
import sys

import ctrun
import pytest

NAMES = ("GLOO_ENABLE_STORE_V2_API", "GLOO_ENABLE_RANK_AS_SEQUENCE_NUMBER", "TORCH_GLOO_LAZY_INIT")
TELL = f"import os; print('told', *[os.environ.get(name, '-') for name in {NAMES}], flush=True)\n"


def make_python(box, version, name="py"):
    """An interpreter that has a torch of that version among its libraries."""
    torch = box.path(f"{name}/lib/python3.11/site-packages/torch")
    torch.mkdir(parents=True)
    if version is not None:
        (torch / "version.py").write_text(f"from typing import Optional\n__all__ = []\n{version}\n")
    box.path(f"{name}/bin").mkdir()
    return box.write(f"{name}/bin/python", f'#!/bin/sh\nexec {sys.executable} "$@"\n', 0o755)


def told(run):
    return {line for line in run.out.splitlines() if line.startswith("told ")}


@pytest.mark.parametrize("version, is_set", [
    ("__version__ = '2.15.0+cpu'", True), ("__version__ = '2.16.1'", True), ("__version__ = '3.0.0a0'", True),
    ("__version__ = '2.14.9'", False), ("__version__ = '1.13.0a0'", False), ("__version__ = '15'", False),
    ("version = 7", False), (None, False)])
def test_they_are_set_for_a_pytorch_that_knows_them(box, version, is_set):
    run = box.ctrun("--standalone", "--nproc-per-node=2", box.write("tell.py", TELL),
                    env={"PYTHON_EXEC": make_python(box, version)})
    assert run.code == 0 and told(run) == {"told 1 1 1" if is_set else "told - - -"}, run


@pytest.mark.parametrize("shares, is_set", [("true", True), ("True ", True), ("false", False)])
def test_a_virtual_environment_may_have_that_of_the_python_it_was_made_from(box, shares, is_set):
    make_python(box, "__version__ = '2.15.0'", "base")
    python = make_python(box, None, "venv")
    box.write("venv/pyvenv.cfg", f"home = {box.path('base/bin')}\ninclude-system-site-packages = {shares}\n"
              "version = 3.11.2\n")
    run = box.ctrun("--standalone", box.write("tell.py", TELL), env={"PYTHON_EXEC": python})
    assert told(run) == {"told 1 1 1" if is_set else "told - - -"}, run


def test_it_may_be_where_debian_keeps_what_pip_installs(box):
    python = make_python(box, None)
    box.path("py/local/lib/python3.11/dist-packages/torch").mkdir(parents=True)
    box.write("py/local/lib/python3.11/dist-packages/torch/version.py", "__version__ = '2.15.0'\n")
    run = box.ctrun("--standalone", box.write("tell.py", TELL), env={"PYTHON_EXEC": python})
    assert told(run) == {"told 1 1 1"}, run


@pytest.mark.parametrize("name", NAMES)
def test_one_that_the_user_has_set_leaves_all_to_him(box, name):
    run = box.ctrun("--standalone", box.write("tell.py", TELL),
                    env={"PYTHON_EXEC": make_python(box, "__version__ = '2.15.0'"), name: "0"})
    assert told(run) == {"told " + " ".join("0" if n == name else "-" for n in NAMES)}, run


def test_a_program_that_is_no_python_has_none(box):
    python = make_python(box, "__version__ = '2.15.0'")
    run = box.ctrun("--standalone", "--no-python", python, "-c", TELL)
    assert told(run) == {"told - - -"}, run


@pytest.mark.parametrize("second, is_set", [("2.15.0", True), ("2.14.0", False)])
def test_two_nodes_have_them_or_neither(box, second, is_set):
    script, port, runs = box.write("tell.py", TELL), ctrun.free_port(), []
    for n, version in enumerate(("2.15.0", second)):
        runs.append(box.start_ctrun("--nnodes=2", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=scale", script,
                                    env={"PYTHON_EXEC": make_python(box, f"__version__ = '{version}'", f"py{n}")}))
        box.wait_event("agent_state", n + 1, to="joining")
    assert [run.wait(60) for run in runs] == [0, 0], runs
    assert [told(run) for run in runs] == [{"told 1 1 1" if is_set else "told - - -"}] * 2, runs


OLDER = ("NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_TRACE_BUFFER_SIZE")
TELL_OLDER = TELL.replace(str(NAMES), str(OLDER))


@pytest.mark.parametrize("version, words, env, told_them", [
    ("1.13.1", [], {}, "1 -"), ("2.1.2", [], {"NCCL_ASYNC_ERROR_HANDLING": "3"}, "3 -"), ("2.2.0", [], {}, "- -"),
    ("2.1.0", ["--hang-timeout=9"], {}, "1 2000"), ("2.7.1", ["--hang-timeout=9"], {}, "- 2000"),
    ("2.7.1", ["--stragglers"], {}, "- 2000"), ("2.7.1", ["--stragglers"], {OLDER[1]: "5"}, "- 5"),
    ("2.7.1", ["--stragglers"], {"TORCH_FR_BUFFER_SIZE": "7"}, "- -"), ("2.15.0", ["--stragglers"], {}, "- -")])
def test_an_older_torch_ends_on_errors_of_nccl_and_records_its_calls(box, version, words, env, told_them):
    python = make_python(box, f"__version__ = '{version}'")
    run = box.ctrun("--standalone", *words, box.write("tell.py", TELL_OLDER), env={"PYTHON_EXEC": python, **env})
    assert told(run) == {f"told {told_them}"}, run


def test_python_below_a_shell_writes_at_once_unless_told_otherwise(box):
    tell = f"exec {sys.executable} -c 'import os; print(\"told\", repr(os.environ[\"PYTHONUNBUFFERED\"]))'"
    assert told(box.ctrun("--standalone", "sh", "-c", tell)) == {"told '1'"}
    assert told(box.ctrun("--standalone", "sh", "-c", tell, env={"PYTHONUNBUFFERED": ""})) == {"told ''"}


def test_versions_of_pytorch_that_differ_between_nodes_are_one_warning(box):
    port, runs = ctrun.free_port(), []
    for n, version in enumerate(("2.6.0+cu126", "2.4.1")):
        runs.append(box.start_ctrun("--nnodes=2", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=versions",
                                    box.write("ends.py", ""),
                                    env={"PYTHON_EXEC": make_python(box, f"__version__ = '{version}'", f"py{n}")}))
        box.wait_event("agent_state", n + 1, to="joining")
    assert [run.wait(60) for run in runs] == [0, 0], runs
    host = socket.gethostname()
    warned = [line for run in runs for line in run.err.splitlines() if "PyTorch" in line]
    assert warned == [f"ctrun: warning[E_FINGERPRINT]: PyTorch 2.6 on {host}, but 2.4 on {host}; different versions may hang or "
                      "crash in collectives"], runs
