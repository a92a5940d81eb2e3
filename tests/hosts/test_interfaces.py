# SPDX-License-Identifier: Apache-2.0
"""Nodes with many interfaces: ctrun finds the one that works and sets it for the libraries, or the
user chooses one; every node names a blocked port (T17)."""
import re

import ctrun
import pytest
from pair import NOT_SHARED, SERVER, run_both, start, told
from torch_job import has_torch

DOCKER = """
ip link add docker0 type bridge
ip link add veth0 type veth peer name veth1
ip link set veth0 master docker0
ip addr add 172.17.0.1/16 dev docker0
ip link set docker0 up; ip link set veth0 up; ip link set veth1 up
"""
WALL = """
nft add table inet wall
nft add chain inet wall in '{{ type filter hook input priority 0; }}'
nft add rule inet wall in {} tcp dport 29611 {}
"""


@pytest.fixture
def traps(lab):
    """Two nodes with one interface that works and others that lead nowhere."""
    hosts = lab(2)
    for node, last in (("node1", 11), ("node2", 12)):
        hosts.sh(node, DOCKER + f"""
            ip link add adead0 type veth peer name adead1
            ip addr add 10.66.0.{last}/24 dev adead0; ip link set adead0 up""")
    hosts.sh("node2", "ip link set eth0 down; ip link set eth0 name ctbr0; ip link set ctbr0 up")
    return hosts


def test_t17_libraries_are_told_the_interface_that_works(box, traps):
    runs = run_both(box, traps, "10.77.0.11:29400", "--nproc-per-node=2")
    for run, nic, own in zip(runs, ("eth0", "ctbr0"), (".11", ".12")):
        assert {tuple(line[1:2] + line[3:]) for line in told(run)} == {
            ("10.77.0.11", f"={nic}", nic)}, run
        assert run.err.count(f"using {nic} 10.77.0{own} for rendezvous, NCCL, Gloo") == \
            (own == ".11"), "the first node says it, once a run"


def test_t17_what_the_user_has_set_stays(box, traps):
    runs = run_both(box, traps, "10.77.0.11:29400",
                    env={"NCCL_SOCKET_IFNAME": "^lo", "GLOO_SOCKET_IFNAME": "docker0"})
    for run in runs:
        assert [line[3:] for line in told(run)] == [["^lo", "docker0"]], run
    assert "for rendezvous\n" in runs[0].err, runs


def test_t17_a_blocked_port_is_named_on_every_node(box, traps):
    traps.sh("node1", WALL.format("iifname eth0", "reject with tcp reset"))
    runs = [start(box, traps, node, "10.77.0.11:29400", "--port-range=29611")
            for node in ("node1", "node2")]
    assert [run.wait(40) for run in runs] == [75, 75], runs
    for run in runs:
        assert re.search(r"error\[E_UNREACHABLE\]: node2 cannot reach node1 on 10\.77\.0\.11:29611 "
                         r"\(Connection refused, 3 tries in ", run.err), run
        assert "works      : node2 (10.77.0.12) -> 10.77.0.11:29400 (rendezvous)" in run.err, run
        assert "--port-range" in run.err, run
    assert "told" not in runs[1].out, runs


def test_t17_the_other_network_is_used_by_all_where_the_first_is_blocked(box, lab):
    hosts = lab(2, nics=2)
    hosts.sh("node1", WALL.format("iifname eth0", "drop"))
    runs = run_both(box, hosts, "10.77.0.11:29400", "--port-range=29611")
    for rank, run in zip("01", runs):
        assert told(run) == [[rank, "10.78.0.11", "29611", "=hsn0", "hsn0"]], run
        assert "new round on another network: node2 cannot reach node1 on 10.77.0.11, but can on " \
            "10.78.0.11\n" in run.err, run


CUT = "nft add table inet cut; nft add chain inet cut in '{{ type filter hook input priority 0; }}';" \
    "nft add rule inet cut in iifname {} ip saddr {} drop"


def run_three(box, hosts):
    """node1 owns the endpoint, so it has rank 0."""
    runs = [start(box, hosts, node, "10.77.0.11:29400", "--nnodes=3")
            for node in ("node1", "node2", "node3")]
    assert [run.wait(60) for run in runs] == [0, 0, 0], runs
    return runs


def test_a_cut_between_two_other_nodes_moves_all_to_another_network(box, lab):
    """Both reach rank 0 on the first network: to check that alone is not enough."""
    hosts = lab(3, nics=2)
    hosts.sh("node2", CUT.format("eth0", "10.77.0.13"))
    for run in run_three(box, hosts):
        assert [line[1:2] + line[3:] for line in told(run)] == [
            ["10.78.0.11", "=hsn0", "hsn0"]], "in one round only"
        assert "new round on another network: node" in run.err, run
    assert {event["reason"].split(" (")[0].rsplit(":", 1)[0] for event in box.events("node_unreachable")} <= {
        "cannot reach node3 on 10.77.0.13", "cannot reach node2 on 10.77.0.12"}
    assert {event["restart_count"] for event in box.events("round_started")} == {0}


def test_where_no_network_reaches_all_the_first_is_used_and_told(box, lab):
    hosts = lab(3, nics=2)
    hosts.sh("node2", CUT.format("eth0", "10.77.0.13"))
    hosts.sh("node2", "nft add rule inet cut in ip saddr 10.78.0.13 drop")
    hosts.sh("node2", "nft add rule inet cut in ip6 saddr '{ fd77::13, fd78::13 }' drop")
    runs = run_three(box, hosts)
    for run in runs:
        assert [line[1:2] + line[3:] for line in told(run)] == [["10.77.0.11", "=eth0", "eth0"]], run
    assert "on each network of node1 some node could not reach another: the first network is used" in runs[0].err


