# SPDX-License-Identifier: Apache-2.0
"""A worker that is started again alone: --role-restarts NAME=N."""
import json
import os
import signal
import sys

import pytest

import ctrun
import launch
import schema
from test_logs import ranks_of

# A zombie has an empty command line. Start number N ends with word N: "1 0" fails once and then
# succeeds.
SERVER = r"""#!/bin/sh
n=$CTRUN_ROLE_RESTART_COUNT
echo "start $n rank $RANK/$WORLD_SIZE $ROLE_NAME$ROLE_RANK job $TORCHELASTIC_RESTART_COUNT"
echo "$TORCHELASTIC_ERROR_FILE" >> error_files
[ -z "$CHILD" ] || [ "$n" != 0 ] || { sleep 1000 & echo $! > child; }
[ -z "$CHILD" ] || [ "$n" != 1 ] || { grep -q . "/proc/$(cat child)/cmdline" 2> /dev/null && touch child_lives; }
shift "$n"
[ "$1" != stay ] || { touch stays; exec sleep 1000; }
[ "$1" != 0 ] || touch done
exit "$1"
"""
WAIT = "sh -c 'until [ -e done ]; do sleep 0.05; done'"


@pytest.fixture
def server(box):
    return box.write("server", SERVER, mode=0o755)


def one_line(run, text):
    assert f"ctrun: {text}\n" in run.err, run


def starts(box, role):
    return len(box.events("worker_started", role=role))


def test_it_starts_again_alone_and_the_others_go_on(box, server):
    run = box.ctrun("--standalone", f"--log-dir={box.path('logs')}", "--redirects=3",
                    "--role", f"trainer=2:{WAIT}", "--role", f"data=1:{server} 5 6 0",
                    "--role-restarts=data=3")
    assert run.code == 0, run
    assert (starts(box, "trainer"), starts(box, "data")) == (2, 3)
    one_line(run, "restarting rank 2 (data0) alone, 1 of 3: exited with 5")
    one_line(run, "restarting rank 2 (data0) alone, 2 of 3: exited with 6")
    told = box.events("worker_restarting")
    assert [(e["rank"], e["role"], e["code"], e["count"], e["limit"]) for e in told] == [
        (2, "data", 5, 1, 3), (2, "data", 6, 2, 3)]
    assert len(box.events("round_started")) == 1
    for event in box.events():
        schema.check(event, "events")
    files = open(box.path("error_files"), encoding="utf-8").read().split()
    assert [os.path.basename(file) for file in files] == [
        "error.json", "error.restart_1.json", "error.restart_2.json"]
    logs = [path.read_text() for path in box.path("logs").rglob("2/stdout.log")]
    assert logs == ["".join(f"start {n} rank 2/3 data0 job 0\n" for n in range(3))]


def test_a_full_log_file_is_renamed_as_if_one_had_written_it(box):
    talk = box.write("talk", "#!/bin/sh\nhead -c 700 /dev/zero | tr '\\0' x; echo\n"
                     'exit $((2 - CTRUN_ROLE_RESTART_COUNT))\n', mode=0o755)
    run = box.ctrun("--standalone", f"--log-dir={box.path('logs')}", "--redirects=3",
                    "--log-max-size=1K", "--role", f"data=1:{talk}", "--role-restarts=data=2")
    assert run.code == 0, run
    sizes = {path.name: path.stat().st_size for path in box.path("logs").rglob("stdout.log*")}
    assert sum(sizes.values()) == 3 * 701 and len(sizes) > 1, sizes
    assert all(size <= 1024 + 701 for size in sizes.values()), sizes


def test_when_they_are_used_up_all_start_again_and_count_from_zero(box, server):
    run = box.ctrun("--standalone", "--max-restarts=1", "--role", "trainer=1:sleep 1000",
                    "--role", f"data=1:{server} 3 4", "--role-restarts=data=1")
    assert run.code == 4, run
    assert (starts(box, "trainer"), starts(box, "data")) == (2, 4)
    assert run.err.count("restarting rank 1 (data0) alone, 1 of 1: exited with 3\n") == 2
    one_line(run, "rank 1 (data0) exited with 4: --role-restarts=data=1 is used up in this round")
    assert [e["generation"] for e in box.events("worker_restarting")] == [1, 2]
    assert "  role       : data, rank 0 of 1\n" in run.err


