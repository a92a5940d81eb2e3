# SPDX-License-Identifier: Apache-2.0
"""ctrunctl with a live run: what it prints, what it does, and for which users."""
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import urllib.request

import ctrun
import launch
import pytest
import schema
from clock import Clock

LOOP = """#!/bin/sh
for name in USR1 TERM; do trap "echo $RANK got $name; [ $name = TERM ] && exit 0" $name; done
echo hello $RANK attempt $TORCHELASTIC_RESTART_COUNT
echo up > up.$RANK.$TORCHELASTIC_RESTART_COUNT
while :; do sleep 0.05; done
"""


def ctl(box, *words, **how):
    return box.run(ctrun.program("ctrunctl"), *words, **how)


@contextlib.contextmanager
def answering(listener, answer):
    """One request to the listener gets these bytes; then the connection ends."""
    def serve():
        listener.settimeout(60)
        client = listener.accept()[0]
        with client:
            client.recv(1000)
            client.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    yield
    thread.join()


def wait_up(box, run, attempt=0):
    paths = [box.path(f"up.{rank}.{attempt}") for rank in (0, 1)]
    ctrun.wait_until(lambda: all(path.exists() for path in paths), lambda: f"up\n{run}")


def start(box, *options):
    box.write("loop.sh", LOOP, 0o755)
    run = box.start_ctrun("--nproc-per-node=2", "--rdzv-id=j1", "--max-restarts=2", *options,
                          "loop.sh")
    wait_up(box, run)
    box.wait_event("worker_started", 2)  # workers may run before the agent writes it
    return run


def stop(box, run):
    assert ctl(box, "stop").code == 0
    assert run.wait() == 128 + signal.SIGTERM


def test_status_tells_the_run_and_its_workers(box):
    run = start(box, "-r3", "--log-dir=D")
    answer = ctl(box, "status", "--json")
    assert answer.code == 0, answer
    (status,) = json.loads(answer.out)["runs"]
    assert {key: status[key] for key in ("run_id", "state", "generation", "restart_count",
                                         "max_restarts", "world_size", "nodes", "guard_pid")} == {
        "run_id": "j1", "state": "running", "generation": 1, "restart_count": 0,
        "max_restarts": 2, "world_size": 2, "nodes": 1, "guard_pid": run.pid}
    started = {event["rank"]: event["worker_pid"] for event in box.events("worker_started")}
    assert {w["rank"]: w["pid"] for w in status["workers"]} == started
    for worker in status["workers"]:
        assert worker["state"] == "running" and worker["rss_kb"] > 0
        assert os.path.samefile(worker["stdout"], next(
            box.path("D").glob(f"*/attempt_0/{worker['local_rank']}/stdout.log")))
    text = ctl(box, "status", f"--run={run.pid}").out
    assert text.startswith("run j1: running") and str(started[1]) in text
    stop(box, run)


def test_status_counts_the_children_of_a_worker_and_their_memory(box):
    """As the workers of a DataLoader."""
    run = box.start_ctrun("--nproc-per-node=2", "sh", "-c",
                          "[ $RANK = 1 ] || { sleep 600 & sleep 600 & }; touch up.$RANK; wait; exec sleep 600")
    ctrun.wait_until(lambda: {"up.0", "up.1"} <= set(os.listdir(box.dir)), "both workers are there")
    workers = ctrun.wait_until(lambda: [w for w in json.loads(ctl(box, "status", "--json").out)["runs"][0]["workers"]
                                        if w["children"] == 2 and w["children_rss_kb"] > 0], lambda: ctl(box, "status"))
    assert [worker["rank"] for worker in workers] == [0]
    lines = ctl(box, "status").out.splitlines()
    assert re.search(r" MEMORY +CHILDREN  FILES$", lines[-3]), lines
    assert re.search(r" 2, [\d.]+ MiB +$", lines[-2]) and re.search(r"MiB +$", lines[-1]), lines
    assert len({line.rindex("MiB") for line in lines[-2:]}) == 2 and len(lines[-2]) == len(lines[-1]), lines
    stop(box, run)


def test_a_run_is_named_by_the_id_that_it_was_given(box):
    """Control characters are replaced: "j\\r" comes from a file of Windows."""
    run = start(box, "--rdzv-id=j\r")
    for name in ("j\r", "j?"):
        assert ctl(box, "status", f"--run={name}").out.startswith("run j?: running"), run
    stop(box, run)


def test_status_tells_that_enough_nodes_are_here_and_more_are_waited_for(box):
    run = box.start_ctrun("--nnodes=1:2", "--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{ctrun.free_port()}",
                          "--rdzv-conf=last_call_timeout=500", "true")
    line = r"\n  enough nodes have joined \(1 of at most 2\); the start waits up to [45]\d\d s for more\n$"
    ctrun.wait_until(lambda: re.search(line, ctl(box, "status").out), lambda: f"{ctl(box, 'status')}\n{run}")
    none = ctl(box, "logs")
    assert none.code == 1 and "has no worker on this node now; ctrunctl status shows what it waits for" in none.err, none
    run.signal(signal.SIGTERM)
    run.wait()


