# SPDX-License-Identifier: Apache-2.0
"""Endpoints that do not exist: a name that appears late (T14), an address that no node owns (E01),
a host where nobody listens."""
import re

import ctrun
from pair import names, start


def test_t14_a_name_that_appears_late_is_asked_for_again(box, lab):
    hosts = lab(2)
    names(hosts, "node2", "10.77.0.99 somebody-else")
    runs = [start(box, hosts, node, "node1:29400") for node in ("node1", "node2")]
    ctrun.wait_until(lambda: re.search(r"waiting for DNS: 'node1' not found \(.*\), ([4-9]|\d\d+) s",
                                       runs[1].err), lambda: f"node2 says so: {runs[1]}", 20)
    names(hosts, "node2", f"{hosts.ip('node1')} node1")
    assert [run.wait(40) for run in runs] == [0, 0], runs


def test_an_address_that_no_node_owns_is_said_so_on_every_node(box, lab):
    """E01: each node prints the address that was asked for and its own, first while it waits."""
    hosts = lab(2)
    runs = [start(box, hosts, node, "10.77.0.99:29400", "--rdzv-conf=read_timeout=8")
            for node in ("node1", "node2")]
    for run, node, own in zip(runs, ("node1", "node2"), (".11", ".12")):
        ctrun.wait_until(lambda run=run: "does not own that address" in run.err, lambda: f"{runs}", 20)
        assert run.wait(30) == 75, run
        assert f"error[E_UNREACHABLE]: {node} cannot reach the rendezvous at 10.77.0.99:29400" in run.err, run
        assert "No route to host: no machine answers at that address, or " in run.err, run
        assert f"this node  : {node}, addresses 10.77.0{own} (eth0)" in run.err, run


def test_a_host_where_nobody_listens_is_told_from_one_that_is_away(box, lab):
    hosts = lab(3)
    run = start(box, hosts, "node2", "10.77.0.13:29400", "--rdzv-conf=read_timeout=1")
    assert run.wait(20) == 75, run
    assert "error[E_NO_HOST]" in run.err and "Connection refused" in run.err, run
    hosts.sh("node3", "nft add table inet wall; nft add chain inet wall in "
             "'{ type filter hook input priority 0; }'; nft add rule inet wall in tcp dport 29400 drop")
    run = start(box, hosts, "node2", "10.77.0.13:29400", "--rdzv-conf=read_timeout=1")
    assert run.wait(20) == 75, run
    assert "error[E_UNREACHABLE]: node2 cannot reach the rendezvous at 10.77.0.13:29400" in run.err, run
