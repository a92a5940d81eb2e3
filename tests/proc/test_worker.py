# SPDX-License-Identifier: Apache-2.0
"""How workers start and end, and what the agent reports of it."""
import math
import os
import resource
import signal
import socket
import struct
import sys

import pytest
import rendezvous

# Without sanitizers workers are started in another way (agent/process/child.c).
pytestmark = pytest.mark.both


def test_workers_that_exit_0_make_the_run_succeed(node):
    run = node.run("exit", "0")
    assert run.code == 0, run
    assert len(node.box.events("worker_started")) == 2
    assert [e["cause"] for e in node.box.events("worker_ended")] == ["none", "none"]
    assert run.server.received("SUCCEEDED") == [{"generation": 1}]
    assert node.result()["outcome"] == 1


def test_a_workers_exit_code_is_told_and_becomes_ours(node):
    run = node.run("@1", "exit", "7", "@all", "hang")
    assert run.code == 7, run
    failure = run.server.received("FAILURE")[0]
    assert (failure["cause"], failure["code"]) == (rendezvous.EXIT, 7)
    assert (failure["rank"], failure["local_rank"], failure["host"]) == (1, 1, "here")
    assert failure["pid"] == node.box.events("worker_started", rank=1)[0]["worker_pid"]
    assert failure["age_ms"] > 0
    again = [f["age_ms"] for f in run.server.wait_for("STOPPED")[0]["failures"]]
    assert again[0] >= failure["age_ms"] and again[1] == 0, again


def test_a_worker_that_dies_of_a_signal_is_told_as_such(node):
    run = node.run("@0", "die", "SEGV", "@all", "hang")
    assert run.code == 139, run
    failure = run.server.received("FAILURE")[0]
    assert (failure["cause"], failure["code"]) == (rendezvous.SIGNAL, signal.SIGSEGV)


def test_workers_that_we_stop_are_consequences(node):
    run = node.run("@1", "exit", "7", "@all", "hang")
    stopped = run.server.wait_for("STOPPED")[0]["failures"]
    assert [(f["rank"], f["cause"], f["code"]) for f in stopped] == [
        (1, rendezvous.EXIT, 7), (0, rendezvous.STOPPED, signal.SIGTERM)]
    assert len(run.server.received("FAILURE")) == 1


def test_a_program_that_is_not_there_is_an_exec_failure(node):
    run = node.run(program=["./no-such-program"])
    failure = run.server.received("FAILURE")[0]
    assert (failure["cause"], failure["code"]) == (rendezvous.EXEC, 2)
    assert failure["text"] == "./no-such-program: No such file or directory"
    assert run.code == 127


def test_a_file_that_is_no_program_is_an_exec_failure(node):
    path = node.box.write("text", "no program", 0o644)
    node.run(program=[path])
    assert node.servers[0].received("FAILURE")[0]["code"] == 13  # EACCES
    path = node.box.write("script", "no interpreter line", 0o755)
    node.run(program=[path])
    assert node.servers[1].received("FAILURE")[0]["code"] == 8  # ENOEXEC


def test_the_program_is_looked_up_in_the_workers_path(node):
    folder = node.box.path("bin")
    folder.mkdir()
    node.box.write("bin/mine", "#!/bin/sh\necho found\n", 0o755)
    run = node.run(program=["mine"], workers=1,
                   env={"PATH": f"{node.box.path('nowhere')}:{folder}"})
    assert (run.code, run.out) == (0, "found\n"), run


def test_a_denied_program_counts_more_than_a_missing_one(node):
    folder = node.box.path("bin")
    folder.mkdir()
    node.box.write("bin/mine", "#!/bin/sh\n", 0o644)
    node.run(program=["mine"], env={"PATH": f"{folder}:{node.box.path('nowhere')}"})
    assert node.servers[0].received("FAILURE")[0]["code"] == 13


