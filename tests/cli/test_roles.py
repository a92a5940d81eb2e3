# SPDX-License-Identifier: Apache-2.0
"""Several programs in one job: --role NAME=N:COMMAND."""
import json

import pytest

import ctrun
import launch
import schema
from test_logs import ranks_of

NAMES = ("RANK", "LOCAL_RANK", "ROLE_NAME", "ROLE_RANK", "ROLE_WORLD_SIZE", "WORLD_SIZE",
         "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE")


def places(dump):
    """{rank: the values of NAMES as one text}"""
    return {rank: " ".join(env[name] for name in NAMES)
            for rank, env in dump.environments().items()}


def test_roles_of_one_node_are_one_world_in_the_order_of_the_command_line(box, dump):
    run = box.ctrun("--standalone", "--role", f"trainer=2:{dump.program} 'a  b' \"c\" d\\ e",
                    "--role", f"data=1:{dump.program} ${{local_rank}}", env=dump.env)
    assert run.code == 0, run
    assert places(dump) == {0: "0 0 trainer 0 2 3 3 0 1", 1: "1 1 trainer 1 2 3 3 0 1",
                            2: "2 2 data 0 1 3 3 0 1"}
    assert dump.argv(0)[1:] == ["a  b", "c", "d e"]
    assert dump.argv(2)[1:] == ["2"]
    started = box.events("worker_started")
    assert [(e["rank"], e["role"], e["role_rank"]) for e in started] == [
        (0, "trainer", 0), (1, "trainer", 1), (2, "data", 0)]
    for event in box.events():
        schema.check(event, "events")


def test_role_ranks_count_over_all_nodes_whatever_their_roles(box, dump):
    port = launch.free_port()
    words = (["--role", f"a=2:{dump.program}", "--role", f"b=1:{dump.program}"],
             ["--role=c", dump.program],
             ["--role", f"b=2:{dump.program}", "--role", f"a=1:{dump.program}"])
    runs = [box.start_ctrun("--nnodes=3", f"--node-rank={node}", f"--master-port={port}",
                            *words[node], env=dump.env) for node in range(3)]
    assert [run.wait() for run in runs] == [0, 0, 0], runs
    assert places(dump) == {0: "0 0 a 0 3 7 3 0 3", 1: "1 1 a 1 3 7 3 0 3",
                            2: "2 2 b 0 3 7 3 0 3", 3: "3 0 c 0 1 7 1 1 3",
                            4: "4 0 b 1 3 7 3 2 3", 5: "5 1 b 2 3 7 3 2 3",
                            6: "6 2 a 2 3 7 3 2 3"}


def test_a_failure_names_the_role_and_starts_all_again(box):
    run = box.ctrun("--standalone", "--max-restarts=1", "--role", "good=1:sleep 60",
                    "--role", "bad=2:sh -c 'test $LOCAL_RANK = 1 && exec sleep 60; exit 3'")
    assert run.code == 3, run
    assert "  role       : bad, rank 1 of 2\n" in run.err
    assert "good+bad FAILED" in run.err
    assert len(box.events("worker_started", role="good")) == 2
    ended = box.events("worker_ended", cause="exit")
    assert [(e["role"], e["role_rank"], e["code"]) for e in ended] == [("bad", 1, 3)] * 2


def test_the_failing_role_is_named_by_its_node(box):
    port = launch.free_port()
    words = (["--role", "a=1:sleep 60", "--role", "b=1:sleep 60"],
             ["--role", "a=1:sleep 60", "--role", "b=1:sh -c 'exit 4'"])
    runs = [box.start_ctrun("--nnodes=2", f"--node-rank={node}", f"--master-port={port}",
                            *words[node]) for node in range(2)]
    assert [run.wait() for run in runs] == [4, 4], runs
    assert "role       : b, rank 1 of 2" in runs[1].err and "error[E_EXIT]: rank 3 (" in runs[0].err, runs


