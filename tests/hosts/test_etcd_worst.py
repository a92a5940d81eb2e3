# SPDX-License-Identifier: Apache-2.0
"""--rdzv-backend=etcd on several hosts: the host of the rendezvous server leads the etcd, too; a
server's host that is cut off never has workers beside those of the next world."""
import ctrun
import etcd_hosts


def test_a_node_that_is_host_and_leads_etcd_may_die(box, etcd_lab):
    nodes = ["node1", "node2", "node3"]
    lab = etcd_lab(3, nodes, "--tls", "--auth")
    password = box.write("password", "ctrunpw\n")
    job = etcd_hosts.Job(box, lab, "1:3", f"--rdzv-conf=protocol=https,cacert={lab.file('ca.pem')},"
              f"cert={lab.file('client.pem')},key={lab.file('client.key')},"
              f"user=ctrun,password_file={password}")
    leader = lab.etcd("leader")
    job.start(leader)
    ctrun.wait_until(lambda: job.events(leader, "election", to="leading"), "a host", 20)
    job.start(*(node for node in nodes if node != leader))
    generation = job.wait_world(*nodes)
    host, _ = etcd_hosts.cut_power_of_the_host(job, nodes, generation)
    assert host == leader
    job.finish()


def test_a_host_that_is_cut_off_has_no_worker_when_the_next_world_starts(box, etcd_lab):
    nodes = ["node1", "node2", "node3"]
    job = etcd_hosts.Job(box, etcd_lab(4, ["node4"]), "1:3")
    job.start(*nodes)
    generation = job.wait_world(*nodes)
    host = job.host()
    others = [node for node in nodes if node != host]
    job.lab.partition(host)
    after = job.wait_world(*others, after=generation, seconds=30)
    ended = [event["time_ns"] for event in job.events(host, "worker_ended", generation=generation)]
    started = [event["time_ns"] for node in others
               for event in job.events(node, "round_started", generation=after)]
    assert ended and max(ended) < min(started), (ended, started)
    job.lab.heal()
    job.wait_world(*nodes, after=after, seconds=30)  # it joins again as a member
    job.finish()
