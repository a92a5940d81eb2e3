# SPDX-License-Identifier: Apache-2.0
"""--ha: the run's own etcd, on its first nodes."""
import json
import os
import pathlib
import signal
import socket
import ssl
import time
import urllib.error
import urllib.request

import ctrun
import ha_job as ha
import pytest
from ha_job import ha_job  # noqa: F401

KILLS = int(os.environ.get("CTRUN_TEST_HA_KILLS", "1"))
MEET = ["--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:29400", "true"]


# ---- What can not be done is refused before anything starts

@pytest.mark.parametrize("words, says", [
    (["--ha", "--nnodes=2"], "3 nodes at least are needed"),
    (["--ha=5", "--nnodes=1:4"], "5 nodes at least are needed"),
    (["--ha=4", "--nnodes=5"], "3 or 5 members are possible"),
    (["--ha", "--nnodes=3", "--rdzv-backend=static"], "works with --rdzv-backend=c10d alone"),
    (["--ha", "--nnodes=3", "--rdzv-backend=etcd", "--rdzv-id=j"], "leave --ha out"),
    (["--ha", "--hosts=a,b,c"], "--ha: does not work with --hosts"),
])
def test_what_cannot_be_is_refused_in_one_line(box, words, says):
    run = box.ctrun(*MEET[:2], *words, "true")
    assert run.code == 2, run
    assert says in run.err.splitlines()[0], run


@pytest.mark.parametrize("program, package", [("etcd", "etcd-server"), ("openssl", "openssl")])
def test_a_program_that_is_missing_is_named_with_its_package(box, program, package):
    folder = box.path("bin")
    folder.mkdir()
    for name in ("etcd", "openssl", "true"):
        if name != program:
            (folder / name).symlink_to("/bin/true")
    run = box.ctrun("--ha", "--nnodes=3", *MEET, env={"PATH": str(folder)})
    assert run.code == 1, run
    assert f"the program {program} is not in PATH" in run.err, run
    assert f"apt install {package}" in run.err, run
    assert not ha.folders(box)


# ---- The founder and its loss

def test_the_founder_dies_and_the_run_goes_on(box, ha_job):
    job = ha_job("1:3", 3)
    job.wait_survives()
    for _ in range(KILLS):
        before = job.wait_world(len(job.nodes))
        node, _ = job.host()
        began = time.monotonic()
        job.kill(node)
        job.wait_world(len(job.nodes), after=before, seconds=20)
        print(f"new world after {time.monotonic() - began:.1f} s")
    job.finish()


def test_status_says_what_is_so_and_no_more(box, ha_job):
    job = ha_job("3", 3)
    job.wait_survives()
    node = job.nodes[0]
    ctrun.wait_until(lambda: "survives the loss of 1 of 3 nodes" in job.status(node),
                     lambda: job.status(node))
    run = box.run(ctrun.program("ctrunctl"), "status", "--json", env=job.env)
    assert {"nodes": 3, "survives": 1} in [each["ha"] for each in json.loads(run.out)["runs"]], run
    job.finish()


def test_workers_do_not_wait_for_it_and_its_loss_before_is_explained(box, ha_job):
    """etcd never answers: the run is as one without --ha, and its error says so."""
    box.write("etcd", "#!/bin/sh\nexec sleep 1000\n", 0o755)
    job = ha_job("3", 3, env={"CTRUN_HA_ETCD": str(box.path("etcd"))})
    box.wait_event("ha_member", count=3, what="started")
    assert "does not survive the loss" in job.status(job.nodes[0])
    founder = next(node for node in job.nodes if "serving the rendezvous" in node.err or
                   ctrun.guards_of(box.events("ha_state")[0]["pid"])[1] == node.pid)
    job.kill(founder)
    for node in job.nodes:
        assert node.wait() == 75, node
        assert "error[E_NO_HA]" in node.err, node
        assert "its members were still starting" in node.err, node


def test_an_etcd_that_cannot_start_costs_the_run_nothing(box, ha_job):
    box.write("etcd", "#!/bin/sh\nprintf '{\"msg\":\"no disk\"}\\n%1000s' stack >&2\nexit 1\n", 0o755)
    job = ha_job("3", 3, env={"CTRUN_HA_ETCD": str(box.path("etcd"))})
    box.wait_event("ha_member", count=3, what="died")
    box.wait_event("ha_state", **{"from": "starting", "to": "waiting"})
    job.finish()
    assert any("etcd has ended on this node: \"no disk\"" in node.err for node in job.nodes)


