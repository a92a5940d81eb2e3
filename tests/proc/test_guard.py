# SPDX-License-Identifier: Apache-2.0
"""Whichever process is killed, all others end, long before the grace time is over."""
import os
import pathlib
import re
import signal
import uuid

import pytest

import ctrun
from test_stop import start_hanging, way  # noqa: F401, a fixture

FAMILY = ["ignore", "TERM", "ignore", "INT", "ignore", "HUP", "child", "orphan"]


def test_kill_9_of_the_guard_leaves_nobody(node):
    run = start_hanging(node, *FAMILY)
    os.kill(run.pid, signal.SIGKILL)
    node.box.wait_gone()
    told = f"the guard (pid {run.pid}), ctrun's first process, was killed; no process of the run is left on this node"
    assert run.err.count(told) == 1, run


def test_kill_9_of_a_guard_whose_parent_ignores_signals_leaves_nobody(node):
    """What a daemon ignores, its jobs ignore at first, too."""
    numbers = range(signal.SIGRTMIN, signal.SIGRTMAX + 1)
    before = [signal.signal(number, signal.SIG_IGN) for number in numbers]
    try:
        run = start_hanging(node, *FAMILY)
    finally:
        for number, action in zip(numbers, before):
            signal.signal(number, action)
    os.kill(run.pid, signal.SIGKILL)
    node.box.wait_gone()


def test_workers_that_end_with_the_guard_are_not_reported_as_failed(node):
    """A lost node uses no restart; a failed worker would end the job on all nodes."""
    for _ in range(10):
        run = start_hanging(node)
        os.kill(run.pid, signal.SIGKILL)
        node.box.wait_gone()
    assert not node.box.events("worker_ended")


def test_kill_9_of_the_agent_leaves_nobody(node):
    run = start_hanging(node, *FAMILY)
    os.kill(node.agent_pid(), signal.SIGKILL)
    assert run.wait(20) == 137
    node.box.wait_gone()
    assert node.box.events("guard_ended")[0]["survivors"] == 0


def test_kill_9_of_a_worker_leaves_nobody(node):
    run = start_hanging(node, "child", "orphan")
    os.kill(node.worker_pids()[1], signal.SIGKILL)
    assert run.wait(20) == 137
    node.box.wait_gone()


def test_kill_9_of_the_guards_process_group_leaves_nobody(node):
    run = start_hanging(node, *FAMILY)
    os.killpg(run.pid, signal.SIGKILL)
    node.box.wait_gone()


def three(node, run):
    """The guard, the second guard, the agent."""
    agent = node.agent_pid()
    second, guard = ctrun.guards_of(agent)
    assert guard == run.pid
    return {"guard": guard, "second": second, "agent": agent}


@pytest.mark.parametrize("alone", ["guard", "second", "agent"])
def test_kill_9_of_any_two_at_once_leaves_nobody(node, alone):
    """Also processes that workers put into sessions of their own."""
    run = start_hanging(node, *FAMILY, env={"SLURM_STEP_ID": "0"})  # no cgroup, as in a Slurm step
    pids = three(node, run)
    ctrun.kill_at_once(*(pid for name, pid in pids.items() if name != alone))
    node.box.wait_gone()
    assert "error[E_SIGNAL]" in run.err, run


def test_kill_9_of_the_second_guard_leaves_nobody(node):
    run = start_hanging(node, *FAMILY)
    os.kill(three(node, run)["second"], signal.SIGKILL)
    assert run.wait(20) == 137
    node.box.wait_gone()
    assert "the second guard died of SIGKILL (9); no process of the run is left on this node" in run.err, run


def test_kill_9_of_all_three_at_once_leaves_no_worker(node):
    run = start_hanging(node, *FAMILY[:6])
    ctrun.kill_at_once(*three(node, run).values())
    node.box.wait_gone()


def needs_a_cgroup():
    """The folder in which a run makes its cgroup; skips the test where it can not make one."""
    mounts = [line.split() for line in open("/proc/mounts")]
    roots = [fields[1] for fields in mounts if fields[2] == "cgroup2"]
    [own] = [line.rstrip()[3:] for line in open("/proc/self/cgroup") if line.startswith("0::")] or [None]
    folder = pathlib.Path(roots[0] + own) if roots and own else None
    if not folder or not os.access(folder, os.W_OK):
        pytest.skip("no cgroup v2 in which this user may make another")
    probe = folder / f"probe-{os.getpid()}"
    try:
        probe.mkdir()
        has_kill = (probe / "cgroup.kill").exists()
        probe.rmdir()
    except OSError as error:
        pytest.skip(f"no cgroup v2 in which this user may make another: {error}")
    if not has_kill:
        pytest.skip("cgroup.kill came with Linux 5.14")
    return folder