@pytest.mark.parametrize("words", [[], ["--standalone"]])
def test_status_shows_where_the_metrics_are(box, words):
    run = box.start_ctrun(*words, ctrun.program("victim"), "hang")
    box.wait_workers(1)
    (status,) = json.loads(ctl(box, "status", "--json").out)["runs"]
    url = f"http://{status['rendezvous']}/metrics"
    assert f"  rendezvous {status['rendezvous']}: metrics at {url}\n" in ctl(box, "status").out
    with urllib.request.urlopen(url, timeout=20) as answer:
        assert "ctrund_info" in answer.read().decode()
    stop(box, run)


def test_a_signal_reaches_one_rank_or_all(box):
    run = start(box)
    assert ctl(box, "signal", "USR1", "--rank", "1").code == 0
    ctrun.wait_until(lambda: "1 got USR1" in run.out, lambda: f"signal\n{run}")
    assert "0 got USR1" not in run.out
    assert ctl(box, "signal", "SIGUSR1").code == 0
    ctrun.wait_until(lambda: "0 got USR1" in run.out, lambda: f"signal\n{run}")
    wrong = ctl(box, "signal", "USR1", "--rank=7")
    assert wrong.code == 1 and "rank 7 does not run on this node, which has ranks 0-1" in wrong.err
    assert ctl(box, "signal", "BOGUS").code == 2
    stop(box, run)


def test_status_tells_a_worker_that_ctrun_stopped_from_one_that_failed(box):
    run = box.start_ctrun("--nproc-per-node=3", "--shutdown-timeout=600", ctrun.program("victim"), "@0", "await", "go", "exit", "3",
                          "@1", "ignore", "TERM", "touch", "up", "hang", "@2", "hang")
    ctrun.wait_until(box.path("up").exists, lambda: f"up\n{run}")
    box.write("go", "")
    box.wait_event("worker_ended", count=2)  # ranks 0 and 2
    (status,) = json.loads(ctl(box, "status", "--json").out)["runs"]
    assert [(worker["state"], worker["cause"], worker["code"]) for worker in status["workers"]] == [
        ("failed", "exit", 3), ("stopping", "none", 0), ("stopped", "stopped", signal.SIGTERM)], status
    text = ctl(box, "status").out
    assert "exit 3" in text and "stopping" in text and f"stopped {signal.SIGTERM:d}" in text, text
    os.kill(status["workers"][1]["pid"], signal.SIGKILL)
    assert run.wait() == 3, run


def test_a_signal_that_workers_would_die_of_is_refused_and_forced(box):
    """One worker has a handler, the other has none."""
    box.write("w.py", "import os, signal, time\n"
              "if os.environ['RANK'] == '0':\n"
              "    signal.signal(signal.SIGUSR1, lambda *_: print('got it', flush=True))\n"
              "open('up.%s.0' % os.environ['RANK'], 'w').close()\n"
              "while True: time.sleep(0.05)\n")
    run = box.start_ctrun("--nproc-per-node=2", "w.py")
    wait_up(box, run)
    refused = ctl(box, "signal", "USR1")
    assert refused.code == 2 and "rank 1 (pid" in refused.err and "--force" in refused.err, refused
    assert "rank 0" not in refused.err, refused
    assert "signal 40 was not sent: it would end rank 0 (pid" in ctl(box, "signal", "40").err
    assert ctl(box, "signal", "USR1", "--rank=1").code == 2
    assert ctl(box, "signal", "USR1", "--rank=0").code == 0
    ctrun.wait_until(lambda: "got it" in run.out, lambda: f"the handler\n{run}")
    assert not box.events("worker_ended"), run
    assert len(box.events("control_request")) == 1  # the refused ones emit none
    assert ctl(box, "signal", "USR1", "--rank=1", "--force").code == 0
    assert run.wait(30) == 128 + signal.SIGUSR1, run


def test_a_rank_that_has_ended_gets_no_signal(box):
    run = box.start_ctrun("--nproc-per-node=2", "--no-python", "sh", "-c", "[ $$RANK = 0 ] || sleep 60")
    box.wait_event("worker_ended")
    ended = ctl(box, "signal", "USR1", "--rank=0")
    assert ended.code == 1 and "rank 0 got no signal: it is not running" in ended.err, ended
    stop(box, run)


def test_a_signal_reaches_workers_that_are_being_stopped(box):
    run = box.start_ctrun("--nproc-per-node=2", "--shutdown-timeout=600", "--no-python", "sh", "-c",
                          "trap 'echo saves' TERM; trap 'echo got it; exit' USR1; echo up; while :; do sleep 0.05; done")
    ctrun.wait_until(lambda: run.out.count("up") == 2, lambda: f"up\n{run}")
    run.signal(signal.SIGTERM)
    ctrun.wait_until(lambda: run.out.count("saves") == 2, lambda: f"saves\n{run}")
    sent = ctl(box, "signal", "USR1")
    assert sent.code == 0, sent
    assert run.wait() == 128 + signal.SIGTERM and run.out.count("got it") == 2, run


def test_usr1_reaches_the_workers_of_all_nodes_and_others_those_of_one(box):
    box.write("loop.sh", LOOP, 0o755)
    words = ["--nnodes=2", f"--rdzv-endpoint=127.0.0.1:{launch.free_port()}", "--rdzv-id=j1",
             "./loop.sh"]
    runs = [box.start_ctrun(*words), box.start_ctrun(*words)]
    wait_up(box, runs)
    assert ctl(box, "signal", "USR1", f"--run={runs[0].pid}").code == 0
    ctrun.wait_until(lambda: all("got USR1" in run.out for run in runs), lambda: str(runs))
    assert ctl(box, "signal", "TERM", f"--run={runs[0].pid}").code == 0
    box.wait_event("worker_ended")
    assert "got TERM" in runs[0].out and "got TERM" not in runs[1].out, runs
    assert ctl(box, "signal", "TERM", f"--run={runs[1].pid}").code == 0
    assert [run.wait() for run in runs] == [0, 0]
    assert all(run.out.count("USR1") == 1 for run in runs), runs