def test_a_rank_that_is_stuck_is_told_with_its_role(box):
    victim = ctrun.program("victim")
    run = box.ctrun("--standalone", "--hang-timeout=3", "--log-dir=logs", "--shutdown-timeout=2",
                    "--no-python", "--role", f"silent=1:{victim} hang",
                    "--role", f"slow=1:{victim} step 41 hang")
    assert run.code == 1 and "rank 1 (" in run.err and "is stuck" in run.err, run
    assert "  role       : slow, rank 0 of 1\n" in run.err


def test_a_prefix_counts_each_role_for_itself(box):
    run = box.ctrun("--standalone", "--tee=3", "--role", "trainer=2:echo hello",
                    "--role", "data=1:echo served")
    assert sorted(run.out.splitlines()) == ["[data0]:served", "[trainer0]:hello",
                                            "[trainer1]:hello"], run


def test_a_template_knows_all_names(box):
    run = box.ctrun("--standalone", "--tee=3", "--role", "a=1:echo x", "--role", "b=1:echo y",
                    "--log-line-prefix-template=${role_name} ${role_rank} ${rank} ${local_rank} ")
    assert sorted(run.out.splitlines()) == ["a 0 0 0 x", "b 0 1 1 y"], run


def test_equal_lines_of_several_roles_are_one(box):
    run = box.ctrun("--standalone", "--tee=3", "--collapse", "--role", "a=2:echo same",
                    "--role", "b=1:echo same")
    shown = [line.removesuffix("same") for line in run.out.splitlines()]  # a late line is printed alone
    assert sorted(rank for prefix in shown for rank in ranks_of(prefix)) == [0, 1, 2], run


def test_files_streams_and_input_count_by_local_rank(box):
    run = box.ctrun("--standalone", f"--log-dir={box.path('logs')}", "--redirects=1:3",
                    "--local-ranks-filter=1,2", "--role", "a=1:echo zero",
                    "--role", "b=2:sh -c 'echo $LOCAL_RANK'")
    assert run.out == "2\n", run
    files = [path.relative_to(box.path("logs")).parts[1:]
             for path in box.path("logs").rglob("stdout.log")]
    assert files == [("attempt_0", "1", "stdout.log")]


def test_status_has_a_column_for_the_role(box):
    box.start_ctrun("--standalone", "--role", "trainer=1:sleep 60", "--role", "data=1:sleep 60")
    box.wait_event("worker_started", count=2)
    ctl = ctrun.program("ctrunctl")
    lines = box.run(ctl, "status").out.splitlines()
    assert lines[-3].split()[:3] == ["ROLE", "RANK", "LOCAL"], lines
    assert [line.split()[:3] for line in lines[-2:]] == [["trainer", "0", "0"], ["data", "1", "1"]]
    workers = json.loads(box.run(ctl, "status", "--json").out)["runs"][0]["workers"]
    assert [(w["role"], w["role_rank"]) for w in workers] == [("trainer", 0), ("data", 0)]
    box.run(ctl, "stop")
    box.runs[0].signal(15)
    box.runs[0].wait()


def test_status_without_roles_has_no_such_column(box):
    run = box.start_ctrun("--standalone", "--role=x", "sleep", "60")
    box.wait_event("worker_started")
    assert "ROLE" not in box.run(ctrun.program("ctrunctl"), "status").out
    assert "role" not in box.events("worker_started")[0]
    run.signal(15)
    run.wait()


def test_a_dry_run_shows_the_roles(box):
    plan = launch.plan(box, "--standalone", "--role", "a=1:echo x", "--role", "b=2:true")
    schema.check(plan, "plan")
    assert plan["role"] == "a+b" and plan["nproc_per_node"] == 3
    assert [(w["role"], w["argv"], w["env"]["ROLE_RANK"], w["env"]["ROLE_WORLD_SIZE"])
            for w in plan["workers"]] == [("a", ["echo", "x"], "0", "1"), ("b", ["true"], "0", "2"),
                                          ("b", ["true"], "1", "2")]
    text = box.ctrun("--standalone", "--dry-run", "--role", "a=1:echo x", "--role", "b=1:true").out
    assert "worker 0 (a)\n    echo x\n" in text and "worker 1 (b)\n    true\n" in text


