# SPDX-License-Identifier: Apache-2.0
"""Batch jobs of a lab's Slurm: the examples' scripts, what they print, and their end."""
import ctrun

EXAMPLES = ctrun.ROOT / "examples" / "slurm"
# More steps than a job can make before the test ends it.
LONG = ("--epochs=100000", "--global-batch=32", "--save-steps=5", "--log-interval=1", "--threads=1")


def sbatch(box, cluster, script, *words):
    """Queues a job; returns its number."""
    run = cluster.start("login1", "sbatch", "--parsable", "-D", box.dir, "-o", box.path("out"),
                        *words[:words.index("--")], script, *words[words.index("--") + 1:])
    assert run.wait(60) == 0, run
    return run.out.split(";")[0].strip()


def text(box):
    path = box.path("out")
    return path.read_text(errors="replace") if path.exists() else ""


def steps(box, after=""):
    """(epoch, step of the epoch) of each step that was printed after the text `after`."""
    printed = text(box).partition(after)[2] if after else text(box)
    return [(line["epoch"], line["step"]) for line in ctrun.json_lines(printed)
            if "step" in line and "loss" in line]


def wait_job_gone(box, cluster, job):
    def gone():
        run = cluster.start("login1", "squeue", "-h", "-j", job)
        run.wait(60)
        return not run.out.strip()

    ctrun.wait_until(gone, lambda: f"job {job} ended\n{text(box)}", 60)


def wait_steps(box, after=""):
    return ctrun.wait_until(lambda: steps(box, after), lambda: f"a step after '{after}'\n{text(box)}", 60)