def test_stop_ends_the_run_as_sigterm_does(box):
    run = start(box, "--log-dir=D")
    assert ctl(box, "stop", "--reason", "maintenance at 8").code == 0
    assert run.wait() == 128 + signal.SIGTERM
    assert "stopped as asked: maintenance at 8; all workers are gone" in run.err, run
    assert sorted(line for line in run.out.splitlines() if "got" in line) == [
        "0 got TERM", "1 got TERM"]
    assert box.events("control_request", verb="stop", reason="maintenance at 8")
    assert ctl(box, "why", "D").out == "run j1: ended by SIGTERM (15): maintenance at 8\n"
    assert os.listdir(box.path("ctl")) == []


def test_who_sent_the_signal_and_who_was_killed_is_kept(box):
    """Rank 1 ignores the signal; rank 0 ends by itself."""
    run = box.start_ctrun("--nproc-per-node=2", "--rdzv-id=j1", "--log-dir=D", "--shutdown-timeout=1", "--no-python", "sh", "-c",
                          "[ $RANK = 1 ] && trap '' TERM || trap exit TERM; echo up; while :; do sleep 0.05; done")
    ctrun.wait_until(lambda: run.out.count("up") == 2, lambda: f"up\n{run}")
    run.signal(signal.SIGTERM)
    assert run.wait() == 128 + signal.SIGTERM
    killed = "rank 1 was killed before it had ended: its checkpoint may be incomplete"
    assert f"ctrun: warning: {killed}\n" in run.err, run
    sender = re.search(r"SIGTERM from pid \d+ \(\S+\)", run.err).group()
    assert ctl(box, "why", "D").out == f"run j1: ended by SIGTERM (15): {sender}; {killed}\n"
    end = json.loads(next(box.path("D").glob("*/summary.json")).read_text())
    assert end["message"] == f"{sender}; {killed}"
    schema.check(end, "summary")


def test_several_ranks_that_were_killed_are_one_line(box):
    run = box.start_ctrun("--nproc-per-node=18", "--shutdown-timeout=1", "--no-python", "sh", "-c",
                          "[ $RANK = 3 ] || trap '' TERM; echo up; while :; do sleep 1; done")
    ctrun.wait_until(lambda: run.out.count("up") == 18, lambda: f"up\n{run}", 30)
    run.signal(signal.SIGTERM)
    assert run.wait() == 128 + signal.SIGTERM
    assert run.err.count(" killed before ") == 1, run
    assert "ctrun: warning: ranks 0-2, 4-16 and 1 more were killed before they had ended: their checkpoint may be " \
        "incomplete\n" in run.err, run


def test_a_stop_of_the_servers_node_stops_all_nodes_as_asked(box):
    """The run cannot continue without its server. The other node may still save when the server's node has ended."""
    loop = "touch up.$RANK.0; while :; do sleep 0.05; done"
    words = ["--nnodes=2", f"--rdzv-endpoint=127.0.0.1:{ctrun.free_port()}", "--rdzv-id=j1"]
    host = box.start_ctrun(*words, "sh", "-c", loop)
    box.wait_event("agent_state", to="joining")
    other = box.start_ctrun(*words, "--log-dir=D", "--rdzv-conf=is_host=0", "sh", "-c",
                            f"trap 'until [ -e end ]; do sleep 0.05; done; touch saved; exit 0' TERM; {loop}")
    wait_up(box, other)
    agent = box.wait_event("worker_started", rank=0)[0]["pid"]
    assert ctl(box, "stop", f"--run={agent}", "--reason=a fan is loud").code == 0
    assert host.wait() == 143
    box.write("end", "")
    assert other.wait() == 143 and box.path("saved").exists(), other
    for run in (host, other):
        assert "stopped as asked: a fan is loud; all workers are gone" in run.err and "E_LEADER_LOST" not in run.err, run
    assert ctl(box, "why", "D").out == "run j1: ended by SIGTERM (15): a fan is loud\n"


def test_status_without_a_run_is_an_empty_list(box):
    answer = ctl(box, "status", "--json")
    assert answer.code == 1 and "no run of uid" in answer.err, answer
    assert json.loads(answer.out) == {"runs": []}


def test_a_machine_of_slurm_says_how_to_reach_the_run_of_a_job(box):
    asked = [ctrun.program("ctrunctl"), "status"]
    env = {"CTRUN_CONTROL_DIR": str(box.path("control")), "PATH": str(box.path("bin"))}
    way = "srun --jobid=JOB --overlap -N1 -n1 -w NODE ctrunctl"
    assert way not in box.run(*asked, env=env).err
    assert way in box.run(*asked, env={**env, "SLURM_JOB_ID": "7"}).err
    box.path("bin").mkdir()
    box.write("bin/srun", "#!/bin/sh\n", 0o755)
    assert way in box.run(*asked, env=env).err


def test_why_without_a_run_says_how_to_ask_of_one_that_is_over(box):
    answer = ctl(box, "why")
    assert answer.code == 1 and answer.err.endswith("; for a run that is over: ctrunctl why FOLDER, with its --log-dir\n"), answer