def test_a_worker_has_a_session_of_its_own(node):
    run = node.start("hang", workers=2)
    for pid in node.worker_pids():
        assert os.getsid(pid) == pid
    run.signal(signal.SIGTERM)
    run.wait()


def test_a_worker_inherits_three_descriptors_only(node):
    run = node.run("fds", workers=1)
    assert run.out == "fd=0\nfd=1\nfd=2\n"
    run = node.run("fds", options=["--out", "tee", "--log-dir", node.box.dir])
    assert sorted(set(run.out.split())) == ["fd=0", "fd=1", "fd=2"]
    leaky = ["sh", "-c", 'exec 7</dev/null; exec "$@"', "sh"]  # as of a shell that left a descriptor open
    run = node.box.run(*leaky, rendezvous.ctrun.program("agent_harness"), "--server",
                       node.serve(workers=1).address, "--workers", "1", "--",
                       rendezvous.ctrun.program("victim"), "fds")
    assert run.out == "fd=0\nfd=1\nfd=2\n"


def test_a_worker_gets_socket_and_generation(node):
    run = node.run("env", "CTRUN_AGENT_SOCKET", "env", "CTRUN_GENERATION", "env", "RANK",
                   workers=1)
    lines = dict(line.split("=", 1) for line in run.out.split())
    assert lines["CTRUN_AGENT_SOCKET"].endswith(".worker")
    assert (lines["CTRUN_GENERATION"], lines["RANK"]) == ("1", "0")


def test_ignored_sighup_stays_ignored_in_workers(node):
    run = node.start("touch", str(node.box.path("ready")), "hang", workers=1,
                     program=["sh", "-c", 'touch "$1"; grep SigIgn /proc/self/status',
                              "sh", str(node.box.path("ready"))])
    run.wait()
    assert int(run.out.split()[1], 16) & 1 == 0
    nohup = node.box.run("sh", "-c", 'trap "" HUP; exec "$@"', "sh", *run.argv[:1],
                         "--server", node.serve(workers=1).address, "--workers", "1", "--",
                         "grep", "SigIgn", "/proc/self/status")
    assert int(nohup.out.split()[1], 16) & 1 == 1  # SIGHUP
    assert int(nohup.out.split()[1], 16) & (1 << 12) == 0  # SIGPIPE, which the agent ignores


def test_the_last_lines_of_stderr_are_the_failures_text(node):
    run = node.run("write", "fine\\n", "err", "loading\\nno such file\\n", "exit", "1",
                   options=["--err", "tee", "--log-dir", node.box.dir])
    assert run.server.received("FAILURE")[0]["text"] == "loading\nno such file"


def test_the_last_lines_come_from_a_redirected_file_too(node):
    run = node.run("err", "gone\\n", "exit", "1",
                   options=["--err", "file", "--log-dir", node.box.dir])
    assert run.server.received("FAILURE")[0]["text"] == "gone"


def test_the_error_files_path_is_told_when_it_was_written(node):
    run = node.run("@1", "errfile", '{"message": "gone"}', "exit", "1", "@0", "hang",
                   options=["--log-dir", node.box.dir])
    assert run.server.received("FAILURE")[0]["error_file"] == str(node.box.path("1.error.json"))


def test_a_restart_starts_all_workers_again(node):
    server = node.serve(max_restarts=1)
    run = node.run("env", "CTRUN_GENERATION", "@1r0", "exit", "3", "@0r0", "hang", "@r1", "exit", "0",
                   server=server)
    assert run.code == 0, run
    started = node.box.events("worker_started")
    assert [(e["generation"], e["rank"]) for e in started] == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert len(server.received("JOIN")) == 2
    assert run.out.split().count("CTRUN_GENERATION=2") == 2


def test_every_round_has_a_store_of_its_own(node):
    node.run("@r0", "exit", "1", "@r1", "exit", "0", server=node.serve(max_restarts=1))
    opened = [e["store"] for e in node.box.events("store_opened")]
    assert opened == [1, 2]
    assert [e["store"] for e in node.box.events("store_closed")] == opened