def test_an_openssl_that_fails_is_quoted_and_costs_the_run_nothing(box, ha_job):
    box.write("openssl", "#!/bin/sh\necho no digest >&2\nexit 1\n", 0o755)
    job = ha_job("3", 3, env={"CTRUN_HA_OPENSSL": str(box.path("openssl"))})
    line = f"--ha: this node takes no part in the run's etcd: {box.path('openssl')} cannot make certificates: no digest"
    ctrun.wait_until(lambda: all(line in node.err for node in job.nodes), lambda: job.nodes)
    job.finish()


# ---- Members that are lost

def test_a_lost_member_is_replaced_by_another_node(box, ha_job):
    job = ha_job("1:4", 4)
    job.wait_survives()
    members = {event["pid"] for event in box.events("ha_member", what="runs")}
    host = job.host()[1]
    node = next(node for node in job.nodes
                if any(ctrun.guards_of(pid)[1] == node.pid for pid in members - {host}))
    job.kill(node)
    box.wait_event("ha_state", seconds=60, **{"from": "promoting", "to": "active"})
    job.wait_survives(count=2, seconds=60)
    ctrun.wait_until(lambda: len(ha.etcds(box)) == 3, lambda: f"three of etcd: {ha.etcds(box)}")  # that of the lost node has ended
    job.finish()


def test_a_node_that_was_stopped_finds_the_founder_where_it_listens(box, ha_job):
    """The endpoint, which is loopback here, is the only address of the founder that etcd has."""
    job = ha_job("1:3", 3)
    job.wait_survives()
    host = job.host()[1]
    agent = next(pid for node in job.nodes for pid in ctrun.below(node.pid)[1:] if pid != host)
    os.kill(agent, signal.SIGSTOP)
    generation = job.wait_world(2, after=1, seconds=40)
    os.kill(agent, signal.SIGCONT)
    job.wait_world(3, after=generation, seconds=40)
    assert job.host()[1] == host
    job.finish()


def test_a_member_that_dies_comes_back_as_another(box, ha_job):
    """It may be the leader of etcd: agents wait longer than etcd takes to elect another one."""
    job = ha_job("3", 3, "--rdzv-conf=keep_alive_interval=20,keep_alive_max_attempt=3")
    job.wait_survives()
    os.kill(ha.etcds(box)[0], signal.SIGKILL)
    box.wait_event("ha_member", what="died")
    assert any("etcd has ended on this node: signal 9" in node.err for node in job.nodes)
    job.wait_survives(count=2, seconds=60)
    assert job.wait_world(3) == 1  # the workers keep running
    job.finish()


def test_without_more_than_half_of_the_members_nothing_lives_on(box, ha_job):
    job = ha_job("1:3", 3, "--rdzv-conf=read_timeout=4")
    job.wait_survives()
    lost = [pid for node in job.nodes[:2] for pid in [node.pid, *ctrun.below(node.pid)]]
    ctrun.kill_at_once(*lost)
    left = job.nodes[2]
    assert left.wait() == 75, left
    assert "error[E_NO_HA]: the rendezvous on " in left.err, left
    assert "more than half of its members are lost" in left.err, left
    box.wait_gone()
    assert [event["generation"] for event in box.events("worker_started")] == [1, 1, 1]


@pytest.mark.parametrize("token", [None, "sixteen bytes at least"])
def test_a_node_that_starts_anew_at_the_endpoint_finds_the_run(box, ha_job, token):
    """It founds no second run, and tells later nodes where the run is."""
    job = ha_job("1:4", 3, "--rdzv-conf=last_call_timeout=1", *(["--encrypt"] if token else []),
                 env={"CTRUN_TOKEN": token} if token else None)
    job.wait_survives()
    founder, _ = job.host()
    job.kill(founder)
    generation = job.wait_world(2, after=1)
    for size in (3, 4):
        job.start(1)
        generation = job.wait_world(size, after=generation, seconds=30)
    assert "run 'job' is already running" in job.nodes[2].err, job.nodes[2]
    job.finish()