def test_why_hang_of_a_run_that_is_over_is_refused(box):
    answer = ctl(box, "why", "--hang", box.dir)
    assert answer.code == 2 and "why --hang is of a live run" in answer.err, answer


def test_stop_lets_workers_of_the_sdk_leave_by_themselves(box):
    run = box.start_ctrun("--nproc-per-node=2", ctrun.program("victim"),
                          "step", "41", "stopped", "write", "saved", "exit", "0")
    ctrun.wait_until(lambda: '"step":41' in ctl(box, "status", "--json").out, lambda: str(run))
    assert ctl(box, "stop").code == 0
    assert run.wait() == 128 + signal.SIGTERM
    ended = box.events("worker_ended")
    assert [event["cause"] for event in ended] == ["none", "none"]
    assert run.out.count("saved") == 2


def test_logs_follow_a_run_through_a_restart(box):
    run = start(box, "-r1", "--log-dir=D")
    ctrun.wait_until(lambda: ctl(box, "logs", "--rank=1").out == "hello 1 attempt 0\n", "its line")
    follower = box.start(ctrun.program("ctrunctl"), "logs", "-f", "--json")
    ctrun.wait_until(lambda: "hello 1 attempt 0" in follower.out, lambda: str(follower))
    assert ctl(box, "signal", "KILL", "--rank", "0").code == 0
    wait_up(box, run, attempt=1)
    ctrun.wait_until(lambda: follower.out.count("attempt 1") == 2, lambda: str(follower))
    stop(box, run)
    assert follower.wait() == 0
    lines = [json.loads(line) for line in follower.out.splitlines()]
    assert {"rank": 0, "stream": "stdout", "line": "hello 0 attempt 1"} in lines
    assert {"rank": 1, "stream": "stdout", "line": "1 got TERM"} in lines


def test_logs_begin_with_the_last_lines(box):
    run = box.start_ctrun("-r1", "--log-dir=D", "sh", "-c", "seq 1 100; touch up; sleep 60")
    ctrun.wait_until(box.path("up").exists, "up")
    ctrun.wait_until(lambda: ctl(box, "logs", "--tail", "3").out == "98\n99\n100\n", "its lines")
    assert ctl(box, "logs", "-n0").out == ""
    assert ctl(box, "logs", "-n", "200").out == "".join(f"{i}\n" for i in range(1, 101))
    assert ctl(box, "logs", "-n", "x").code == 2
    stop(box, run)


def test_logs_as_json_have_the_whole_of_long_lines(box):
    """And what follows a zero byte."""
    run = box.start_ctrun("-r1", "--log-dir=D", "sh", "-c",
                          "printf '%09999d end\\na\\0b\\n'; touch up; sleep 60")
    ctrun.wait_until(box.path("up").exists, "up")
    ctrun.wait_until(lambda: ctl(box, "logs").out.endswith("b\n"), "its lines")
    lines = [json.loads(line)["line"] for line in ctl(box, "logs", "--json").out.splitlines()]
    assert lines == ["0" * 9999 + " end", "a?b"], lines
    stop(box, run)


def test_logs_follow_a_file_that_is_renamed_for_its_size(box):
    run = box.start_ctrun("-r1", "--log-dir=D", "--log-max-size=1K", "--log-keep=500",
                          ctrun.program("victim"), "write", "first\\n", "await", "go",
                          "flood", "40000", "write", "last\\n", "hang")
    box.wait_event("worker_started")
    follower = box.start(ctrun.program("ctrunctl"), "logs", "-f")
    ctrun.wait_until(lambda: follower.out == "first\n", lambda: str(follower))
    box.path("go").touch()
    ctrun.wait_until(lambda: follower.out.endswith("last\n"), lambda: str(follower))
    assert len(follower.out) == 40000 + len("first\nlast\n")
    stop(box, run)
    assert follower.wait() == 0


STORE = """#!/bin/sh
exec {python} -c '
import torch.distributed as dist, os, time
store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), 1, False)
store.set("from/torch", "bytes of a worker")
store.wait(["go"])
store.set("saw", store.get("go"))
store.wait(["end"])
'
"""


