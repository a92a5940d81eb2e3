# SPDX-License-Identifier: Apache-2.0
"""MUNGE: the nodes of one user prove to each other who they are, with a real munged on each host."""
import os
import stat

import ctrun
import pytest


@pytest.fixture
def cluster(box, slurm):
    """Hosts with munged; users other than root may write into the box."""
    hosts = slurm(2)
    os.chmod(box.dir, 0o1777)
    box.events_path.touch()
    box.events_path.chmod(stat.S_IRWXU | stat.S_IRWXG | stat.S_IRWXO)
    return hosts


def start(box, hosts, node, *options, user="alice", program=("true",), env=None):
    place = box.path(f"{user}-{node}")
    place.mkdir(mode=0o777, exist_ok=True)
    place.chmod(0o777)
    words = [ctrun.program("ctrun"), "--nnodes=2", "--rdzv-endpoint=10.77.0.11:29400", "--rdzv-id=m",
             *options, "--no-python", *program]
    return hosts.start("-u", user, node, *words,
                       env={"CTRUN_CONTROL_DIR": str(place), "TMPDIR": str(place), **(env or {})})


def test_nodes_of_one_user_meet_by_munge(box, cluster):
    runs = [start(box, cluster, node, "--auth=munge", *extra)
            for node, extra in (("node1", ["--encrypt"]), ("node2", ["--encrypt"]))]
    assert [run.wait() for run in runs] == [0, 0], runs


def test_another_user_and_who_proves_nothing_are_refused(box, cluster):
    first = start(box, cluster, "node1", "--auth=munge")
    box.wait_event("link_state", to="up")
    # munged decodes the credential for no other user: what bob's ctrun checks does not matter.
    for options, user, words in ((["--auth=munge"], "bob", ("MUNGE", "Unauthorized credential")),
                                 (["--auth=none"], "alice", ("asks for proof by MUNGE",))):
        other = start(box, cluster, "node2", *options, user=user)
        assert other.wait() == 77, other
        assert "error[E_AUTH]" in other.err and all(w in other.err for w in words), other
    second = start(box, cluster, "node2", "--auth=munge")
    assert [run.wait() for run in (first, second)] == [0, 0], (first, second)


def test_a_server_of_another_user_is_refused(box, cluster):
    """bob serves at alice's endpoint first: her node refuses his server."""
    server = start(box, cluster, "node1", "--auth=munge", user="bob")
    box.wait_event("link_state", to="up")
    mine = start(box, cluster, "node2", "--auth=munge")
    assert mine.wait() == 77, mine
    assert "error[E_AUTH]" in mine.err, mine
    server.signal(15)
    server.wait()


def test_srun_alone_uses_munge(box, cluster):
    """A node that knows endpoint and run id, but proves nothing by MUNGE, is refused."""
    go = box.path("go")
    script = 'echo "$MASTER_PORT $TORCHELASTIC_RUN_ID"; while [ ! -e "$GO" ]; do sleep 0.05; done'
    run = cluster.start("login1", "srun", "-N2", "--ntasks-per-node=1", ctrun.program("ctrun"),
                        "--no-python", "sh", "-c", script, env={"GO": str(go)})
    ctrun.wait_until(lambda: run.out.count("slurm-") == 2, lambda: f"both ranks: {run}", 60)
    store, run_id = run.out.split()[:2]
    listening = {line.split()[3] for line in cluster.sh("node1", "ss -Hltnp").split("\n")
                 if "ctrun" in line}
    ports = {place.rpartition(":")[2] for place in listening} - {store}
    assert len(ports) == 1, listening
    other = cluster.start("node2", ctrun.program("ctrun"), "--nnodes=2", f"--rdzv-id={run_id}",
                             f"--rdzv-endpoint=node1:{ports.pop()}", "--rdzv-conf=is_host=0",
                             "--no-python", "true")
    assert other.wait() == 77, other
    assert "asks for proof by MUNGE" in other.err, other
    go.touch()
    assert run.wait() == 0, run


def test_without_munged_auth_munge_says_so(box, lab):
    hosts = lab(1)
    run = start(box, hosts, "node1", "--auth=munge", user="root")
    assert run.wait() == 2, run
    assert "error[E_USAGE]: --auth=munge: MUNGE: " in run.err, run
