# SPDX-License-Identifier: Apache-2.0
"""What programs read: summary.json and the events match their schemas."""
import json
import re
import signal

import ctrun
import launch
import pytest
import schema


def summary(box, folder="logs"):
    [path] = box.path(folder).glob("*/summary.json")
    found = json.loads(path.read_text())
    schema.check(found, "summary")
    assert not list(path.parent.glob("*.new"))  # it is written beside, and renamed
    return found


def check_events(box, *wanted):
    names = {event["event"] for event in box.events()}
    assert set(wanted) <= names
    for event in box.events():
        schema.check(event, "events")


def test_a_failure_is_told_to_programs_as_it_is_to_people(box):
    run = box.ctrun("--log-dir=logs", "--nproc-per-node=3", "--max-restarts=1", "--min-uptime=0",
                    "sh", "-c", "[ $RANK = 1 ] || exec sleep 60; echo why >&2; exit 3")
    assert run.code == 3
    told = summary(box)
    assert (told["outcome"], told["error"], told["exit_code"]) == ("failed", "E_EXIT", 3)
    assert (told["restart_count"], told["max_restarts"], told["generation"]) == (1, 1, 2)
    root = told["failures"][0]
    assert (root["cause"], root["code"], root["rank"], root["text"]) == ("exit", 3, 1, "why")
    assert sorted((f["cause"], f["rank"]) for f in told["failures"][1:]) == [
        ("stopped", 0), ("stopped", 2)]
    check_events(box, "worker_started", "worker_ended", "round_started", "round_stopped", "verdict",
                 "round_changed", "agent_state", "link_state", "guard_ended")


def test_each_try_of_a_restarted_run_has_its_failure(box):
    run = box.ctrun("--log-dir=logs", "--nproc-per-node=2", "--max-restarts=4", "--min-uptime=0", "sh", "-c",
                    "[ $RANK = 1 ] || exec sleep 60; case $TORCHELASTIC_RESTART_COUNT in 0) exit 17;;"
                    "1) kill -TERM $$$$;; 2) echo 'ValueError: boom' >&2; exit 1;; 3) exit 18;; esac; exit 19")
    assert run.code == 19
    told = summary(box)
    assert [(f["cause"], f["code"], f["rank"], f["restart_count"]) for f in told["earlier_failures"]] == [
        ("exit", 17, 1, 0), ("signal", 15, 1, 1), ("exit", 1, 1, 2), ("exit", 18, 1, 3)]
    assert (told["failures"][0]["code"], told["more_earlier"]) == (19, 0)
    earlier = re.findall(r"^  earlier    : (.*)$", run.err, re.M)  # the newest three, as they were printed then
    assert [re.sub(" on .*? ", " on HOST ", line, count=1) for line in earlier] == [
        "restart 2/4: rank 1 on HOST died of SIGTERM (15)", "restart 3/4: rank 1 on HOST exited with 1",
        "restart 4/4: rank 1 on HOST exited with 18"]
    later = box.run(ctrun.program("ctrunctl"), "why", box.path("logs"))
    assert re.findall(r"^  earlier    : (.*)$", later.out, re.M) == earlier, later


def test_a_run_that_succeeds_in_the_end_has_its_earlier_failures(box):
    run = box.ctrun("--log-dir=logs", "--max-restarts=20", "--min-uptime=0", "sh", "-c",
                    "[ $TORCHELASTIC_RESTART_COUNT = 18 ] || exit $((TORCHELASTIC_RESTART_COUNT + 20))")
    assert run.code == 0
    told = summary(box)
    assert (told["outcome"], told["failures"], told["more_earlier"]) == ("succeeded", [], 2)
    assert [f["code"] for f in told["earlier_failures"]] == list(range(22, 38))


def test_facts_and_crash_loops_are_told(box):
    run = box.ctrun("--log-dir=logs", "--max-restarts=5", "sh", "-c",
                    "ulimit -c 0; kill -SEGV $$$$")
    assert run.code == 139
    told = summary(box)
    assert (told["outcome"], told["error"]) == ("crash_loop", "E_CRASH_LOOP")
    assert told["failures"][0]["facts"][0]["label"] == "core"
    assert told["failures"][0]["exit_code"] == -11


def test_whose_exit_code_it_is_is_told(box):
    assert box.ctrun("--log-dir=logs", "sh", "-c", "exit 75").code == 75
    assert summary(box)["exit_code_from"] == "worker"


def test_with_classes_no_exit_code_is_a_workers(box):
    assert box.ctrun("--log-dir=logs", "--exit-code=class", "sh", "-c", "exit 75").code == 70
    assert (summary(box)["exit_code"], summary(box)["exit_code_from"]) == (70, "ctrun")


def test_success_is_told(box):
    assert box.ctrun("--log-dir=logs", "true").code == 0
    told = summary(box)
    assert (told["outcome"], told["error"], told["failures"]) == ("succeeded", None, [])


def test_earlier_starts_of_the_job_are_told_and_restarts_counted_anew(box):
    run = box.ctrun("--log-dir=logs", "--no-python", "sh", "-c", "test $TORCHELASTIC_RESTART_COUNT = 0",
                    env={"SLURM_JOB_ID": "41", "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "n1", "SLURM_STEP_TASKS_PER_NODE": "1",
                         "SLURM_NODEID": "0", "SLURM_LOCALID": "0", "SLURM_RESTART_COUNT": "2"})
    assert run.code == 0 and summary(box)["requeues"] == 2 and summary(box)["restart_count"] == 0, run