def test_kv_reads_writes_lists_and_waits_in_the_store_of_the_workers(box):
    """The other side is PyTorch's own client."""
    box.write("store.sh", STORE.format(python=ctrun.DEBIAN_PYTHON), 0o755)
    run = box.start_ctrun("--rdzv-id=j1", "store.sh")
    box.wait_event("worker_started")
    waited = ctl(box, "kv", "wait", "from/torch", "--timeout=120")
    if "No module named 'torch'" in run.err:
        pytest.skip("no torch here")
    assert waited.code == 0, (waited, run)
    assert ctl(box, "kv", "get", "from/torch").out == "bytes of a worker\n"
    assert json.loads(ctl(box, "kv", "get", "from/torch", "--json").out) == {
        "key": "from/torch", "bytes": 17, "value": "bytes of a worker"}
    missing = ctl(box, "kv", "get", "nothing")
    assert missing.code == 1 and "has no key nothing" in missing.err
    late = ctl(box, "kv", "wait", "nothing", "--timeout=0")
    assert late.code == 1 and "nothing" in late.err, late
    assert ctl(box, "kv", "set", "go", "it's me").code == 0
    assert ctl(box, "kv", "wait", "saw").code == 0
    assert ctl(box, "kv", "get", "saw").out == "it's me\n"
    assert ctl(box, "kv", "add", "n", "41").out == "41\n"
    assert ctl(box, "kv", "add", "n", "3").out == "44\n"
    assert ctl(box, "kv", "add", "n", "-2").out == "42\n"
    keys = ctl(box, "kv", "list").out.split()  # torch 1.13 has its own key
    assert sorted(key for key in keys if key != "init/") == ["from/torch", "go", "n", "saw"]
    assert json.loads(ctl(box, "kv", "list", "fr", "--json").out) == {"keys": ["from/torch"]}
    assert ctl(box, "kv", "delete", "n").code == 0 and ctl(box, "kv", "delete", "n").code == 1
    for words in (["kv"], ["kv", "gte", "x"], ["kv", "set", "x"], ["kv", "add", "n", "x"]):
        assert ctl(box, *words).code == 2, words
    assert "did you mean get?" in ctl(box, "kv", "gte", "x").err
    assert ctl(box, "kv", "set", "\x1b]0;owned\x07", "1").code == 0
    assert ctl(box, "kv", "list", "\x1b").out == "?]0;owned?\n"  # no command for the terminal
    assert ctl(box, "kv", "set", "end", "1").code == 0
    assert run.wait() == 0


def test_kv_shows_a_terminal_no_control_character_of_a_value(box):
    run = box.start_ctrun("--standalone", "sleep", "600")
    box.wait_workers(1)
    assert ctl(box, "kv", "set", "k", "\x1b]0;owned\x07\u00e4\n.").code == 0
    assert ctl(box, "kv", "get", "k").out == "\x1b]0;owned\x07\u00e4\n.\n"
    shown = box.run("script", "-qec", f"{ctrun.program('ctrunctl')} kv get k", "/dev/null")
    assert shown.code == 0 and shown.out.replace("\r", "") == "?]0;owned?\u00e4\n.\n", shown
    stop(box, run)


def test_kv_says_that_there_is_no_store_between_rounds(box):
    """Not even if another program listens at the port of the last one."""
    run = box.start_ctrun("--max-restarts=1", "--restart-delay=300", "false")
    [stopped] = box.wait_event("round_stopped")
    with socket.socket() as other:
        with contextlib.suppress(OSError):  # that of another test has the port already
            other.bind(("127.0.0.1", stopped["master_port"]))
            other.listen()
        asked = ctl(box, "kv", "list")
        other.settimeout(0)
        with pytest.raises(OSError):
            other.accept()
    assert asked.code == 1 and "no store now: this node is stopping, and the next round opens another one" in asked.err, asked
    run.signal(signal.SIGINT)
    assert run.wait() == 128 + signal.SIGINT, run


def test_why_tells_the_first_cause_of_the_last_restart(box):
    run = start(box)
    assert ctl(box, "why").out == "run j1: nothing has failed\n"
    assert ctl(box, "signal", "KILL", "--rank", "1").code == 0
    wait_up(box, run, attempt=1)
    answer = ctl(box, "why")
    assert answer.code == 0 and answer.out.startswith("ctrun: error[E_SIGNAL]: rank 1 ("), answer
    assert "SIGKILL" in answer.out and "1 of 2 used" in answer.out, answer
    assert json.loads(ctl(box, "why", "--json").out) == {"generation": 2, "why": answer.out}
    stop(box, run)


def test_why_tells_the_first_cause_of_a_run_that_is_over_by_its_folder(box):
    run = box.ctrun("--nproc-per-node=2", "--log-dir=D", "-r3", "--rdzv-id=j1", "--no-python", "sh",
                    "-c", "echo boom >&2; [ $RANK = 1 ] || exec sleep 600; exit 7")
    assert run.code == 7, run
    block = run.err[run.err.index("ctrun: error[E_EXIT]: rank 1"):].split("\ntorch.")[0]
    (folder,) = box.path("D").iterdir()
    for where in (box.path("D"), folder, folder / "summary.json"):
        answer = ctl(box, "why", where)
        assert answer.code == 0, answer
        assert answer.out.splitlines()[0] == block.splitlines()[0], (answer, block)
        assert "boom" in answer.out, answer
    assert json.loads(ctl(box, "why", folder, "--json").out)["exit_code"] == 7
    (folder / "summary.json").write_text((folder / "summary.json").read_text().replace("boom", "\\u001b[31m\\nb\x1b"))
    assert "?[31m\n" in ctl(box, "why", folder).out and "\x1b" not in ctl(box, "why", folder).out
    assert box.ctrun("--log-dir=E", "-r3", "--rdzv-id=j1", "true").code == 0
    assert ctl(box, "why", box.path("E")).out == "run j1: succeeded\n"
    for where, text in ((box.dir, "no summary.json"), (box.write("x", "{}"), "is not ctrun's"),
                        ("/nonexistent", "no summary.json")):
        answer = ctl(box, "why", where)
        assert answer.code == 1 and text in answer.err, answer


def test_logs_say_how_to_get_files(box):
    run = start(box)
    answer = ctl(box, "logs")
    assert answer.code == 1 and "-r 3" in answer.err and "-t 3" in answer.err
    stop(box, run)


