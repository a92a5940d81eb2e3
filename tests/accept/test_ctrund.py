# SPDX-License-Identifier: Apache-2.0
"""ctrund by itself: runs with different ids share one server, a signal ends it, and runs with a
journal continue when it is killed and started again."""
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request

import ctrun

sys.path.insert(0, str(ctrun.ROOT / "tests" / "cli"))
import launch  # noqa: E402


def start(box, endpoint="127.0.0.1:0", *options):
    daemon = box.start(ctrun.program("ctrund"), f"--listen={endpoint}", *options)
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


def test_a_log_that_nobody_reads_holds_up_no_run(box):
    reader, writer = ctrun.full_pipe()
    daemon = subprocess.Popen([ctrun.program("ctrund"), "--listen=127.0.0.1:0"], stdout=subprocess.PIPE, stderr=writer,
                              env=box.env, text=True)
    os.close(writer)
    try:
        endpoint = daemon.stdout.readline().split()[-1]
        for name in "a", "b":
            runs = [agent(box, endpoint, name, "true") for _ in range(2)]
            assert [run.wait(30) for run in runs] == [0, 0], runs
            text = os.read(reader, 1 << 16).decode()  # now there is room
        daemon.terminate()
        assert daemon.wait(30) == 0
    finally:
        daemon.kill()
        daemon.wait()
    os.close(reader)
    assert re.match(r"ctrund: warning: nobody has read standard error: \d+ lines are lost\nctrund: info: ", text), text


def test_status_is_json_and_names_the_run(box):
    daemon, endpoint = start(box)
    waiting = agent(box, endpoint, "lonely", "true")
    def status():
        with urllib.request.urlopen(f"http://{endpoint}/status", timeout=60) as answer:
            return json.load(answer)
    ctrun.wait_until(lambda: "lonely" in json.dumps(status()), "the run shows in the status")
    waiting.signal(signal.SIGTERM)
    waiting.wait(10)
    daemon.signal(signal.SIGTERM)
    assert daemon.wait(10) == 0, daemon


def test_a_server_that_answers_late_is_waited_for_aloud_and_joined(box):
    daemon, endpoint = start(box)
    daemon.signal(signal.SIGSTOP)
    agents = [agent(box, endpoint, "late", "echo", "here") for _ in range(2)]
    for run in agents:
        ctrun.wait_until(lambda: "does not answer: waiting up to 8 s more" in run.err, lambda: f"the notice\n{run}")
    daemon.signal(signal.SIGCONT)
    assert [(run.wait(30), run.out) for run in agents] == [(0, "here\n")] * 2, agents
    daemon.signal(signal.SIGTERM)
    assert daemon.wait(10) == 0, daemon


def test_a_second_daemon_on_the_port_is_refused(box):
    daemon, endpoint = start(box)
    second = box.run(ctrun.program("ctrund"), f"--listen={endpoint}")
    assert second.code == 77 and "E_PORT_BUSY" in second.err, second
    daemon.signal(signal.SIGINT)
    assert daemon.wait(10) == 0, daemon


def test_wrong_usage_is_told_in_one_line(box):
    for typed, said in (("--lisen=x", "--lisen=x; did you mean --listen?"), ("--prot", "--port?"),
                        ("--bogus", "unknown option --bogus; see ctrund --help"),
                        ("--log-level=wran", "not error, warning, info or debug: wran")):
        run = box.run(ctrun.program("ctrund"), typed)
        assert run.code == 2 and len(run.err.splitlines()) == 1 and said in run.err, run


def test_a_port_alone_is_listened_at_and_a_bare_number_is_no_address(box):
    port = launch.free_port()
    daemon = box.start(ctrun.program("ctrund"), "--port", str(port))
    ctrun.wait_until(lambda: f":{port}\n" in daemon.out, lambda: f"listening\n{daemon}")
    daemon.signal(signal.SIGTERM)
    assert daemon.wait(10) == 0, daemon
    for words in (["--listen=29888"], ["--port=x"], ["--port=29888", "--listen=127.0.0.1:0"]):
        run = box.run(ctrun.program("ctrund"), *words)
        assert run.code == 2 and len(run.err.splitlines()) == 1, run
    assert "write HOST:PORT" in box.run(ctrun.program("ctrund"), "--listen=29888").err


def test_a_name_is_listened_at_if_any_of_its_addresses_is_of_this_machine(box):
    ctrun.needs_mounts()
    hosts = box.write("hosts", "192.0.2.1 many\n127.0.0.1 many\n192.0.2.1 other\n")
    order = box.write("order", "precedence ::ffff:192.0.2.0/120 100\nprecedence ::ffff:0:0/96 10\n")  # 192.0.2.1 is first
    mount = '[ ! -e /etc/gai.conf ] || mount --bind "$2" /etc/gai.conf; mount --bind "$1" /etc/hosts; shift 2; exec "$@"'
    within = ["unshare", "-m", "sh", "-ec", mount, "sh", hosts, order, ctrun.program("ctrund")]
    daemon = box.start(*within, "--listen=many:0")
    ctrun.wait_until(lambda: "listening on " in daemon.out, lambda: f"it listens\n{daemon}")
    daemon.signal(signal.SIGTERM)
    assert daemon.wait(10) == 0, daemon
    run = box.run(*within, "--listen=other:0")
    assert run.code == 2 and "--listen other: that name is not an address of this machine" in run.err, run


