# SPDX-License-Identifier: Apache-2.0
"""The daemon by itself: runs meet there, told apart by their id, and it goes when it is told."""
import json
import re
import signal
import urllib.request

import ctrun


def start(box):
    daemon = box.start(ctrun.program("ctrund"), "--listen=127.0.0.1:0")
    found = ctrun.wait_until(lambda: re.search(r"^listening on (127.0.0.1:\d+)$", daemon.out, re.M),
                             lambda: f"the port is told\n{daemon}")
    return daemon, found.group(1)


def agent(box, endpoint, run_id, *command):
    return box.start_ctrun("--nnodes=2", f"--rdzv-endpoint={endpoint}", f"--rdzv-id={run_id}",
                           "--no-python", *command)


def test_two_runs_of_two_nodes_meet_at_one_daemon(box):
    daemon, endpoint = start(box)
    say = ["sh", "-c", "echo $TORCHELASTIC_RUN_ID $RANK of $WORLD_SIZE"]
    runs = {name: [agent(box, endpoint, name, *say) for _ in range(2)] for name in ("a", "b")}
    for name, agents in runs.items():
        assert [run.wait(30) for run in agents] == [0, 0], agents
        assert sorted(run.out for run in agents) == [f"{name} 0 of 2\n", f"{name} 1 of 2\n"]
    daemon.signal(signal.SIGTERM)
    assert daemon.wait(10) == 0, daemon


def test_status_is_json_and_names_the_run(box):
    daemon, endpoint = start(box)
    waiting = agent(box, endpoint, "lonely", "true")
    def status():
        with urllib.request.urlopen(f"http://{endpoint}/status", timeout=10) as answer:
            return json.load(answer)
    ctrun.wait_until(lambda: "lonely" in json.dumps(status()), "the run shows in the status")
    waiting.signal(signal.SIGTERM)
    waiting.wait(10)
    daemon.signal(signal.SIGTERM)
    assert daemon.wait(10) == 0, daemon


def test_a_second_daemon_on_the_port_is_refused(box):
    daemon, endpoint = start(box)
    second = box.run(ctrun.program("ctrund"), f"--listen={endpoint}")
    assert second.code == 77 and "E_PORT_BUSY" in second.err, second
    daemon.signal(signal.SIGINT)
    assert daemon.wait(10) == 0, daemon


def test_wrong_usage_is_told_in_one_line(box):
    run = box.run(ctrun.program("ctrund"), "--lisen=x")
    assert run.code == 2 and len(run.err.splitlines()) == 1 and "--lisen" in run.err, run