def test_steps_reach_the_heartbeat_as_their_minimum(node):
    server = node.serve(heartbeat_ms=50, lost_after_ms=5000)
    run = node.start("@0", "step", "41", "@1", "step", "40", "@all", "hang", server=server)
    rendezvous.ctrun.wait_until(
        lambda: any(beat["step"] == 40 for beat in server.received("HEARTBEAT")),
        lambda: f"step 40 in {server.received('HEARTBEAT')}")
    run.signal(signal.SIGKILL)
    node.box.wait_gone()


def values(server):
    """(rank, name) -> the last value received."""
    return {(one["rank"], one["name"]): one["value"] for message in server.received("METRICS")
            for one in message["list"]}


def test_metrics_reach_the_server_without_any_step_and_again_after_a_break(node):
    server = node.serve(heartbeat_ms=50, lost_after_ms=5000)
    run = node.start("@0", "metric", "loss", "0.5", "metric", "rate", "inf", "@1", "metric", "loss", "nan",
                     "@all", "hang", server=server)
    seen = rendezvous.ctrun.wait_until(lambda: values(server) if len(values(server)) == 3 else None,
                                       lambda: server.received("METRICS"))
    assert seen[0, "loss"] == 0.5 and seen[0, "rate"] == math.inf and math.isnan(seen[1, "loss"])
    assert {message["generation"] for message in server.received("METRICS")} == {1}
    assert all(beat["step"] == -1 for beat in server.received("HEARTBEAT"))
    run.signal(signal.SIGKILL)
    node.box.wait_gone()


def test_the_last_metrics_of_a_killed_worker_are_in_its_event_and_at_the_server(node):
    server = node.serve(workers=1)
    run = node.start("metric", "loss", "0.5", "metric", "loss", "0.125", "metric", "rate", "nan",
                     "die", "KILL", server=server, workers=1)
    run.wait()
    [ended] = node.box.events("worker_ended")
    assert ended["metrics"] == {"loss": 0.125, "rate": "NaN"} and ended["code"] == signal.SIGKILL


HOSTILE_PAGE = r"""
import array, os, socket, struct, sys
def page(count, names):
    data = struct.pack("<IiQQQ", 0x43545250, 0, 0, 0, count)
    data += b"".join(name.ljust(64, b"x")[:64] + struct.pack("<d", i) for i, name in enumerate(names))
    fd = os.memfd_create("page")
    os.write(fd, data)
    return fd
def frame(kind, body):
    return bytes([0xC7, 0x52, 8, kind]) + struct.pack("<I", len(body)) + body
def tell(fd):
    s = socket.socket(socket.AF_UNIX)
    s.connect(os.environ["CTRUN_AGENT_SOCKET"])
    s.sendall(frame(32, struct.pack("<iQ", 0, int(os.environ["CTRUN_GENERATION"]))))
    s.sendmsg([frame(37, struct.pack("<I", 2336))], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))])
    return s
good = b"good\0"
kept = [tell(page(1 << 60, [good])), tell(page(33, [good] * 33)), tell(page(3, [b"no end" * 12, b"a b\0", b"\0"])),
        tell(page(2, [good])), tell(os.open("/dev/null", os.O_RDONLY)), tell(os.open("/", os.O_RDONLY)),
        tell(page(2, [good, b"ctrun_mine\0"]))]
"""


def test_a_page_of_lies_tells_only_what_is_valid(node):
    server = node.serve(workers=1)
    run = node.start(program=[sys.executable, "-c", HOSTILE_PAGE], workers=1, server=server)
    run.wait()
    assert run.code == 0, run
    [ended] = node.box.events("worker_ended")
    assert ended["metrics"] == {"good": 0}, ended