@pytest.mark.parametrize("address", ["10.77.0.11", "node1"])
def test_a_cut_on_a_network_that_was_typed_is_told_while_the_workers_run(box, lab, address):
    """MASTER_ADDR stays as it was typed: no other network is tried."""
    hosts = lab(3, nics=2)
    hosts.sh("node2", CUT.format("eth0", "10.77.0.13"))
    runs = [hosts.start(f"node{rank + 1}", ctrun.program("ctrun"), "--nnodes=3", f"--node-rank={rank}",
                        f"--master-addr={address}", "--master-port=29611", "sh", "-c",
                        "echo at $MASTER_ADDR; exec sleep 600") for rank in range(3)]
    reason = box.wait_event("node_unreachable")[0]["reason"].split(" (")[0].rsplit(":", 1)[0]
    assert reason in {"cannot reach node3 on 10.77.0.13", "cannot reach node2 on 10.77.0.12"}
    ctrun.wait_until(lambda: any("was given: if workers hang" in run.err for run in runs), "a warning")
    ctrun.wait_until(lambda: all(run.out == f"at {address}\n" for run in runs), "all workers run")
    for run in reversed(runs):  # the one that serves the rendezvous is the last
        run.signal(15)
        assert run.wait(60) == 143, runs


def test_a_master_port_where_nobody_listens_yet_is_a_way_to_its_host(box, traps):
    script = box.write("serve.py", SERVER)
    runs = [traps.start(node, ctrun.program("ctrun"), "--nnodes=2",
                        "--rdzv-endpoint=10.77.0.11:29400", script, env=NOT_SHARED)
            for node in ("node1", "node2")]
    assert [run.wait(30) for run in runs] == [0, 0], runs
    assert [run.out for run in runs] == ["store 0 False\n", "store 1 False\n"], runs


def test_nodes_that_differ_in_who_serves_the_store_do_not_meet(box, lab):
    hosts = lab(2)
    first = start(box, hosts, "node1", "10.77.0.11:29400")
    box.wait_event("agent_state", to="joining")
    other = start(box, hosts, "node2", "10.77.0.11:29400", env=NOT_SHARED)
    assert other.wait(30) == 77, other
    assert "error[E_FINGERPRINT]" in other.err and \
        "this node has --nnodes=2:2 --max-restarts=0 --rdzv-backend=c10d " \
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1" in other.err, other
    first.signal(15)
    assert first.wait(30) == 143, first


@pytest.mark.parametrize("net", ["hsn0", "10.78.0.0/24", "ib0,hsn0"])
def test_t17_net_and_port_range_are_kept_to(box, lab, net):
    hosts = lab(2, nics=2)
    runs = run_both(box, hosts, "10.77.0.11:29400", f"--net={net}", "--port-range=29600-29610",
                    "--nproc-per-node=2")
    for run in runs:
        for _, address, port, nccl, gloo in told(run):
            assert (address, nccl, gloo) == ("10.78.0.11", "=hsn0", "hsn0"), run
            assert 29600 <= int(port) <= 29610, run


def test_a_local_addr_by_name_becomes_the_number_that_others_need(box, lab):
    """Only the node itself may know its names on other networks (node1-hsn0)."""
    hosts = lab(2, nics=2)
    hosts.sh("node2", "echo '127.0.0.1 localhost' >/etc/hosts")
    runs = [start(box, hosts, node, "10.77.0.11:29400", f"--local-addr={address}")
            for node, address in (("node1", "node1-hsn0"), ("node2", "10.78.0.12"))]
    assert [run.wait(30) for run in runs] == [0, 0], runs
    for run in runs:
        assert [(line[1], line[4]) for line in told(run)] == [("10.78.0.11", "hsn0")], run


def test_t17_a_net_that_a_node_lacks_is_refused_with_what_it_has(box, lab):
    hosts = lab(2)
    run = start(box, hosts, "node2", "10.77.0.11:29400", "--net=10.78.0.0/16")
    assert run.wait() == 2, run
    assert "error[E_USAGE]: --net=10.78.0.0/16: node2 has no such interface or address; it has 10.77.0.12 (eth0)" \
        in run.err, run


GLOO = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.ones(1000) * (dist.get_rank() + 1)
dist.all_reduce(x)
assert x[0].item() == 3, x[0]
dist.destroy_process_group()
print("reduced", flush=True)
"""


def test_t17_gloo_of_stock_pytorch_meets_in_spite_of_the_traps(box, traps):
    """Own names are 127.0.1.1, and both nodes have docker0: by itself gloo would use one of
    these."""
    if not has_torch(ctrun.DEBIAN_PYTHON):
        pytest.skip("no torch for " + ctrun.DEBIAN_PYTHON)
    for node in ("node1", "node2"):
        traps.sh(node, f"printf '127.0.0.1 localhost\\n127.0.1.1 {node}\\n' >/etc/hosts")
    script = box.write("gloo.py", GLOO)
    runs = [traps.start(node, ctrun.program("ctrun"), "--nnodes=2",
                        "--rdzv-endpoint=10.77.0.11:29400", "--no-python", ctrun.DEBIAN_PYTHON, script)
            for node in ("node1", "node2")]
    assert [run.wait(60) for run in runs] == [0, 0], runs
    assert all("reduced" in run.out for run in runs), runs