def test_without_a_run_it_says_so_and_exits_1(box):
    for verb in (["status"], ["stop"], ["signal", "USR1"], ["logs"], ["why"], ["kv", "list"]):
        answer = ctl(box, *verb)
        assert answer.code == 1 and "no run" in answer.err and str(box.path("ctl")) in answer.err


def test_a_run_given_as_a_word_is_refused_with_the_option_that_names_one(box):
    run = ctl(box, "status", "j")
    assert run.code == 2
    assert "unexpected argument 'j'; a run is named by --run=ID" in run.err


@pytest.mark.parametrize("name", ["KILL", "TERM"])
def test_a_death_by_a_signal_that_ctrunctl_sent_says_so(box, name):
    run = box.start_ctrun("--no-python", "sh", "-c", "echo up > up.0.0; echo up > up.1.0; exec sleep 60")
    wait_up(box, run)
    assert ctl(box, "signal", name, "--force").code == 0
    assert run.wait() > 128, run
    assert "because    : ctrun passed the signal on" in run.err and "unknown" not in run.err, run


def test_an_agent_that_is_stopped_is_told_from_one_that_is_not_there(box):
    run = start(box)
    box.wait_event("worker_started")
    [pid] = {event["pid"] for event in box.events("worker_started")}
    os.kill(pid, signal.SIGSTOP)
    answer = ctl(box, "status")
    os.kill(pid, signal.SIGCONT)
    assert answer.code == 1 and "answers: are the agents" in answer.err and "(looked in" not in answer.err, answer
    stop(box, run)


def test_agents_that_are_silent_have_one_limit_together_and_are_counted(box):
    run = start(box)
    listeners = []
    for i in range(3):
        listeners.append(socket.socket(socket.AF_UNIX))
        listeners[-1].bind(str(box.path(f"ctl/job-{i}.sock")))
        listeners[-1].listen()
    answer = ctl(box, "status")
    for each in listeners:
        each.close()
    assert answer.code == 0 and "run j1" in answer.out, answer
    assert "error[E_TIMEOUT]: 3 agents did not answer within 10 s" in answer.err and answer.err.count("\n") == 1, answer
    stop(box, run)


def test_a_stale_socket_is_removed_and_a_mark_of_it_stays_for_an_hour(box):
    folder = box.path("ctl")
    folder.mkdir(0o700)
    mark = folder / "old-1.left"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(folder / "old-1.sock"))
    assert ctl(box, "status").code == 1
    assert list(folder.iterdir()) == [mark]
    mark.unlink()
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(folder / "old-1.sock"))
    assert box.ctrun("true").code == 0
    assert list(folder.iterdir()) == [mark]
    clock = Clock(box)
    clock.advance(3600)
    assert box.ctrun("true", env=clock.env).code == 0
    assert list(folder.iterdir()) == []


def test_containers_with_the_same_pids_and_one_folder_have_a_socket_each(box):
    """Each has its own PIDs, so that both agents have the same pid."""
    unshare = ["unshare", "--fork", "--pid", "--mount-proc", "--kill-child"]
    if box.run(*unshare, "true").code != 0:
        pytest.skip("no PID namespace can be made here")
    stop = f"{ctrun.program('ctrunctl')} stop --run=j --reason"
    runs = [box.start(*unshare, ctrun.program("ctrun"), "--rdzv-id=j", "--no-python", "sh", "-c",
                      f"touch up.{name}; while [ ! -e end.{name} ]; do sleep 0.05; done; {stop} {name}; sleep 60")
            for name in "ab"]
    ctrun.wait_until(lambda: all(box.path(f"up.{name}").exists() for name in "ab"),
                     lambda: f"two runs\n{runs}")
    there = json.loads(ctl(box, "status", "--json").out)["runs"]
    assert [run["run_id"] for run in there] == ["j", "j"] and there[0]["pid"] == there[1]["pid"], there
    refused = ctl(box, "stop", "--run=j")  # from outside of both containers
    names = re.findall(r"j-\d+\.\d+", refused.err)
    assert refused.code == 2 and len(set(names)) == 2, refused
    for index, name in enumerate("ab"):
        box.write(f"end.{name}", "")
        assert runs[index].wait() == 128 + signal.SIGTERM, runs
        assert f"stopped as asked: {name};" in runs[index].err, runs
        found = sorted(ctl(box, "status", f"--run={each}").code for each in names)
        assert found == [[0, 1], [1, 1]][index], found
    assert os.listdir(box.path("ctl")) == []


def test_a_folder_that_others_can_enter_is_not_used_and_the_run_goes_on(box):
    box.path("ctl").mkdir()
    box.path("ctl").chmod(0o755)
    run = box.ctrun("true")
    assert run.code == 0 and "ctrunctl cannot reach this run" in run.err
    assert os.listdir(box.path("ctl")) == []


def test_the_socket_is_for_its_owner_alone(box):
    run = start(box)
    (path,) = box.path("ctl").glob("*.sock")
    assert path.stat().st_mode & 0o777 == 0o600
    assert box.path("ctl").stat().st_mode & 0o777 == 0o700
    stop(box, run)


@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("setpriv"),
                    reason="only root can be somebody else")