def test_a_step_of_another_generation_counts_for_nothing(node):
    server = node.serve(workers=1, heartbeat_ms=50, lost_after_ms=5000)
    ready = node.box.path("ready")
    run = node.start(workers=1, server=server, program=[
        "sh", "-c", f'CTRUN_GENERATION=9 exec "$@" step 99 touch {ready} hang', "sh",
        rendezvous.ctrun.program("victim")])
    rendezvous.ctrun.wait_until(ready.exists, "the step was told")
    beats = server.wait_for("HEARTBEAT", len(server.received("HEARTBEAT")) + 3)
    assert {beat["step"] for beat in beats} == {-1}
    run.signal(signal.SIGKILL)
    node.box.wait_gone()


def test_workers_hear_that_they_should_stop(node):
    run = node.start("ignore", "TERM", "step", "1", "touch", str(node.box.path("on%r")), "stopped",
                     "write", "saved\\n", "exit", "0")
    for rank in "01":
        rendezvous.ctrun.wait_until(node.box.path("on" + rank).exists, "a worker is ready")
    run.signal(signal.SIGTERM)
    run.wait()
    assert run.out == "saved\nsaved\n"


def connect_to_agent(node):
    run = node.start("env", "CTRUN_AGENT_SOCKET", "hang", workers=1)
    rendezvous.ctrun.wait_until(lambda: run.out.endswith("\n"), "the name of the socket")
    name = run.out.strip().split("=", 1)[1]
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    client.settimeout(60)
    client.connect(name)
    return run, client


def test_a_message_of_an_unknown_process_is_ignored_at_the_workers_socket(node):
    run, client = connect_to_agent(node)
    hello = struct.pack("<iQ", 0, 1)  # as a worker sends it: rank, generation
    try:
        client.sendall(bytes([0xC7, 0x52, 8, 32]) + struct.pack("<I", len(hello)) + hello)
        assert client.recv(1) == b""  # a worker's connection would stay open
    except ConnectionError:
        pass  # closed before or after we wrote
    client.close()
    assert run.code is None
    run.signal(signal.SIGTERM)
    assert run.wait() == 143


def test_garbage_at_the_workers_socket_ends_only_its_connection(node):
    script = ("import os, socket\n"
              "s = socket.socket(socket.AF_UNIX)\n"
              "s.connect(os.environ['CTRUN_AGENT_SOCKET'])\n"
              "s.sendall(b'GET / HTTP/1.0\\r\\n\\r\\n')\n"
              "print(s.recv(1))\n")
    run = node.run(program=[sys.executable, "-c", script], workers=1)
    assert (run.code, run.out) == (0, "b''\n"), run


def test_torchrun_124_a_worker_runs_on_the_cpus_of_its_plan_alone(node):
    cpu = max(os.sched_getaffinity(0))
    script = "import os; print('rank', os.environ['RANK'], sorted(os.sched_getaffinity(0)))"
    run = node.run(program=[sys.executable, "-c", script], options=("--cpus", cpu))
    assert run.code == 0, run
    assert sorted(run.out.splitlines()) == [
        f"rank 0 [{cpu}]", f"rank 1 {sorted(os.sched_getaffinity(0))}"]


def test_cpus_that_do_not_exist_are_told_as_such(node):
    run = node.run("exit", "0", options=("--cpus", "8191"))
    failure = run.server.received("FAILURE")[0]
    assert failure["cause"] == rendezvous.EXEC
    assert failure["text"].endswith("bind to CPUs: Invalid argument"), failure


def test_open_files_of_a_worker_are_raised_to_the_hard_limit(node):
    script = "import os, resource as r; print(os.environ['RANK'], *r.getrlimit(r.RLIMIT_NOFILE))"
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = min(hard, 524288) if hard >= 0 else 524288
    resource.setrlimit(resource.RLIMIT_NOFILE, (300, hard))
    try:
        run = node.start(program=[sys.executable, "-c", script], options=("--raise-files", 1))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    run.wait()
    assert sorted(run.out.splitlines()) == [f"0 {most} {hard}", f"1 300 {hard}"], run
