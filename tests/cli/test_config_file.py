# SPDX-License-Identifier: Apache-2.0
"""--config: options from a file, which value counts, and how --print-config and errors name the
file."""
import json
import os

import ctrun
import fake_ssh
import pytest

SHOW = ["--no-python", "sh", "-c", "echo $RANK/$WORLD_SIZE $TORCHELASTIC_MAX_RESTARTS"]


def settings(box, *words, env=None):
    run = box.ctrun(*words, "--print-config", "--json", "true", env=env)
    assert run.code == 0, run
    return {name: (entry["value"], entry["from"])
            for name, entry in json.loads(run.out)["settings"].items()}


def test_workers_are_started_as_the_file_says(box):
    path = box.write("job.conf", "# size\nnproc_per_node = 2\nmax-restarts = 4  # enough\n")
    run = box.ctrun("--config", path, *SHOW)
    assert run.code == 0 and sorted(run.out.split("\n")[:-1]) == ["0/2 4", "1/2 4"], run


@pytest.mark.parametrize("by", ["option", "environment"])
def test_the_file_comes_behind_environment_and_command_line(box, by):
    path = box.write("job.conf", "nproc-per-node = 2\nmax-restarts = 4\nrole = r\ncollapse = yes\n"
                     "no-python = true\n")
    words, env = (["--config", path], {}) if by == "option" else ([], {"CTRUN_CONFIG": path})
    found = settings(box, *words, "--nproc-per-node=3", env={**env, "PET_MAX_RESTARTS": "5",
                                                            "PET_NO_PYTHON": "0"})
    assert found["nproc-per-node"] == ("3", "command line")
    assert found["max-restarts"] == ("5", "PET_MAX_RESTARTS")
    assert found["no-python"] == ("no", "PET_NO_PYTHON")
    assert found["role"] == ("r", f"{path}:3")
    assert found["collapse"] == ("yes", f"{path}:4")
    assert found["tee"] == ("0", "default")
    assert found["config"][1] == ("command line" if by == "option" else "CTRUN_CONFIG")


def test_the_plain_form_names_file_and_line_too(box):
    box.write('a "file".conf', "\n\nrole = 'data loader'\n")
    run = box.ctrun("--config", 'a "file".conf', "--print-config", "true")
    row = next(line for line in run.out.splitlines() if line.startswith("role "))
    assert row.split() == ["role", "data", "loader", "a", '"file".conf:3'], run
    assert settings(box, "--config", 'a "file".conf')["role"] == ("data loader",
                                                                 'a "file".conf:3')


@pytest.mark.parametrize("text, code, words", [
    ("nnode = 1", 2, "f.conf:2: no option is named 'nnode'; did you mean nnodes?"),
    ("max-restarts = x", 2, "f.conf:2: argument --max-restarts/--max_restarts: invalid int"),
    ("max-restarts = -1", 1, "f.conf:2: --max-restarts=-1: max_restarts must be >= 0"),
    ("nnodes = 0", 1, "f.conf:2: --nnodes=0: min_nodes must be > 0"),
    ("nproc-per-node = few", 1, "f.conf:2: Unsupported nproc_per_node value: few"),
    ("hosts = a,a", 2, "f.conf:2: --hosts: a is given twice"),
    ("log-max-size = 1X", 2, "f.conf:2: --log-max-size"),
    ("dry-run = true", 2, "f.conf:2: --dry-run is for the command line"),
    ("nnodes", 2, "f.conf:2: 'nnodes' is not NAME = VALUE"),
    ("\x1b[31m", 2, "f.conf:2: '?[31m' is not NAME = VALUE"),
])
def test_what_the_command_line_would_refuse_is_refused_with_its_line(box, text, code, words):
    box.write("f.conf", f"# first\n{text}\n")
    run = box.ctrun("--config=f.conf", "true")
    assert (run.code, words in run.err) == (code, True), run


def test_what_is_no_readable_file_is_refused_and_not_waited_for(box):
    os.mkfifo(box.path("fifo"))
    box.write("long", "#" * 65537)
    for path, why in [("nosuch", "No such file"), ("fifo", "no regular file"),
                      ("long", "65537 bytes, more than 65536"), (".", "no regular file")]:
        run = box.ctrun("--config", path, "true")
        assert run.code == 2 and f"--config {path}: {why}" in run.err, run
    assert box.ctrun("--config=", "true").code == 2
    assert box.ctrun("true", env={"CTRUN_CONFIG": ""}).code == 0


def test_the_other_hosts_need_not_have_the_file(box):
    path = box.write("job.conf", "hosts = a,b\nmax-restarts = 4\nlog-line-prefix-template = 'x y'\n")
    ssh = box.write("rm_ssh", f'#!/bin/sh\nrm -f {path}\nexec {fake_ssh.local(box)} "$@"\n', 0o755)
    run = box.ctrun("--config", path, "--nproc-per-node=1", *SHOW,
                    env={"CTRUN_SSH": ssh, "CTRUN_HOSTS_ENV": "TMPDIR"})
    assert not os.path.exists(path)
    assert run.code == 0 and sorted(run.out.splitlines()) == ["a: 0/2 4", "b: 1/2 4"], run


def test_a_role_with_a_program_is_refused_with_and_without_other_hosts(box):
    box.write("f.conf", "role = a=1:x\n")
    for words in [], ["--hosts=a,b"]:
        run = box.ctrun("--config=f.conf", *words, "true", env={"CTRUN_SSH": "false"})
        assert run.code == 2 and "f.conf:1: role = a=1:x: NAME=N:COMMAND is for" in run.err, run


def test_a_rank_in_the_file_is_refused_for_many_hosts_as_a_typed_one(box):
    box.write("f.conf", "node-rank = 1\n")
    run = box.ctrun("--config=f.conf", "--hosts=a,b", "true")
    assert run.code == 2 and "f.conf:1: --node-rank: not with --hosts" in run.err, run


def test_a_file_of_a_run_that_cannot_be_parsed_starts_nothing(box):
    box.write("f.conf", "nnodes = 1\nrole = 'x\n")
    run = box.ctrun("--config=f.conf", ctrun.program("victim"), "exit", "0")
    assert run.code == 2 and "f.conf:2: no closing '" in run.err, run
    assert box.events() == []