def test_all_workers_of_a_role_share_its_restarts(box, server):
    run = box.ctrun("--standalone", "--role", f"data=2:{server} 3 stay", "--role-restarts=data=1")
    assert run.code == 3, run
    assert len(box.events("worker_restarting")) == 1


def test_a_role_without_restarts_fails_as_ever(box, server):
    run = box.ctrun("--standalone", "--role", f"data=1:{server} stay",
                    "--role", "trainer=1:sh -c 'until [ -e stays ]; do sleep 0.05; done; exit 9'",
                    "--role-restarts=data=5")
    assert run.code == 9, run
    assert not box.events("worker_restarting")
    assert "CTRUN_ROLE_RESTART_COUNT" not in run.err


def test_two_equal_early_failures_are_enough_where_many_are_left(box, server):
    words = ("--standalone", "--role", "trainer=1:sleep 1000", "--role", f"data=1:{server} 3 3 3 3")
    run = box.ctrun(*words, "--role-restarts=data=4")
    assert run.code == 3, run
    assert len(box.events("worker_restarting")) == 1
    one_line(run, "rank 1 (data0) exited with 3 twice in the same way within 30 s of its start: not "
                  "restarted alone again (--min-uptime)")


def test_few_restarts_or_no_min_uptime_use_them_all(box, server):
    for words, count in ((("--role-restarts=data=3",), 3),
                         (("--role-restarts=data=4", "--min-uptime=0"), 4)):
        before = len(box.events("worker_restarting"))
        run = box.ctrun("--standalone", "--role", f"data=1:{server} 3 3 3 3 3", *words)
        assert run.code == 3, run
        assert len(box.events("worker_restarting")) - before == count


def test_its_children_are_dead_before_the_next_one_starts_and_no_other_s(box, server):
    trainer = box.write("trainer", "#!/bin/sh\nsleep 1000 & other=$!\n"
                        "until [ -e done ]; do sleep 0.05; done\n"
                        "kill -0 $other && touch other_lives; kill $other\n", mode=0o755)
    run = box.ctrun("--standalone", "--role", f"trainer=1:{trainer}",
                    "--role", f"data=1:{server} 1 0", "--role-restarts=data=1",
                    env={"CHILD": "1"})
    assert run.code == 0, run
    assert not box.path("child_lives").exists() and box.path("other_lives").exists()
    child = int(box.path("child").read_text())
    killed = box.events("orphans_killed")
    assert len(killed) == 1 and f"pid {child} (" in killed[0]["processes"], killed
    assert "killed processes that workers left" not in run.err


def test_who_has_left_its_session_is_found_by_its_parents(box):
    program = box.write("nest", "#!/bin/sh\n"
                        "[ $CTRUN_ROLE_RESTART_COUNT = 0 ] || "
                        "{ grep -q . /proc/$(cat deep)/cmdline && touch lives; exit 0; }\n"
                        "sh -c 'setsid sh -c \"echo \\$\\$ > deep; exec sleep 1000\" & wait' &\n"
                        "until [ -s deep ]; do sleep 0.05; done\nexit 1\n", mode=0o755)
    run = box.ctrun("--standalone", "--role", f"data=1:{program}", "--role-restarts=data=1")
    assert run.code == 0, run
    assert box.path("deep").exists() and not box.path("lives").exists()
    assert f"pid {int(box.path('deep').read_text())} (" in (
        box.events("orphans_killed")[0]["processes"])


def test_a_crash_is_told_and_its_worker_starts_again(box):
    program = box.write("crash", "#!/bin/sh\n[ $CTRUN_ROLE_RESTART_COUNT = 1 ] || kill -SEGV $$\n",
                        mode=0o755)
    run = box.ctrun("--standalone", "--role", f"data=1:{program}", "--role-restarts=data=1")
    assert run.code == 0, run
    one_line(run, "restarting rank 0 (data0) alone, 1 of 1: died of SIGSEGV (11)")


def test_one_that_cannot_be_started_again_is_everybody_s_failure(box):
    program = box.write("once", '#!/bin/sh\nrm "$0"\nexit 1\n', mode=0o755)
    run = box.ctrun("--standalone", "--role", "trainer=1:sleep 1000",
                    "--role", f"data=1:{program}", "--role-restarts=data=3")
    assert run.code == 127, run
    assert len(box.events("worker_restarting")) == 1
    assert box.events("worker_ended", cause="exec")


