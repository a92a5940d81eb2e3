# SPDX-License-Identifier: Apache-2.0
"""--event-log-handler=console: torchrun's events, field for field."""
import json

import launch

FIELDS = """run_id global_rank group_rank worker_id role hostname state total_run_time rdzv_backend
raw_error metadata agent_restarts duration_ms""".split()


def events_of(run):
    return [json.loads(line) for line in run.err.splitlines() if line.startswith("{")]


def states_of(run):
    return [event["metadata"]["state"] for event in events_of(run)]


def console(box, *words, **how):
    return box.ctrun("--event-log-handler=console", *words, **how)


def test_torchrun_122_events_of_a_run_that_succeeds(box):
    run = console(box, "--nproc-per-node=2", "--rdzv-id=J", "--role=r", "sh", "-c", "exit 0")
    assert run.code == 0, run
    events = events_of(run)
    assert states_of(run) == ["RENDEZVOUS", "ASSIGN_WORKER_RANKS", "START", "START", "SUCCEEDED",
                              "SUCCEEDED", "SUCCEEDED"]
    for event in events:
        data = event["metadata"]
        assert list(event) == ["name", "source", "timestamp", "metadata"]
        assert list(data) == FIELDS
        assert event["name"] == "torchelastic.worker.status." + data["state"]
        assert (data["run_id"], data["role"], data["rdzv_backend"]) == ("J", "r", "c10d")
        assert data["raw_error"] is None and data["agent_restarts"] == 0
    assert [event["source"] for event in events] == ["AGENT"] * 2 + ["WORKER"] * 4 + ["AGENT"]
    assert events[0]["metadata"]["duration_ms"] >= 0
    assert json.loads(events[0]["metadata"]["metadata"]) == {
        "group_world_size": None, "entry_point": "sh"}
    started = {e["metadata"]["global_rank"]: e["metadata"] for e in events[2:4]}
    assert json.loads(started[1]["metadata"]) == {
        "group_world_size": 1, "entry_point": "sh", "local_rank": [1], "role_rank": [1],
        "role_world_size": [2], "exit_code": [None], "worker_pid": [None]}
    pids = {str(event["worker_pid"]) for event in box.events("worker_started")}
    assert {data["worker_id"] for data in started.values()} == pids


def test_torchrun_122_events_of_a_failure_after_a_restart(box):
    run = console(box, "--nproc-per-node=2", "--max-restarts=1", "sh", "-c", "exit $((RANK * 3))")
    assert run.code == 3, run
    assert states_of(run).count("START") == 4
    assert [e["metadata"]["agent_restarts"] for e in events_of(run)
            if e["metadata"]["state"] in ("RENDEZVOUS", "ASSIGN_WORKER_RANKS")] == [0, 0, 1, 1]
    ends = {e["metadata"]["global_rank"]: e["metadata"] for e in events_of(run)[-3:-1]}
    failed = ends[1]
    assert failed["state"] == "FAILED" and failed["agent_restarts"] == 1
    assert json.loads(failed["raw_error"]) == {
        "message": "<NONE>", "errorTraits": {"category": "system_terminated_error",
                                             "retryability": "False"}}
    inner = json.loads(failed["metadata"])
    assert inner["exit_code"] == [3] and [str(inner["worker_pid"][0])] == [failed["worker_id"]]
    assert ends[0]["state"] in ("TERMINATED", "FAILED")  # ended well, or was stopped before
    assert states_of(run)[-1] == "SUCCEEDED"  # the run came to an end


def test_torchrun_122_the_error_file_of_a_worker_is_quoted(box):
    box.write("error.sh", """#!/bin/sh
echo '{"message": {"message": "boom", "extraInfo": {}}}' > "$TORCHELASTIC_ERROR_FILE"
kill -SEGV $$
""", 0o755)
    run = console(box, "./error.sh")
    data = events_of(run)[-2]["metadata"]
    assert json.loads(data["raw_error"]) == {"message": {"message": "boom", "extraInfo": {}}}
    assert json.loads(data["metadata"])["exit_code"] == [-11]


def test_torchrun_122_a_signal_is_a_failure_of_the_agent(box):
    run = box.start_ctrun("--event-log-handler=console", "sleep", "60")
    box.wait_event("worker_started")
    run.signal(15)
    assert run.wait() == 143
    last = events_of(run)[-1]
    assert (last["source"], last["metadata"]["state"]) == ("AGENT", "FAILED")
    assert "SignalException" in last["metadata"]["raw_error"]


def test_torchrun_122_a_rendezvous_that_fails_too(box):
    run = console(box, "--nnodes=2", f"--rdzv-endpoint=localhost:{launch.free_port()}",
                  "--rdzv-conf=join_timeout=1", "true")
    assert run.code == 75, run
    assert states_of(run) == ["FAILED"]
    assert events_of(run)[0]["metadata"]["group_rank"] is None


def test_torchrun_122_nothing_is_printed_unless_asked_for_and_others_are_refused(box):
    for handler in ("null", "dynamic_rendezvous"):
        run = box.ctrun(f"--event-log-handler={handler}", "true")
        assert run.code == 0 and run.err == "", run
    run = box.ctrun("--event-log-handler=scuba", "true")
    assert run.code == 2 and "console prints torchrun's events" in run.err