def test_a_foreign_user_is_refused_even_when_the_files_are_open(box):
    run = start(box)
    (path,) = box.path("ctl").glob("*.sock")
    for each, mode in ((box.dir, 0o755), (path.parent, 0o777), (path, 0o666)):
        each.chmod(mode)
    code = ("import socket,sys; s=socket.socket(socket.AF_UNIX); s.settimeout(60);"
            "s.connect(sys.argv[1]); s.sendall(bytes([0xc7,0x52,8,48,13,0,0,0,1]) + bytes(12));"
            "print(len(s.recv(100)))")
    who = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    foreign = subprocess.run([*who, ctrun.DEBIAN_PYTHON, "-c", code, str(path)],
                             capture_output=True, text=True, check=False)
    assert (foreign.stdout == "0\n" or "ConnectionResetError" in foreign.stderr
            or "BrokenPipeError" in foreign.stderr), foreign
    own = subprocess.run([ctrun.DEBIAN_PYTHON, "-c", code, str(path)],
                         capture_output=True, text=True, check=False)
    assert int(own.stdout) > 0, own  # the same bytes from us are answered
    path.parent.chmod(0o700)
    stop(box, run)


def test_noise_on_the_socket_harms_nobody(box):
    run = start(box)
    (path,) = box.path("ctl").glob("*.sock")
    for noise in (b"GET / HTTP/1.1\r\n\r\n", bytes([0xc7, 0x52, 8, 48, 255, 255, 255, 255]),
                  bytes([0xc7, 0x52, 8, 1, 0, 0, 0, 0]), b"x" * 100000):
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(60)
            client.connect(str(path))
            try:
                client.sendall(noise)
                assert client.recv(100) == b""
            except (ConnectionResetError, BrokenPipeError):
                pass
    assert ctl(box, "status").code == 0
    stop(box, run)


@pytest.mark.parametrize("answer, text", [
    (b"", "the agent closed the connection without an answer; perhaps it does not accept requests of uid "),
    (b"noise " * 20, "the agent sent a malformed answer"),
    (bytes([0xc7, 0x52, 8, 49, 2, 0, 0, 0, 1, 2]), "the agent sent a malformed answer")])
def test_an_agent_that_answers_with_noise_is_named_with_the_reason(box, answer, text):
    box.path("ctl").mkdir(0o700)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(box.path("ctl/job-1.sock")))
        listener.listen()
        with answering(listener, answer):
            asked = ctl(box, "status")
    assert asked.code == 1 and f"]: run job-1.sock: {text}" in asked.err, asked


def test_a_run_that_ends_before_the_request_is_told_so(box):
    run = start(box)
    (path,) = box.path("ctl").glob("*.sock")
    agent = path.rename(path.with_suffix(".moved"))

    def answer_once(listener):
        with listener.accept()[0] as client, socket.socket(socket.AF_UNIX) as real:
            real.connect(str(agent))
            real.sendall(client.recv(100000))
            status = real.recv(100000)
            path.unlink()
            client.sendall(status)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.settimeout(60)
        listener.bind(str(path))
        listener.listen()
        thread = threading.Thread(target=answer_once, args=(listener,))
        thread.start()
        asked = ctl(box, "restart")
        thread.join()
    assert asked.code == 1 and re.search(r"\]: run \S+ has ended or is ending on this node\n$", asked.err), asked
    agent.rename(path)
    stop(box, run)


def test_a_verb_that_is_misspelt_is_suggested(box):
    answer = ctl(box, "statsu")
    assert answer.code == 2 and "did you mean status?" in answer.err
    answer = ctl(box, "logs", "--rnak", "1")
    assert answer.code == 2 and "did you mean --rank?" in answer.err
    answer = ctl(box, "logs", "-x5")
    assert answer.code == 2 and "error[E_USAGE]: logs has no option -x\n" in answer.err, answer
    for words, what in (("signal", "-9"), "signal has no option -9"), (("kv", "add", "n", "-1x"), "kv has no option -1"):
        answer = ctl(box, *words)
        assert answer.code == 2 and f"error[E_USAGE]: {what}\n" in answer.err, answer
    assert ctl(box).code == 2 and ctl(box, "signal").code == 2
    answer = ctl(box, "--help")
    assert answer.code == 0 and answer.err == ""
    for verb in ("status", "signal", "stop", "logs", "doctor", "install"):
        assert f"\n  {verb} " in answer.out
        assert ctl(box, verb, "--help").out.startswith(f"usage: ctrunctl {verb}")


@pytest.mark.parametrize("word, meant", [("top", "status"), ("ps", "status"), ("list", "status"),
                                         ("kill", "stop")])
def test_a_verb_of_other_programs_is_answered_by_ours_in_one_line(box, word, meant):
    answer = ctl(box, word)
    assert answer.code == 2 and answer.err.count("\n") == 1, answer
    assert f"error[E_USAGE]: no verb {word}; use ctrunctl {meant}" in answer.err, answer


def test_install_copies_what_a_job_needs(box):
    there = box.path("there")
    for _ in range(2):  # the second time the files exist
        answer = ctl(box, "install", "--shared", there)
        assert answer.code == 0, answer
        assert answer.out.split() == [f"{there}/{name}" for name in ("ctrun", "ctrunctl", "ctrund", "ctrun-launch")]
    assert sorted(path.name for path in there.iterdir()) == ["ctrun", "ctrun-launch", "ctrunctl", "ctrund"]
    assert {path.stat().st_mode & 0o777 for path in there.iterdir()} == {0o755}
    run = box.run(there / "ctrun-launch", "--use-env", "--no-python", "--nproc-per-node=2", "sh", "-c", "echo $RANK")
    assert run.code == 0 and sorted(run.out.split()) == ["0", "1"], run
    again = box.run(there / "ctrunctl", "install", "--shared", box.path("further"))
    assert again.code == 0, again