@pytest.mark.parametrize("code", [0, 5])
def test_what_forks_itself_anew_all_the_time_is_killed(node, code, way):  # noqa: F811
    assert node.run("hydra", "exit", code, env=way).code == code
    node.box.wait_gone()


def test_what_outlived_all_three_ends_when_the_next_run_starts(node):
    folder = needs_a_cgroup()
    run = start_hanging(node, *FAMILY)
    ctrun.kill_at_once(*three(node, run).values())
    ctrun.wait_until(lambda: run.code is not None, "the guard is gone")
    assert node.run("exit", "0").code == 0  # or another run on this machine came first
    node.box.wait_gone()
    ctrun.wait_until(lambda: not list(folder.glob(f"ctrun-*-{run.pid}-*")), "its cgroup is gone")


def test_a_run_that_counts_time_from_another_zero_lives_on(box):
    folder = needs_a_cgroup() / f"ctrun-test-{uuid.uuid4().hex[:8]}"
    other = ["unshare", "-T", "--boottime", "1000000"]
    if box.run(*other, "true").code:
        pytest.skip("no time namespace can be made here")
    folder.mkdir()
    inside = ["sh", "-c", f'echo $$ > {folder}/cgroup.procs; exec "$@"', "sh"]
    words = [ctrun.program("ctrun"), "--standalone", "--no-python", "sh", "-c"]
    run = box.start(*inside, *other, *words, "touch up; until [ -e go ]; do sleep 0.05; done")
    ctrun.wait_until(box.path("up").exists, lambda: f"up\n{run}")
    assert len(list(folder.glob("ctrun-*"))) == 1
    assert box.run(*inside, *words, "touch go").code == 0
    assert run.wait() == 0, run
    ctrun.wait_removed(folder)


def test_cgroups_of_runs_in_workers_go_with_that_of_the_killed_run(node):
    folder = needs_a_cgroup()
    run = start_hanging(node)
    [own] = folder.glob(f"ctrun-*-{run.pid}-*")
    (own / "ctrun-1-2-3" / "ctrun-1-4-5").mkdir(parents=True)  # as a ctrun in a ctrun has them
    ctrun.kill_at_once(*three(node, run).values())
    ctrun.wait_until(lambda: run.code is not None, "the guard is gone")
    after = node.run("exit", "0")  # or a run of somebody else here came first
    assert after.code == 0 and "could not be removed" not in after.err, after
    ctrun.wait_until(lambda: not own.exists(), "its cgroup is gone")


@pytest.mark.parametrize("step", ["-5", "4294967290"], ids=["batch script", "salloc"])
def test_a_run_that_srun_did_not_start_has_a_cgroup(node, step):
    folder = needs_a_cgroup()
    run = start_hanging(node, env={"SLURM_STEP_ID": step})
    assert len(list(folder.glob(f"ctrun-*-{run.pid}-*"))) == 1
    run.signal(signal.SIGTERM)
    assert run.wait(20) == 143


def test_workers_are_in_the_runs_cgroup_in_every_round(node):
    """Also in the round after the cgroup was killed, when no process can start in it any more."""
    needs_a_cgroup()
    ready = node.box.path("ready")
    script = node.box.write("member", f"""#!/bin/sh
        trap '' TERM
        while read -r line; do case $line in 0::*/ctrun-*) echo "in $CTRUN_GENERATION";; esac; done </proc/self/cgroup
        [ "$CTRUN_GENERATION" = 1 ] || exit 0
        [ "$RANK" = 0 ] && touch {ready}
        until [ -e {ready} ]; do sleep 0.05; done
        [ "$RANK" = 0 ] || exit 3
        while :; do sleep 1; done
        """, 0o755)
    run = node.run(program=[script], server=node.serve(max_restarts=1), options=["--grace", "100"])
    assert run.code == 0, run
    assert sorted(run.out.split("\n")[:-1]) == ["in 1", "in 1", "in 2", "in 2"]


