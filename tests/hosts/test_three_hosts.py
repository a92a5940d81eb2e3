# SPDX-License-Identifier: Apache-2.0
"""T04: a rank on the second of three hosts fails, one on the first has ended before, and the others
ignore SIGTERM: every host prints the same, and all have ended after the grace time."""
import ctrun

WORKER = r"""#!/bin/sh
# Rank 2 has ended a second ago: between two hosts the order of what happens in the same moment is not certain.
ended() {
    at=$(sed -n 's/.*"worker_ended".*"time_ns":\([0-9]*\),.*"rank":2,.*/\1/p' "$CTRUN_EVENTS")
    [ -n "$at" ] && [ $(($(date +%s%N) - at)) -gt 1000000000 ]
}
all_started() { [ "$(grep -c '"worker_started"' "$CTRUN_EVENTS")" = 12 ]; }
case $RANK in
2) exit 0;;
5) until ended && all_started; do sleep 0.05; done; echo out of luck >&2; exit 7;;
*) trap '' TERM; while :; do sleep 600; done;;
esac
"""


def block(run):
    """The lines from ctrun's error to torchrun's block, which names the node's own files."""
    lines = run.err.splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith("ctrun: error["))
    end = next(i for i, line in enumerate(lines) if line.startswith("torch.distributed"))
    return lines[begin:end]


def test_t04_every_host_names_the_rank_that_failed_first(box, lab):
    hosts = lab(3)
    worker = box.write("worker.sh", WORKER, 0o755)
    runs = []
    for n in (1, 2, 3):
        runs.append(hosts.start(f"node{n}", ctrun.program("ctrun"), "--nproc-per-node=4",
                                "--nnodes=3", "--rdzv-endpoint=node1:29400", "--rdzv-id=t04",
                                "--shutdown-timeout=2", "--no-python", worker))
        box.wait_event("agent_state", n, to="joining")  # the order of the ranks
    box.wait_event("worker_ended", rank=5)
    assert [run.wait(20) for run in runs] == [7, 7, 7], runs
    box.wait_gone()
    first = block(runs[1])
    for run in (runs[0], runs[2]):
        assert "\n".join(first).startswith(run.err[run.err.index("ctrun: error["):].strip()), run
    assert "rank 5 (node2, pid " in first[0] and "exited with 7" in first[0]
    assert "  root cause : rank 5 on node2 exited with 7" in first
    assert "  last lines : out of luck" in first
    assert "  before it  : rank 2 had ended with 0" in first
    assert "  after it   : ranks 0-1, 3-4, 6-11 stopped by ctrun" in first
