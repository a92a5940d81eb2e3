# SPDX-License-Identifier: Apache-2.0
"""--hosts on several hosts, with a stand-in for ssh: one command, typed outside of the cluster or
on one of its hosts."""
import os
import signal

import ctrun
import fake_ssh
import pytest

SHOW = ["--no-python", "sh", "-c", 'echo "$(hostname) $RANK/$WORLD_SIZE $GROUP_RANK"']


@pytest.fixture
def cluster(box, lab):
    """cluster(N) boots N hosts and returns the ssh between them."""
    opened = []

    def boot(nodes):
        opened.append(fake_ssh.Lab(box, lab(nodes)))
        return opened[0]

    yield boot
    for each in opened:
        each.close()


def start(ssh, host, *words, env=None):
    names = {"CTRUN_HOSTS_ENV": "TMPDIR", "CTRUN_SSH": ssh.command, **(env or {})}
    return ssh.lab.start(host, ctrun.program("ctrun"), *words, env=names)


def test_one_command_on_node1_starts_all_and_they_meet_over_the_network(box, cluster):
    run = start(cluster(3), "node1", "--hosts=node[1-3]", "--nproc-per-node=2", *SHOW)
    assert run.wait(60) == 0, run
    assert sorted(run.out.splitlines()) == [
        f"node{n}: node{n} {2 * n - 2 + local}/6 {n - 1}" for n in (1, 2, 3) for local in (0, 1)]


def test_from_a_login_host_down_a_chain(box, cluster):
    run = start(cluster(3), "login1", "--hosts=node[1-3]", *SHOW,
                env={"CTRUN_HOSTS_FANOUT": "1"})
    assert run.wait(60) == 0, run
    assert sorted(run.out.splitlines()) == [f"node{n}: node{n} {n - 1}/3 {n - 1}"
                                            for n in (1, 2, 3)]


def test_files_that_only_the_login_host_has_go_down_a_chain(box, cluster):
    source = box.path("data")
    source.mkdir()
    (source / "bytes").write_bytes(os.urandom(5 << 20))
    box.write("data/train", "#!/bin/sh\nd=${0%/*}; cmp $d/bytes data/bytes && echo $(hostname)\n", 0o755)
    run = start(cluster(3), "login1", "--hosts=node[1-3]", "--stage=data", "data/train",
                env={"CTRUN_HOSTS_FANOUT": "1"})
    assert run.wait(60) == 0, run
    assert sorted(run.out.splitlines()) == [f"node{n}: node{n}" for n in (1, 2, 3)]
    (event,) = box.events("staged")
    # All hosts have one disk: it has three copies, and only one was sent from this host.
    assert len(list(box.dir.glob("ctrun-stage-*/*/data"))) == 3
    assert event["sent_bytes"] == event["bytes"] > 5 << 20


def test_a_host_without_power_is_one_line(box, cluster):
    ssh = cluster(3)
    ssh.lab.cut_power("node2")
    run = start(ssh, "node1", "--hosts=node[1-3]", *SHOW)
    assert run.wait(60) == 75, run
    errors = [line for line in run.err.splitlines() if "error[" in line]
    assert len(errors) == 1 and "node2: ssh ended with 255" in errors[0], run


def start_sleepers(box, ssh, *words):
    run = start(ssh, "node1", "--hosts=node[1-3]", *words, "--no-python", "sleep", "600")
    box.wait_workers(3, seconds=60)
    return run


def first_of(box):
    """The ctrun that was started with --hosts: the topmost process."""
    ours = [pid for pid in box.pids()
            if ctrun.cmdline(pid)[:1] == [ctrun.program("ctrun")]
            and "--relay" not in ctrun.cmdline(pid)
            and "CTRUN_HOST_SLOT" not in ctrun.environment(pid)]
    (first,) = [pid for pid in ours if ctrun.parent_of(pid) not in ours]
    return first


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGKILL, 137)])
def test_t23_whatever_ends_the_first_ctrun_ends_all_hosts(box, cluster, number, code):
    run = start_sleepers(box, cluster(3))
    os.kill(first_of(box), number)
    assert run.wait(30) == code, run
    box.wait_gone(20)


def test_after_a_power_cut_the_others_go_on(box, cluster):
    ssh = cluster(3)
    run = start_sleepers(box, ssh, "--nnodes=2:3", "--rdzv-conf=last_call_timeout=1")
    ssh.lab.cut_power("node3")

    def two():
        sizes = [ctrun.environment(pid).get("WORLD_SIZE") for pid in box.workers().values()]
        return sizes == ["2", "2"]

    ctrun.wait_until(two, lambda: f"a world of two\n{run}", 30)
    run.signal(signal.SIGTERM)
    assert run.wait(60) == 143, run


def test_doctor_finds_the_way_that_is_closed(box, cluster):
    ssh = cluster(3)
    words = ["--hosts=node[1-3]", ctrun.program("ctrunctl"), "doctor", "--net"]
    run = start(ssh, "node1", *words)
    assert run.wait(60) == 0 and "6 of 6 network paths between nodes work" in run.out, run
    ssh.lab.partition("-1", "node3", "node2")  # what node3 sends to node2 is lost
    run = start(ssh, "node1", *words)
    assert run.wait(60) == 1, run
    failed = [line for line in run.out.splitlines() if line.startswith("node1: fail")]
    assert failed and all("node2 -> node3: " in line or "node3 -> node2: " in line
                          for line in failed), run
    assert "--port-range" in failed[0], run