@pytest.mark.parametrize("moment", ["harness", "worker_started"])
def test_kill_9_of_the_guard_at_the_start_leaves_nobody(node, moment):
    run = node.start("orphan", "hang", workers=4)
    if moment == "worker_started":
        node.box.wait_event("worker_started")
    os.kill(run.pid, signal.SIGKILL)
    node.box.wait_gone()


def test_the_guard_reports_the_agents_death(node):
    run = start_hanging(node, "orphan")
    os.kill(node.agent_pid(), signal.SIGALRM)  # neither agent nor sanitizers handle it
    assert run.wait(20) == 142
    assert "error[E_SIGNAL]: the agent died of SIGALRM" in run.err
    # Workers end by themselves then, but some may still be alive.
    assert re.search(r"^  killed     : pid \d+ \(victim\), pid \d+ \(victim\)", run.err, re.M), run


def test_a_signal_that_was_passed_on_is_named_though_another_followed(node):
    run = start_hanging(node)
    agent = node.agent_pid()
    sent = (signal.SIGALRM, signal.SIGVTALRM)  # not handled; the first is delivered first

    def status(name):
        text = pathlib.Path(f"/proc/{agent}/status").read_text()
        return re.search(rf"^{name}:\s*(\w+)", text, re.M).group(1)

    os.kill(agent, signal.SIGSTOP)
    ctrun.wait_until(lambda: status("State") == "T", "the agent is stopped")
    for number in sent:
        run.signal(number)
    ctrun.wait_until(lambda: all(int(status("ShdPnd"), 16) >> number - 1 & 1 for number in sent),
                     "both have come")
    os.kill(agent, signal.SIGCONT)
    assert run.wait(20) == 142
    assert "stopped by SIGALRM (14)" in run.err and "E_SIGNAL" not in run.err, run


def test_children_of_whoever_became_us_are_left_alone(node):
    server = node.serve(workers=1)
    pid_file = node.box.path("pid")
    run = node.box.run("sh", "-c", f'sleep 600 & echo $! > {pid_file}; exec "$@"', "sh",
                       ctrun.program("agent_harness"), "--server", server.address,
                       "--workers", "1", "--", "true")
    assert run.code == 0
    sleeper = int(pid_file.read_text())
    assert ctrun.is_alive(sleeper)
    os.kill(sleeper, signal.SIGKILL)


def test_orphans_are_buried_while_the_run_goes_on(node):
    run = start_hanging(node, "holder", workers=1)
    agent = node.agent_pid()

    def children():
        found = []
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                try:
                    with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as file:
                        fields = file.read().rpartition(")")[2].split()
                except OSError:
                    continue
                if int(fields[1]) == agent:
                    found.append((int(entry), fields[0]))
        return found

    orphans = [pid for pid, _ in children() if pid not in node.worker_pids(1)]
    assert len(orphans) == 1
    os.kill(orphans[0], signal.SIGKILL)
    ctrun.wait_until(lambda: len(children()) == 1, lambda: f"buried {children()}")
    run.signal(signal.SIGKILL)
    node.box.wait_gone()


def test_the_guard_sleeps(node):
    run = start_hanging(node)

    def switches():
        with open(f"/proc/{run.pid}/status", encoding="utf-8") as file:
            return [line for line in file if "ctxt_switches" in line]

    node.box.wait_event("worker_started", 2)
    def sleeps(heartbeats):
        before = switches()
        run.server.wait_for("HEARTBEAT", len(run.server.received("HEARTBEAT")) + heartbeats)
        return switches() == before

    # The agent runs meanwhile. Before, the guard reduces its memory.
    ctrun.wait_until(lambda: sleeps(2), lambda: f"the guard sleeps\n{switches()}")
    run.signal(signal.SIGTERM)
    run.wait()


def test_as_pid_1_of_a_container_it_buries_everybody(node):
    unshare = ["unshare", "--fork", "--pid", "--mount-proc"]
    if node.box.run(*unshare, "true").code != 0:
        pytest.skip("no PID namespace can be made here")
    run = node.box.run(*unshare, ctrun.program("agent_harness"), "--server",
                       node.serve().address, "--workers", "2", "--", ctrun.program("victim"),
                       "orphan", "@1", "exit", "4", "@0", "hang")
    assert run.code == 4, run
    assert node.box.events("guard_ended")[0]["survivors"] == 0