def test_nobody_is_started_again_while_the_run_is_stopped(box):
    program = box.write("stubborn", "#!/bin/sh\ntrap 'exit 7' TERM\ntouch here\n"
                        "while :; do sleep 0.05; done\n", mode=0o755)
    run = box.start_ctrun("--standalone", "--role", "trainer=1:sleep 1000",
                          "--role", f"data=1:{program}", "--role-restarts=data=3")
    ctrun.wait_until(box.path("here").exists, "the trap")
    run.signal(signal.SIGTERM)
    assert run.wait() == 128 + signal.SIGTERM
    assert starts(box, "data") == 1 and not box.events("worker_restarting")


def test_nobody_is_started_again_in_a_round_that_another_has_ended(box):
    program = box.write("stubborn", "#!/bin/sh\ntrap 'exit 7' TERM\ntouch here\n"
                        "while :; do sleep 0.05; done\n", mode=0o755)
    run = box.ctrun("--standalone", "--role", f"data=1:{program}", "--role-restarts=data=3",
                    "--role", "trainer=1:sh -c 'until [ -e here ]; do sleep 0.05; done; exit 9'")
    assert run.code == 9, run
    assert starts(box, "data") == 1 and not box.events("worker_restarting")


def test_steps_that_the_dead_one_has_told_are_not_the_next_one_s(box):
    program = box.write("steps.py", """import os, signal, socket, struct, sys
if os.environ["CTRUN_ROLE_RESTART_COUNT"] == "1":
    sys.exit(0)
def frame(kind, body):
    return b"\\xc7\\x52\\x01" + struct.pack("<BI", kind, len(body)) + body
agent = socket.socket(socket.AF_UNIX)
agent.connect(os.environ["CTRUN_AGENT_SOCKET"])
os.kill(os.getppid(), signal.SIGSTOP)
agent.sendall(frame(32, struct.pack("<iQ", 0, int(os.environ["CTRUN_GENERATION"])))
              + b"".join(frame(33, struct.pack("<Q", step)) for step in range(1000)))
os._exit(1)
""")
    run = box.start_ctrun("--standalone", "--role", f"data=1:{sys.executable} {program}",
                          "--role-restarts=data=1")
    [started] = box.wait_event("worker_started")
    dead = started["worker_pid"]
    ctrun.wait_until(lambda: not ctrun.is_alive(dead), "its end")
    os.kill(started["pid"], signal.SIGCONT)  # the agent now reads what the worker sent
    assert run.wait() == 0, run
    first, second = box.events("worker_ended")
    assert first["code"] == 1 and second["step"] == -1, (first, second)


def test_status_counts(box, server):
    run = box.start_ctrun("--standalone", "--role", "trainer=1:sleep 1000",
                          "--role", f"data=1:{server} 1 stay", "--role-restarts=data=2")
    box.wait_event("worker_started", count=2, role="data")
    ctl = ctrun.program("ctrunctl")
    lines = box.run(ctl, "status").out.splitlines()[-3:]
    at = lines[0].split().index("RESTARTS")
    assert [line.split()[at] for line in lines[1:]] == ["-", "1"], lines
    workers = json.loads(box.run(ctl, "status", "--json").out)["runs"][0]["workers"]
    assert [w.get("restarts") for w in workers] == [None, 1]
    assert [w["state"] for w in workers] == ["running", "running"]
    run.signal(signal.SIGTERM)
    run.wait()


def test_the_next_one_goes_on_reading_standard_input(box):
    program = box.write("read", "#!/bin/sh\nread line; echo \"$line\" >> lines\n"
                        "exit $((1 - CTRUN_ROLE_RESTART_COUNT))\n", mode=0o755)
    run = box.start_ctrun("--standalone", "--stdin=1", "--role", "trainer=1:true",
                          "--role", f"data=1:{program}", "--role-restarts=data=1",
                          stdin=open(box.write("input", "one\ntwo\n"), "rb"))
    assert run.wait() == 0, run
    assert box.path("lines").read_text() == "one\ntwo\n"


def test_its_lines_are_still_collapsed(box, server):
    run = box.ctrun("--standalone", "--collapse", "--tee=3", "--role", "a=2:echo same",
                    "--role", f"data=1:{server} 1 0", "--role-restarts=data=1")
    assert run.code == 0, run
    shown = [line.partition(":") for line in run.out.splitlines()]
    assert sorted((rank, text) for prefix, _, text in shown for rank in ranks_of(prefix)) == [
        (0, "same"), (1, "same"), (2, "start 0 rank 2/3 data0 job 0"), (2, "start 1 rank 2/3 data0 job 0")], run


