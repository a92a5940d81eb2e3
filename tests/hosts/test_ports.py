# SPDX-License-Identifier: Apache-2.0
"""With --port-range ctrun uses only the ports that a firewall opens; without it the run ends and
names the pair of nodes that is blocked (T17)."""
import ctrun
from pair import start

FIREWALL = """
nft add table inet wall
nft add chain inet wall in '{ type filter hook input priority 0; }'
nft add rule inet wall in iif lo accept
nft add rule inet wall in ct state established,related accept
nft add rule inet wall in meta l4proto { icmp, icmpv6 } accept
nft add rule inet wall in tcp dport 29400-29420 accept
nft add rule inet wall in counter reject
"""


def test_t17_everything_keeps_to_the_ports_that_a_firewall_lets_through(box, lab):
    """Rendezvous, worker store and the process groups of libctrun, both ways between the nodes."""
    hosts = lab(2)
    for node in ("node1", "node2"):
        hosts.sh(node, FIREWALL)
    runs = [hosts.start(node, ctrun.program("ctrun"), "--nnodes=2", "--rdzv-endpoint=10.77.0.11",
                        "--nproc-per-node=2", "--port-range=29400-29420",
                        ctrun.program("03_all_reduce")) for node in ("node1", "node2")]
    assert [run.wait(60) for run in runs] == [0, 0], runs


def test_t17_the_firewall_of_these_tests_stops_a_run_that_chooses_freely(box, lab):
    """Else the test above could not fail."""
    hosts = lab(2)
    hosts.sh("node1", FIREWALL)
    runs = [start(box, hosts, node, "10.77.0.11:29400") for node in ("node1", "node2")]
    assert [run.wait(40) for run in runs] == [75, 75], runs
    assert all("error[E_UNREACHABLE]: node2 cannot reach node1" in run.err for run in runs), runs