# ---- Killed --------------------------------------------------------------------------------


WAIT_FOR = 'until [ -e "$GO" ]; do sleep 0.05; done; '


LONG_LEASE = "--rdzv-conf=keep_alive_interval=60,keep_alive_max_attempt=1"  # ctrund may be slow to come back


def begin(box, *options, script="", env=None):
    """A ctrund with a journal, and two nodes of two workers that wait for the file `go`."""
    box.path("journal").mkdir()
    # A port that no connection takes while the daemon does not run.
    daemon, endpoint = start(box, f"127.0.0.1:{launch.free_port()}", "--journal", str(box.path("journal")))
    agents = [box.start_ctrun("--nnodes=2", "--nproc-per-node=2", f"--rdzv-endpoint={endpoint}",
                              "--rdzv-id=job", *options, "--no-python", "sh", "-c",
                              WAIT_FOR + script,
                              env={"GO": str(box.path("go")), **(env or {})})
              for _ in range(2)]
    return daemon, endpoint, agents, box.wait_workers(4)


def kill(box, daemon, agents):
    """Kills the daemon with SIGKILL, and waits until each agent has lost its link."""
    before = len(box.events("link_state", **{"from": "up"}))
    daemon.signal(signal.SIGKILL)
    daemon.wait()
    box.wait_event("link_state", before + len(agents), **{"from": "up"})


def back(box, endpoint, agents):
    before = len(box.events("link_state", to="up"))
    daemon, _ = start(box, endpoint, "--journal", str(box.path("journal")))
    box.wait_event("link_state", before + len(agents), to="up")
    return daemon


def test_t07_a_daemon_that_is_killed_and_started_again_is_noticed_by_no_worker(box):
    daemon, endpoint, agents, workers = begin(box, LONG_LEASE, script="echo $TORCHELASTIC_RESTART_COUNT")
    for _ in range(3):
        kill(box, daemon, agents)
        daemon = back(box, endpoint, agents)
        assert box.workers() == workers
    box.write("go", "")
    assert [run.wait(30) for run in agents] == [0, 0], agents
    assert [run.out for run in agents] == ["0\n0\n"] * 2
    assert len(box.events("round_started")) == 2
    assert all("the workers keep running" in run.err and "is back" in run.err for run in agents)
    daemon.signal(signal.SIGTERM)
    assert daemon.wait(10) == 0, daemon


def test_a_failure_while_the_daemon_is_away_costs_one_restart_when_it_is_back(box):
    daemon, endpoint, agents, workers = begin(box, "--rdzv-conf=keep_alive_interval=12,keep_alive_max_attempt=1", "--max-restarts=2",
                                              script="exit 0")
    kill(box, daemon, agents)
    os.kill(workers[3], signal.SIGKILL)
    box.wait_event("worker_ended", cause="signal", code=9)
    daemon = back(box, endpoint, agents)
    restarted = box.wait_workers(4, restart=1)
    assert not set(restarted.values()) & set(workers.values())
    box.write("go", "")
    assert [run.wait(30) for run in agents] == [0, 0], agents
    assert {event["restart_count"] for event in box.events("round_started")} == {0, 1}
    daemon.signal(signal.SIGTERM)
    assert daemon.wait(10) == 0, daemon


def test_a_run_that_succeeds_while_the_daemon_is_away_has_succeeded(box):
    daemon, endpoint, agents, workers = begin(box, LONG_LEASE)
    kill(box, daemon, agents)
    box.write("go", "")
    box.wait_event("worker_ended", count=4)
    back(box, endpoint, agents[:0]).signal(signal.SIGCONT)
    assert [run.wait(30) for run in agents] == [0, 0], agents
    [daemon] = [run for run in box.runs if run.code is None]
    daemon.signal(signal.SIGTERM)
    assert daemon.wait(10) == 0, daemon


def test_t07_a_daemon_that_never_comes_back_ends_the_run_with_75(box):
    daemon, _, agents, workers = begin(box)
    kill(box, daemon, agents)
    assert [run.wait(15) for run in agents] == [75, 75], agents
    for run in agents:
        assert "error[E_LEADER_LOST]" in run.err and "no worker of this node runs; exit 75" in run.err, run
    assert not box.workers()


def test_without_its_journal_the_runs_of_a_daemon_end_with_it(box):
    daemon, endpoint, agents, workers = begin(box, LONG_LEASE)
    kill(box, daemon, agents)
    daemon, _ = start(box, endpoint)
    assert [run.wait(30) for run in agents] == [75, 75], agents
    assert not any(ctrun.is_alive(pid) for pid in workers.values())
    assert all("error[E_LEADER_LOST]" in run.err and "does not take this node back" in run.err
               for run in agents), agents
    daemon.signal(signal.SIGTERM)
    assert daemon.wait(10) == 0, daemon