def test_torchrun_s_events_have_each_worker_s_role(box):
    run = box.ctrun("--standalone", "--event-log-handler=console", "--role", "a=1:sh -c 'exit 0'",
                    "--role", "b=1:true")
    events = [json.loads(line) for line in run.err.splitlines() if line.startswith("{")]
    started = [e["metadata"] for e in events if e["metadata"]["state"] == "START"]
    inner = [json.loads(m["metadata"]) for m in started]
    assert [(m["role"], i["role_rank"], i["role_world_size"], i["entry_point"])
            for m, i in zip(started, inner)] == [("a", [0], [1], "sh"), ("b", [0], [1], "true")]


@pytest.mark.parametrize("name", ["a=b", "a=:x", "=1:x", "a=1", "trainer=four:./train"])
def test_any_other_role_is_torchrun_s(box, name):
    run = box.ctrun("--standalone", f"--role={name}", "sh", "-c", 'echo "$ROLE_NAME"')
    assert run.out == name + "\n", run


def test_the_environment_names_a_role_and_no_program(box):
    run = box.ctrun("--standalone", "sh", "-c", 'echo "$ROLE_NAME"', env={"PET_ROLE": "a=1:x"})
    assert run.out == "a=1:x\n", run
    run = box.ctrun("--standalone", env={"PET_ROLE": "a=1:x"})
    assert run.code == 2 and "--role=a=1:x must be on the command line, not in PET_ROLE" in run.err, run


def test_without_several_roles_a_template_s_role_rank_stays_as_typed(box):
    run = box.ctrun("--standalone", "--tee=3", "--log-line-prefix-template=${role_rank} ", "echo",
                    "x")
    assert run.out == "${role_rank} x\n", run


@pytest.mark.parametrize("words, code, text", [
    (["--role=t=0:x"], 2, "--role=t=0:x: a role has 1 to 4096 workers on each node"),
    (["--role=t=1:"], 2, "--role=t=1:: no command after the ':'"),
    (["--role=t=1:x", "y"], 2, "y: each --role=NAME=N:COMMAND has its own program"),
    (["--role=t=1:x", "--role=t=1:z"], 2, "--role=t=1:z: t is given twice"),
    (["--role=t=1:x", "--role=y"], 2, "--role=y: another --role is NAME=N:COMMAND, so this one must be too"),
    (["--role=y", "--role=t=1:x"], 2, "--role=y: another --role is NAME=N:COMMAND, so this one must be too"),
    (["--role=t=four:x"], 2, "(the program to run); --role=t=four:x is not NAME=N:COMMAND"),
    (["--role=t=1:echo 'x"], 2, "--role=t: a ' is not closed"),
    (["--nproc-per-node=3", "--role=t=2:true"], 2, "--nproc-per-node=3: the roles have 2 workers"),
    ([f"--role=t{i}=1:x" for i in range(9)], 2, "--role: a node has at most 8 roles"),
    (["--role=t=4000:x", "--role=u=4000:x"], 2, "--role: 8000 workers on a node: at most 4096"),
    (["--role=t=1:./nosuch"], 127, "--role=t: ./nosuch: no such file"),
])
def test_bad_roles_are_refused_in_one_line(box, words, code, text):
    run = box.ctrun("--standalone", *words)
    assert run.code == code, run
    assert text in run.err.splitlines()[0], run


def test_print_config_tells_that_the_roles_make_the_number_of_workers(box):
    run = box.ctrun("--standalone", "--role=a=1:true", "--role=b=2:true", "--print-config", "--json")
    settings = json.loads(run.out)["settings"]
    assert settings["nproc-per-node"] == {"value": "3", "from": "--role"}, run
