# SPDX-License-Identifier: Apache-2.0
"""A script starts its own ranks, which wait: the event own_ranks describes them."""
import pytest
from rendezvous import Rendezvous  # noqa: F401

SPAWN = """
import multiprocessing, os, time
def rank(i):
    time.sleep({seconds})
if __name__ == "__main__":
    context = multiprocessing.get_context("{method}")
    {outside}
    all = [context.Process(target=rank, args=(i,)) for i in range(2)]
    [one.start() for one in all]
    [one.join() for one in all]
"""
PORT = 'os.environ.update(MASTER_PORT="12355", WORLD_SIZE="2")'


def start(node, method, outside="pass", used=0, seconds=1000):
    script = node.box.write("train.py", SPAWN.format(method=method, outside=outside, seconds=seconds))
    return node.start(workers=1, options=["--own-ranks", "1000", "--store-is-used", used],
                      program=["python3", script])


@pytest.mark.parametrize("method, outside, theirs", [
    ("spawn", PORT, "WORLD_SIZE=2 MASTER_PORT=12355"), ("spawn", "pass", ""),
    ("fork", "pass", "")])
def test_processes_that_wait_as_ranks_are_told(node, method, outside, theirs):
    run = start(node, method, outside)
    (event,) = node.box.wait_event("own_ranks")
    (worker,) = node.worker_pids(1)
    assert (event["rank"], event["worker_pid"], event["theirs"]) == (0, worker, theirs)
    assert event["count"] == 2 and event["process_pid"] != worker, event
    run.signal(15)
    run.wait()


@pytest.mark.parametrize("used", [0, 1])
def test_a_store_that_is_used_and_a_plain_child_are_not_told(node, used):
    if used:
        run = start(node, "fork", PORT, used=1, seconds=3)
    else:
        run = node.start(workers=1, options=["--own-ranks", "1000"],
                         program=["sh", "-c", "sleep 3; true"])
    assert run.wait() == 0 and not node.box.events("own_ranks"), run
