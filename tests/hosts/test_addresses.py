# SPDX-License-Identifier: Apache-2.0
"""Nodes find each other whatever names and address families they have (T15, T16, T18):
workers get a numeric address that works from their node."""
import ctrun
import pytest
from pair import names, run_both, start, told

BLACK_HOLE = """
echo "127.0.0.1 localhost" >/etc/hosts
echo "nameserver 10.77.0.250" >/etc/resolv.conf
echo "hosts: files dns" >/etc/nsswitch.conf
nft add table inet dns
nft add counter inet dns asked
nft add chain inet dns out '{ type filter hook output priority 0; }'
nft add rule inet dns out meta l4proto '{ udp, tcp }' th dport 53 counter name asked drop
"""


def test_t15_a_numeric_endpoint_asks_no_name_server(box, lab):
    hosts = lab(2)
    for node in ("node1", "node2"):
        hosts.sh(node, BLACK_HOLE)
    runs = run_both(box, hosts, f"{hosts.ip('node1')}:29400", "--nproc-per-node=2")
    for node, run in zip(("node1", "node2"), runs):
        assert "DNS" not in run.err, run
        assert {line[1] for line in told(run)} == {hosts.ip("node1")}, run
        assert "packets 0 " in hosts.sh(node, "nft list counter inet dns asked")
    alone = hosts.start("node2", ctrun.program("ctrun"), "--standalone", "--no-python", "true")
    assert alone.wait() == 0, alone
    assert "packets 0 " in hosts.sh("node2", "nft list counter inet dns asked")


def test_t15_the_counter_counts(lab):
    """A query is counted: otherwise the test above could not fail."""
    hosts = lab(1)
    hosts.sh("node1", BLACK_HOLE + "getent -s dns hosts somebody || true")
    assert "packets 0 " not in hosts.sh("node1", "nft list counter inet dns asked")


@pytest.mark.parametrize("endpoint", ["10.77.0.11", "10.78.0.11", "node1"])
def test_t16_own_names_that_are_loopback_mislead_nobody(box, lab, endpoint):
    """As on Debian: each machine's own name is 127.0.1.1 in its /etc/hosts."""
    hosts = lab(2, nics=2)
    names(hosts, "node1", "127.0.1.1 node1", "10.77.0.12 node2")
    names(hosts, "node2", "127.0.1.1 node2", "10.77.0.11 node1")
    runs = run_both(box, hosts, f"{endpoint}:29400")
    wanted = "10.77.0.11" if endpoint == "node1" else endpoint
    nic = "hsn0" if wanted.startswith("10.78") else "eth0"
    for run, own in zip(runs, (".11", ".12")):
        assert [line[1] for line in told(run)] == [wanted], run
        assert (f"using {nic} {wanted[:-3]}{own} for rendezvous, NCCL, Gloo" in run.err) == \
            (own == ".11"), run


@pytest.mark.parametrize("endpoint", ["[fd00::1]:29411", "fd00::1", "fe80::1%{nic}",
                                      "[fe80::1%{nic}]:29411"])
def test_t18_all_forms_of_v6_endpoints_work_without_v4(box, lab, endpoint):
    hosts = lab(2)
    for last, node, nic in ((1, "node1", "v0"), (2, "node2", "w0")):
        hosts.sh(node, f"""
            ip -4 addr flush dev eth0; ip link set eth0 down; ip link set eth0 name {nic}
            ip link set {nic} up; ip addr add fd00::{last}/64 dev {nic} nodad
            ip addr add fe80::{last}/64 dev {nic} nodad""")
    runs = [start(box, hosts, node, endpoint.format(nic=nic), "--nproc-per-node=2")
            for node, nic in (("node1", "v0"), ("node2", "w0"))]
    assert [run.wait(30) for run in runs] == [0, 0], runs
    for run, nic in zip(runs, ("v0", "w0")):
        wanted = f"fe80::1%{nic}" if "fe80" in endpoint else "fd00::1"
        assert {tuple(line[1:2] + line[3:]) for line in told(run)} == {
            (wanted, f"={nic}", nic)}, run


def test_t18_a_v4_that_leads_nowhere_does_not_matter_beside_v6(box, lab):
    hosts = lab(2)
    for last, node in ((11, "node1"), (12, "node2")):
        hosts.sh(node, f"ip -4 addr flush dev eth0; ip addr add 192.0.2.{last}/32 dev eth0")
        names(hosts, node, "192.0.2.11 head", "fd77::11 head")
    for run in run_both(box, hosts, "head:29400"):
        assert told(run)[0][1] == "fd77::11", run


def test_t18_without_ipv6_everything_goes_by_v4(box, lab):
    hosts = lab(2)
    for node in ("node1", "node2"):
        hosts.sh(node, "for f in /proc/sys/net/ipv6/conf/*/disable_ipv6; do echo 1 >$f; done")
    for run in run_both(box, hosts, "10.77.0.11:29400", "--nproc-per-node=2"):
        assert told(run)[0][1] == "10.77.0.11", run
