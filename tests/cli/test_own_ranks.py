# SPDX-License-Identifier: Apache-2.0
"""Programs that start their own ranks, and wait: ctrun names them after 10 s. The details are in
tests/proc/test_own_ranks.py."""
import signal

import ctrun

# As `accelerate launch train.py`: a launcher that ignores ctrun, and gives its ranks another port.
ACCELERATE = """#!/usr/bin/env python3
import os, subprocess, sys
assert sys.argv[1] == "launch"
ranks = [subprocess.Popen([sys.executable, *sys.argv[2:]],
                          env={**os.environ, "RANK": str(i), "WORLD_SIZE": "2", "MASTER_PORT": "29511"})
         for i in range(2)]
sys.exit(max(rank.wait() for rank in ranks))
"""
TRAIN = "import signal; signal.pause()\n"


def test_a_launcher_that_ctrun_starts_is_named_with_its_ranks(box):
    box.write("accelerate", ACCELERATE, 0o755)
    run = box.start_ctrun("./accelerate", "launch", box.write("train.py", TRAIN))
    ctrun.wait_until(lambda: "has had no request" in run.err, lambda: f"its ranks are told\n{run}", 40)
    [line] = [line for line in run.err.splitlines() if "has had no request" in line]
    assert line.startswith("ctrun: warning: the worker store has had no request for 10 s, and rank 0 has started "
                           "2 processes of its own"), run
    assert "WORLD_SIZE=2 MASTER_PORT=29511; ctrun gave its worker WORLD_SIZE=1 MASTER_PORT=" in line, run
    assert "let ctrun start them (--nproc-per-node=2" in line, run
    run.signal(signal.SIGTERM)
    assert run.wait(40) == 143, run