def finish_without_spares(box, job, generation):
    """A spare may still be on its way to the server when the run ends."""
    world = {event["pid"] for event in box.events("round_started", generation=generation)}
    for node in list(job.nodes):
        if not world & set(ctrun.below(node.pid)):
            job.kill(node)
    job.finish()


def test_as_many_new_nodes_as_a_world_needs_found_none_beside_the_one_that_lives(box, ha_job):
    job = ha_job("1:3", 3)
    job.wait_survives()
    founder, _ = job.host()
    job.kill(founder)
    generation = job.wait_world(2, after=1)
    old = {event["pid"] for event in box.events("round_started", generation=generation)}
    job.start(3)
    after = job.wait_world(3, after=generation, seconds=30)
    for event in box.events("round_started"):
        if event["generation"] > generation:
            world = {each["pid"] for each in box.events("round_started", generation=event["generation"])}
            assert old <= world, event
    assert after > generation
    finish_without_spares(box, job, after)


def test_a_founder_that_returns_before_another_is_elected_joins_the_run_that_lives(box, ha_job):
    """It has a new control folder, as in a new container. It may be elected itself: the others
    reach it."""
    job = ha_job("1:3", 3)
    job.wait_survives()
    founder, _ = job.host()
    job.kill(founder)
    job.env["CTRUN_CONTROL_DIR"] = str(box.path("control"))
    job.start(1)
    job.wait_world(3, after=1, seconds=40)
    elected = {event["pid"] for event in box.events("election", to="leading")}
    begun = {(event["generation"], event["pid"]) for event in box.events("round_changed", to="running")}
    assert len(begun) == len({generation for generation, _ in begun}), begun
    assert {pid for generation, pid in begun if generation > 1} <= elected, begun  # the founder alone founds nothing
    assert "run 'job' is already running" in job.nodes[2].err, job.nodes
    job.finish()


# ---- No process is left, no other client gets in

@pytest.mark.parametrize("victim", ["guard", "agent"])
def test_whoever_is_killed_nothing_is_left(box, ha_job, victim):
    job = ha_job("1:3", 3)
    job.wait_survives()
    for node in job.nodes:
        os.kill(node.pid if victim == "guard" else ctrun.below(node.pid)[1], signal.SIGKILL)
    for node in job.nodes:
        node.wait()
    ha.assert_nothing_is_left(box)


def test_a_folder_whose_keeper_was_killed_goes_when_the_next_run_starts(box, ha_job):
    job = ha_job("3", 3)
    job.wait_survives()
    os.kill(ha.children_of(job.nodes[0].pid)["ctrun-ha"], signal.SIGKILL)
    ctrun.wait_until(lambda: len(ha.etcds(box)) == 2, "its etcd ends with it")
    job.finish()
    assert len(ha.folders(box)) == 1
    again = ha.Job(box, "3", program=["true"])
    again.start(3)
    for node in again.nodes:
        assert node.wait() == 0, node


def test_etcd_listens_to_this_run_alone(box, ha_job):
    job = ha_job("3", 3)
    job.wait_survives()
    for pid in ha.etcds(box):
        words = ctrun.cmdline(pid)
        at = words[words.index("--listen-client-urls") + 1]
        assert at.startswith("https://127.0.0.1:")
        port = int(at.rpartition(":")[2])
        context = ssl._create_unverified_context()
        with pytest.raises((ssl.SSLError, OSError)), socket.create_connection(("127.0.0.1", port)) as plain, \
                context.wrap_socket(plain) as tls:
            tls.sendall(b"GET /version HTTP/1.0\r\n\r\n")
            assert not tls.recv(1000)  # without our certificate there is no answer
            raise OSError("closed")
        folder = pathlib.Path(f"/proc/{pid}/cwd")
        assert folder.stat().st_mode & 0o777 == 0o700
        assert (folder / "me.key").stat().st_mode & 0o777 == 0o600
        assert not (folder / "ca.key").exists()
        context = ssl.create_default_context(cafile=folder / "ca.pem")
        context.load_cert_chain(folder / "me.pem", folder / "me.key")
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"{at}/v3/kv/range", b'{"key":"AA==","range_end":"AA=="}',
                                   context=context)
        assert refused.value.code in (400, 403)  # a certificate alone is not enough to read
    job.finish()
