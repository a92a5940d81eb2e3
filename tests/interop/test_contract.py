# SPDX-License-Identifier: Apache-2.0
"""The same command line under a real torchrun and under `ctrun --exit-code=torchrun`: the same exit
code, the same workers with the same arguments, the same lines and the same log files. Debian's torch
1.13 always, and the torch of the interpreter that CTRUN_TEST_TORCH names. tests/cli tests every
item of the contract; here are those that can be compared."""
import itertools
import json
import re
import subprocess

import ctrun
import pytest
from scripts import ALONE
from test_torchrun import HERE, interpreter

SHOW = """
import json, os, sys
names = ["RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "ROLE_NAME",
         "ROLE_RANK", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS"]
os.write(1, (json.dumps([sys.argv[1:]] + [os.environ[name] for name in names]) + "\\n").encode())
"""
# The rank that fails waits until all have printed: the launcher ends the others at once.
FAIL = SHOW + """
import time
open(f"said.{os.environ['RANK']}", "w").close()
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and os.environ["RANK"] == sys.argv[1]:
    while not all(os.path.exists(f"said.{rank}") for rank in range(int(os.environ["WORLD_SIZE"]))):
        time.sleep(0.01)
    if sys.argv[2].startswith("SIG"):
        import signal
        os.kill(os.getpid(), getattr(signal, sys.argv[2]))
    if sys.argv[2] == "raise":
        raise RuntimeError("boom")
    sys.exit(int(sys.argv[2]))
"""
NOISE = """
import os
os.write(1, f"out {os.environ['RANK']}\\n".encode())
os.write(2, f"err {os.environ['RANK']}\\n".encode())
"""
ID = "--rdzv_id=J"

# Name -> words behind the launcher; {d} is the case's folder.
CASES = {
    "one worker": ["show.py"],
    "arguments of the script are its own": ["show.py", "--nproc_per_node", "3", "-m", "--", "a b"],
    "dashes behind the script": ["show.py", "--", "--lr", "--", "x"],
    "dashes on both sides of the script": ["--", "show.py", "--", "x"],
    "dashes behind a program": ["--no_python", "sh", "--", "-c", "echo $RANK of $WORLD_SIZE"],
    "two workers": ["--nproc_per_node", "2", "show.py", "x"],
    "an abbreviated option": ["--nproc_p=2", "show.py"],
    "the last of two counts": ["--nproc_per_node=3", "--nproc_per_node=2", "show.py"],
    "every CPU": ["--nproc_per_node=cpu", "show.py"],
    "as many as torch would choose": ["--nproc_per_node=auto", "show.py"],
    "a number that is none": ["--nproc_per_node=many", "show.py"],
    "an unknown option": ["--nproc_per_nod3=2", "show.py"],
    "no script": ["--nproc_per_node=2"],
    "a script that is not there": ["missing.py"],
    "a module": ["-m", "show", "a"],
    "a module that is not there": ["-m", "missing.module"],
    "a program": ["--no_python", "sh", "-c", "echo $RANK of $WORLD_SIZE"],
    "a program that is not there": ["--no_python", "./missing"],
    "no python and a module": ["--no_python", "-m", "show"],
    "standalone": ["--standalone", "--nproc_per_node=2", "show.py"],
    "standalone whatever is given": ["--standalone", "--rdzv_backend=carrier-pigeon",
                                     "--rdzv_endpoint=host:70000", "--master_port=70000", "show.py"],
    "a range of nodes": ["--standalone", "--nnodes=1:1", "show.py"],
    "nodes the wrong way round": ["--nnodes=2:1", "show.py"],
    "a role": ["--role=trainer", "--nproc_per_node=2", "show.py"],
    "an exit code": ["--nproc_per_node=2", "fail.py", "1", "3"],
    "a restart": ["--standalone", "--max_restarts=1",
                  "--nproc_per_node=2", "fail.py", "1", "3"],
    "a signal": ["--nproc_per_node=2", "fail.py", "0", "SIGKILL"],
    "an abort": ["fail.py", "0", "SIGABRT"],
    "an exception": ["fail.py", "0", "raise"],
    "streams into files": ["--log_dir={d}/logs", ID, "-r", "3", "--nproc_per_node=2", "noise.py"],
    "the errors of one rank": ["--log_dir={d}/logs", ID, "-r", "1:2", "--nproc_per_node=2", "noise.py"],
    "streams into both": ["--log_dir={d}/logs", ID, "-t", "3", "--nproc_per_node=2", "noise.py"],
    "each rank its own": ["--log_dir={d}/logs", ID, "-r", "0:1,1:2", "-t", "0:2,1:1",
                          "--nproc_per_node=2", "noise.py"],
    "streams of both attempts": ["--standalone", "--max_restarts=1", "--log_dir={d}/logs", ID, "-r", "3",
                                 "--nproc_per_node=2", "fail.py", "1", "3"],
    "ranks in arguments": ["--nproc_per_node=2", "show.py", "${local_rank}", "a${local_rank}b"],
    "an endpoint of its own": ["--master_addr=127.0.0.1", "--master_port=0", "--node_rank=0", "show.py"],
    "rdzv conf": ["--rdzv_backend=c10d", "--rdzv_endpoint=localhost:0",
                  "--rdzv_conf=timeout=30,join_timeout=20", "show.py"],
    "rdzv conf without a value": ["--rdzv_backend=c10d", "--rdzv_endpoint=localhost:0",
                                  "--rdzv_conf=timeout", "show.py"],
    "an unknown backend": ["--rdzv_backend=carrier-pigeon", "--rdzv_endpoint=localhost:0", "show.py"],
}
# What came with later releases.
NEWER_CASES = {
    "options with dashes": ["--nproc-per-node=2", "--max-restarts=0", "--no-python", "sh", "-c",
                            "echo $RANK of $WORLD_SIZE"],
    "one rank on the console": ["--nproc-per-node=2", "--local-ranks-filter=1", "noise.py"],
    "a rank numbered within its node": ["--nproc-per-node=2", "--local-addr=127.0.0.1", "show.py"],
    "streams into files of a directory": ["--log-dir={d}/logs", ID, "--redirects=3", "--nproc-per-node=2",
                                          "noise.py"],
    "an executable by its path": ["--no-python", "/bin/sh", "-c", "exit 5"],
}
# Name -> environment in front of `--nproc_per_node=2 show.py` or of the words given.
ENVIRONMENTS = {
    "PET_NPROC_PER_NODE": ({"PET_NPROC_PER_NODE": "2"}, ["show.py"]),
    "an option wins over PET": ({"PET_NPROC_PER_NODE": "3"}, ["--nproc_per_node=1", "show.py"]),
    "PET_STANDALONE": ({"PET_STANDALONE": "1"}, ["show.py"]),
    "PET_MAX_RESTARTS": ({"PET_MAX_RESTARTS": "1", 
                          "PET_STANDALONE": "1"}, ["fail.py", "0", "3"]),
    "PET_ROLE": ({"PET_ROLE": "r"}, ["show.py"]),
}


