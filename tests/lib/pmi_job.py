# SPDX-License-Identifier: Apache-2.0
"""pmi_job.py TASKS COMMAND...: runs COMMAND as all tasks of a step with a PMI, of two nodes with
TASKS tasks each. Exits with the code of the first task that fails; then the others are killed, as
by srun --kill-on-bad-exit."""
import os
import subprocess
import sys
import threading

import pmi

here = int(sys.argv[1])
server = pmi.Pmi(2 * here)
failed = []


def environment(task):
    return {**os.environ, **server.env(task), "SLURM_JOB_ID": f"41{os.getpid()}",
            "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "nohost[1-2]",
            "SLURM_STEP_TASKS_PER_NODE": f"{here}(x2)", "SLURM_PROCID": str(task),
            "SLURM_NODEID": str(task // here), "SLURM_LOCALID": str(task % here)}


def follow(task):
    code = task.wait()
    if code != 0 and not failed:
        failed.append(code if code > 0 else 128 - code)
        for other in tasks:
            other.kill()


tasks = [subprocess.Popen(sys.argv[2:], pass_fds=server.fds(task), env=environment(task))
         for task in range(2 * here)]
watchers = [threading.Thread(target=follow, args=(task,)) for task in tasks]
for watcher in watchers:
    watcher.start()
for watcher in watchers:
    watcher.join()
server.close()
sys.exit(failed[0] if failed else 0)