def test_torchrun_s_events_tell_the_last_end(box, server):
    run = box.ctrun("--standalone", "--event-log-handler=console", "--role", "a=1:true",
                    "--role", f"data=1:{server} 1 0", "--role-restarts=data=1")
    states = [json.loads(line)["metadata"]["state"]
              for line in run.err.splitlines() if line.startswith("{")]
    assert run.code == 0 and states.count("START") == 3 and "FAILED" not in states, states


def test_on_one_of_several_nodes_and_no_other_hears_of_it(box, server):
    port = launch.free_port()
    words = (["--role", f"trainer=1:{WAIT}"],
             ["--role", f"trainer=1:{WAIT}", "--role", f"data=1:{server} 1 0",
              "--role-restarts=data=1"])
    runs = [box.start_ctrun("--nnodes=2", f"--node-rank={node}", f"--master-port={port}",
                            *words[node]) for node in range(2)]
    assert [run.wait() for run in runs] == [0, 0], runs
    assert "restarting" not in runs[0].err
    one_line(runs[1], "restarting rank 2 (data0) alone, 1 of 1: exited with 1")
    assert (starts(box, "trainer"), starts(box, "data")) == (2, 2)


@pytest.mark.parametrize("words, env", [
    (["--role-restarts=a=1", "--role-restarts", "b=2"], {}),
    (["--role-restarts=a=1,b=2"], {"CTRUN_ROLE_RESTARTS": "nosuch=1"}),
    ([], {"CTRUN_ROLE_RESTARTS": "b=2,a=1"}),
    (["--config=options"], {}),
])
def test_it_may_be_said_in_each_way(box, words, env):
    box.write("options", "role-restarts = a=1,b=2\n")
    plan = launch.plan(box, "--standalone", "--role", "a=1:true", "--role", "b=1:true",
                       "--role", "c=1:true", *words, env=env)
    counts = [worker["env"].get("CTRUN_ROLE_RESTART_COUNT") for worker in plan["workers"]]
    assert counts == ["0", "0", None]


def test_print_config_has_all_that_were_typed(box):
    run = box.ctrun("--standalone", "--print-config", "--role", "a=1:true", "--role", "b=1:true",
                    "--role-restarts=a=1", "--role-restarts=b=2")
    lines = [line for line in run.out.splitlines() if line.split()[:1] == ["role-restarts"]]
    assert len(lines) == 1 and "a=1,b=2" in lines[0].split(), run


def test_a_ctrun_below_a_worker_is_not_meant(box):
    run = box.ctrun("--standalone", "sh", "-c", 'echo "<$CTRUN_ROLE_RESTART_COUNT>"',
                    env={"CTRUN_ROLE_RESTARTS": "data=1", "CTRUN_ROLE_RESTART_COUNT": "1"})
    assert run.code == 0 and run.out == "<>\n", run


@pytest.mark.parametrize("words, text", [
    (["--role=a=1:x", "--role-restarts=b=1"],
     "--role-restarts=b=1: this node has no --role of that name"),
    (["--role=a=1:x", "--role-restarts=a"], "--role-restarts=a: is not NAME=N"),
    (["--role=a=1:x", "--role-restarts="], "--role-restarts=: is not NAME=N"),
    (["--role=a=1:x", "--role-restarts==1"], "--role-restarts==1: is not NAME=N"),
    (["--role=a=1:x", "--role-restarts=a=-1"], "--role-restarts=a=-1: N is 0 to 2147483647"),
    (["--role=a=1:x", "--role-restarts=a=1x"], "--role-restarts=a=1x: N is 0 to"),
    (["--role=a=1:x", "--role-restarts=a=1,a=2"], "--role-restarts=a=2: a is given twice"),
    (["--role=a=1:x", "--role-restarts=a=1", "--role-restarts=a=2"],
     "--role-restarts=a=2: a is given twice"),
    (["--role-restarts=a=1", "true"], "--role-restarts=a=1: is for roles that --role=NAME=N:"),
    (["--role=a=1:x", *["--role-restarts=a=1"] * 9], "--role-restarts: a node has at most 8"),
])
def test_what_makes_no_sense_is_refused_in_one_line(box, words, text):
    run = box.ctrun("--standalone", *words)
    assert run.code == 2, run
    assert text in run.err.splitlines()[0], run