class Torchrun:
    """A real torchrun that was imported once: 2 s for each command otherwise."""

    def __init__(self, kind):
        self.kind = kind
        self.box = ctrun.Box()
        self.serial = itertools.count()
        self.python = interpreter(kind)
        self.server = self.box.start(*ALONE, self.python, HERE / "torchrun_server.py", kind,
                                     stdin=subprocess.PIPE)

    def __call__(self, words, cwd, env):
        out, err = (cwd / f"{name}.{next(self.serial)}" for name in ("out", "err"))
        before = self.server.out
        self.server.process.stdin.write(json.dumps(
            {"argv": words, "env": {**self.box.env, **env, "PYTHON_EXEC": self.python},
             "cwd": str(cwd), "out": str(out), "err": str(err)}).encode() + b"\n")
        self.server.process.stdin.flush()
        ctrun.wait_until(lambda: self.server.out.endswith("\n") and self.server.out != before,
                         lambda: f"torchrun ended\n{self.server}", 90)
        return int(self.server.out[len(before):]), out.read_text(), err.read_text()

    def close(self):
        self.server.process.stdin.close()
        self.server.wait()
        self.box.close()


@pytest.fixture(scope="module", params=["debian", "newer"])
def torchrun(request):
    if ctrun.SLOW > 1:
        pytest.skip("compared in the builds without sanitizers")
    launcher = Torchrun(request.param)
    yield launcher
    launcher.close()


def lines_of(text):
    """What workers wrote; launchers have messages of their own."""
    return sorted(re.sub(r"^\[\S+\]:", "", line) for line in text.splitlines()
                  if re.match(r"(\[\S+\]:)?(\[\[|out |err |\d of \d)", line))


def files_of(folder):
    """{name: lines}, without the part of the name that is made for each run."""
    return {re.sub(r"^[^/]*/", "", str(path.relative_to(folder))): lines_of(path.read_text())
            for path in sorted(folder.rglob("*.log"))}


def outcome(folder, launch, words, env):
    """launch(words, cwd, env) -> (exit code, stdout, stderr)"""
    folder.mkdir()
    for script, text in (("show.py", SHOW), ("fail.py", FAIL), ("noise.py", NOISE)):
        compile(text, script, "exec")  # a script that cannot run does the same under both
        (folder / script).write_text(text)
    words = [word.format(d=folder) if "{d}" in word else word for word in words]
    code, out, err = launch(words, folder, {"OMP_NUM_THREADS": "1", "PET_MONITOR_INTERVAL": "0.1", **env})
    return {"code": code, "lines": lines_of(out) + lines_of(err),
            "files": files_of(folder / "logs")}, err


def compare(box, torchrun, words, env):
    def ours(words, cwd, env):
        run = box.ctrun("--exit-code=torchrun", *words, cwd=cwd, seconds=90,
                        env={**env, "PYTHON_EXEC": torchrun.python})
        return run.code, run.out, run.err

    theirs = outcome(box.path("torchrun"), torchrun, words, env)
    mine = outcome(box.path("ctrun"), ours, words, env)
    assert mine[0] == theirs[0], f"torchrun:\n{theirs[1]}\nctrun:\n{mine[1]}"


@pytest.mark.parametrize("case", CASES)
def test_a_command_does_the_same_under_both(box, torchrun, case):
    compare(box, torchrun, CASES[case], {})


@pytest.mark.parametrize("case", NEWER_CASES)
def test_what_came_later_does_the_same_under_both(box, torchrun, case):
    if torchrun.kind == "debian":
        pytest.skip("torch 1.13 does not have it")
    compare(box, torchrun, NEWER_CASES[case], {})


@pytest.mark.parametrize("case", ENVIRONMENTS)
def test_an_environment_does_the_same_under_both(box, torchrun, case):
    env, words = ENVIRONMENTS[case]
    compare(box, torchrun, words, env)
