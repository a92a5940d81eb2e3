# SPDX-License-Identifier: Apache-2.0
"""A real torchrun, imported once: each line of standard input is a command as JSON (argv, env, cwd,
files for out and err), which a forked child runs; its exit code comes back as a line."""
import json
import os
import sys
import traceback

import torch.distributed.run
from torch.distributed.elastic.multiprocessing.api import Std

if sys.argv[1:] == ["debian"] and Std.from_str("0") is None:  # see torchrun_113.py
    whole = Std.from_str
    Std.from_str = classmethod(
        lambda cls, text: Std(int(text)) if text.isdigit() else whole(text))


def run(job):
    os.chdir(job["cwd"])
    os.environ.clear()
    os.environ.update(job["env"])
    for name, fd in (("out", 1), ("err", 2)):
        os.dup2(os.open(job[name], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), fd)
    sys.argv = ["torchrun", *job["argv"]]
    try:
        torch.distributed.run.main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
        code = run(json.loads(line))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