def slurm(requeues):
    return {"SLURM_JOB_ID": "41", "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "n1", "SLURM_STEP_TASKS_PER_NODE": "1",
            "SLURM_NODEID": "0", "SLURM_LOCALID": "0", "SLURM_RESTART_COUNT": str(requeues)}


@pytest.mark.parametrize("name", [[], ["--rdzv-id=a/b"]])
def test_restarts_are_summed_over_the_starts_of_a_requeued_job(box, name):
    def start(requeues, restarts):
        run = box.ctrun("--log-dir=logs", *name, "--max-restarts=9", "--min-uptime=0", "sh", "-c",
                        f"exit $((TORCHELASTIC_RESTART_COUNT < {restarts}))", env=slurm(requeues))
        assert run.code == 0, run
        told = [json.loads(path.read_text()) for path in box.path("logs").glob("*/summary.json")]
        return next((now["total_restarts"], now["unknown_starts"]) for now in told if now["requeues"] == requeues)
    assert start(0, 2) == (2, 0)
    assert start(1, 1) == (3, 0)
    assert start(3, 0) == (3, 1)  # the third start was killed
    box.ctrun("--log-dir=logs", *name, "true", env={**slurm(4), "SLURM_JOB_ID": "42"})  # another job
    assert start(5, 1) == (4, 2)
    run = box.start_ctrun("--log-dir=logs", *name, "sleep", "60", env=slurm(6))
    box.wait_workers(1)
    (status,) = json.loads(box.run(ctrun.program("ctrunctl"), "status", "--json").out)["runs"]
    assert (status["requeues"], status["total_restarts"], status["unknown_starts"]) == (6, 4, 2)
    assert "requeued 6 times, 4 restarts in all starts but 2, which are not known\n" in box.run(
        ctrun.program("ctrunctl"), "status").out
    run.signal(signal.SIGTERM)
    run.wait()


def test_a_signal_is_told(box):
    run = box.start_ctrun("--log-dir=logs", "sleep", "60")
    box.wait_workers(1)
    run.signal(signal.SIGTERM)
    assert run.wait() == 143
    told = summary(box)
    assert (told["outcome"], told["signal"], told["exit_code"]) == ("signal", 15, 143)
    check_events(box, "signal")


def test_a_node_that_meets_nobody_is_told(box):
    run = box.ctrun("--log-dir=logs", "--nnodes=2", "--rdzv-endpoint=127.0.0.1:0",
                    "--rdzv-conf=join_timeout=1", "true")
    assert run.code == 75, run
    told = summary(box)
    assert told["outcome"] in ("join_timeout", "error") and told["error"].startswith("E_")


@pytest.mark.parametrize("options", [[], ["--log-dir=/dev/null"]])
def test_without_a_log_directory_nothing_is_left_behind(box, options):
    before = set(box.dir.iterdir())
    assert box.ctrun(*options, "sh", "-c", "exit 3").code == 3
    left = {path.name for path in set(box.dir.iterdir()) - before} - {"events.ndjson", "ctl"}
    assert not left, left


def test_each_event_of_the_sources_is_in_the_schema_and_the_manual():
    told = set()
    for folder in ("agent", "launcher", "rendezvous", "worker_sdk"):
        for path in (ctrun.ROOT / folder).rglob("*.c"):
            told |= set(re.findall(r'ct_event_(?:begin\(&\w+, |emit\(\s*)"(\w+)"', path.read_text()))
    told |= {"round_started", "round_stopped", "straggler", "straggler_node"}  # one function for two of them
    described = set(schema.load("events")["definitions"])
    assert told == described, f"packaging/schema/events.schema.json: {told ^ described}"
    allowed = {entry["$ref"].rpartition("/")[2] for entry in schema.load("events")["oneOf"]}
    assert allowed == described, f"oneOf of packaging/schema/events.schema.json: {allowed ^ described}"
    manual = (ctrun.ROOT / "man" / "ctrun-events.7").read_text()
    missing = {name for name in told if f".It Sy {name}\n" not in manual}
    assert not missing, f"man/ctrun-events.7: {missing}"


def test_the_schemas_refuse_what_they_should():
    event = {"event": "signal", "version": 1, "time_ns": 1, "pid": 1, "signal": 15, "sender_pid": 0}
    assert not schema.complaints(event, schema.load("events"))
    for wrong in ({"version": 2}, {"event": "sigmal"}, {"pid": "1"}, {"signal": None}):
        assert schema.complaints({**event, **wrong}, schema.load("events")), wrong


def test_the_plan_of_a_dry_run_has_a_schema_that_refuses_what_it_should(box):
    plan = launch.plan(box, "--nnodes=2:3", "--rdzv-endpoint=h", "--nproc-per-node=2", "true")
    assert plan["version"] == 1 and plan["workers"][1]["env"]["MASTER_ADDR"] is None
    for wrong in ({"version": 2}, {"backend": "x"}, {"cores": True}, {"raises_core": 0},
                  {"workers": [{"local_rank": 0, "argv": []}]}):
        assert schema.complaints({**plan, **wrong}, schema.load("plan")), wrong
