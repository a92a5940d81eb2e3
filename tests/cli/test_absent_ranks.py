# SPDX-License-Identifier: Apache-2.0
"""A rank that never connects to the worker store is named after 10 s. The details are in
tests/proc/test_absent.py."""
import json

import ctrun
import schema
from test_bill import COUNT_IN

# Rank 3, on the second node, never comes to init_process_group().
TRAIN = COUNT_IN.replace("store =", "import signal\nif os.environ['RANK'] == '3':\n    signal.pause()\nstore =") \
    + "signal.pause()\n"


def test_of_two_nodes_the_first_names_the_rank_and_its_node(box):
    script = box.write("train.py", TRAIN)
    port = ctrun.free_port()
    runs = [box.start_ctrun("--nnodes=2", "--nproc-per-node=2", f"--node-rank={node}", "--master-addr=127.0.0.1",
                            f"--master-port={port}", script) for node in (0, 1)]
    ctrun.wait_until(lambda: "not yet" in runs[0].err, lambda: f"a rank is named\n{runs[0]}", 60)
    [event] = box.events("ranks_absent")
    schema.check(event, "events")
    assert (event["connected"], event["world_size"]) == (3, 4) and event["ranks"].startswith("rank 3 ("), event
    [line] = [line for line in runs[0].err.splitlines() if "not yet" in line]
    assert line == ("ctrun: 3 of 4 ranks have connected to the worker store, and no other in the last 10 s; not yet: "
                    + event["ranks"]), runs[0]
    assert "not yet" not in runs[1].err, runs[1]
    shown = box.run(ctrun.program("ctrunctl"), "status").out
    assert f"  3 of 4 ranks have connected to the worker store; not yet: {event['ranks']}\n" in shown, shown
    statuses = json.loads(box.run(ctrun.program("ctrunctl"), "status", "--json").out)["runs"]
    assert [one["absent"] for one in statuses if "absent" in one] == [
        {"connected": 3, "world_size": 4, "ranks": event["ranks"]}], statuses
    ctrun.stop(*runs)