def test_install_replaces_a_program_that_runs(box):
    assert ctl(box, "install", "--shared", box.path("there")).code == 0
    run = box.start(box.path("there/ctrun"), "--standalone", "--no-python", "sh", "-c", "touch up; exec sleep 600")
    ctrun.wait_until(box.path("up").exists, lambda: run)
    assert ctl(box, "install", "--shared", box.path("there")).code == 0, box.runs[-1]
    stop(box, run)


@pytest.mark.parametrize("words, told", [
    (["{dir}/new"], r"error\[E_UNSUPPORTED\]: these programs need shared libraries, .* or pass --shared"),
    (["--shared", "{dir}/file"], r"error\[\w+\]: {dir}/file/ctrun: Not a directory"),
    (["--shared", "{dir}/no/folder"], r"error\[\w+\]: {dir}/no/folder: No such file or directory")])
def test_install_says_what_it_cannot_do_and_leaves_nothing(box, words, told):
    box.write("file", "")
    answer = ctl(box, "install", *(word.format(dir=box.dir) for word in words))
    assert answer.code == 1 and answer.out == "" and answer.err.count("\n") == 1, answer
    assert re.search(told.replace("{dir}", re.escape(str(box.dir))), answer.err), answer
    assert box.path("file").read_text() == "" and not box.path("new").exists()


def test_doctor_looks_at_this_machine(box):
    answer = ctl(box, "doctor", "--json")
    findings = json.loads(answer.out)["findings"]
    assert {f["what"] for f in findings} >= {"host name", "addresses", "port 29400", "port 29500",
                                             "/dev/shm", "open files", "cgroup memory", "CPUs",
                                             "clock", "NCCL"}
    assert all(bool(f["fix"]) == (f["level"] != "ok") for f in findings), findings
    assert answer.code == any(f["level"] == "fail" for f in findings)


def test_doctor_names_libraries_that_cannot_be_loaded(box):
    for name in ("libcurl.so.4", "libcurl-gnutls.so.4", "libmunge.so.2", "libnvidia-ml.so.1", "libnccl.so.2"):
        box.write(name, "not a library")
    run = ctl(box, "doctor", "--json", env={"LD_LIBRARY_PATH": str(box.dir)})
    told = {each["what"]: each["value"] for each in json.loads(run.out)["findings"]}
    for what, option in (("libcurl", "--rdzv-backend=etcd"), ("MUNGE", "--auth=munge")):
        assert option in told[what] and ("none: no " in told[what] or "built without" in told[what]), run
    assert "no usable libnvidia-ml.so.1" in told["GPUs"] and told["NCCL"].startswith("none"), run


@pytest.mark.parametrize("number, told", [(91301, "9.13.1"), (8907, "8.9.7"), (0, "unknown version"),
                                          (None, "none in the library path")])
def test_doctor_names_cudnn_or_that_it_is_missing(box, number, told):
    library = box.path("libcudnn.so.9" if number != 8907 else "libcudnn.so.8")
    for name in ("libcudnn.so.9", "libcudnn.so.8"):
        box.write(name, "not a library")
    if number is not None:
        source = box.write("cudnn.c", f"unsigned long cudnnGetVersion(void) {{ return {number}; }}\n")
        assert box.run("cc", "-shared", "-fPIC", "-o", library, source).code == 0, box.runs[-1]
    run = ctl(box, "doctor", "--json", env={"LD_LIBRARY_PATH": str(box.dir)})
    said, = [each["value"] for each in json.loads(run.out)["findings"] if each["what"] == "cuDNN"]
    assert told in said, run


def test_doctor_says_why_it_cannot_listen(box):
    """With 4 descriptors the store takes the last one."""
    run = box.ctrun("--no-python", "sh", "-c", f"ulimit -n 4; exec {ctrun.program('ctrunctl')} doctor --net")
    assert run.code == 1 and re.search(r"fail +listen +no TCP port can be opened: Too many open files  -> check ulimit -n", run.out), run


def test_doctor_says_who_answers_at_an_endpoint(box):
    server = box.start(ctrun.program("ctrund"), "--listen", "127.0.0.1:0")
    port = ctrun.wait_until(lambda: re.search(r"127\.0\.0\.1:(\d+)", server.out + server.err),
                            lambda: str(server)).group(1)
    answer = ctl(box, "doctor", f"127.0.0.1:{port}")
    assert answer.code == 0 and "ctrun 0." in answer.out, answer
    server.signal(signal.SIGTERM)
    server.wait()
    answer = ctl(box, "doctor", f"127.0.0.1:{port}")
    assert answer.code == 1, answer
    assert "Connection refused: no process listens at that port, or a firewall rejects connections to it  ->" in answer.out, answer


@pytest.mark.parametrize("said, text", [
    (b"", "a program accepts connections there, but does not answer"),
    (b"HTTP/1.1 200 OK\r\n\r\nhi", "the answer is not that of a server of ctrun")])
def test_doctor_tells_another_answer_from_none(box, said, text):
    with socket.create_server(("127.0.0.1", 0)) as listener, answering(listener, said):
        port = listener.getsockname()[1]
        answer = ctl(box, "doctor", f"127.0.0.1:{port}")
    assert answer.code == 1 and f"127.0.0.1:{port}: {text}" in answer.out, answer
