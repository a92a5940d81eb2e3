# SPDX-License-Identifier: Apache-2.0
"""--rdzv-backend=etcd on several hosts: the run continues when the host of its server loses
power."""
import os

import etcd_hosts

KILLS = int(os.environ.get("CTRUN_TEST_HOST_KILLS", "2"))  # in a row


def test_the_run_goes_on_each_time_the_power_of_its_host_is_cut(box, etcd_lab):
    """CTRUN_TEST_HOST_KILLS=20 cuts it 20 times."""
    nodes = ["node1", "node2", "node3"]
    job = etcd_hosts.Job(box, etcd_lab(6, ["node4", "node5", "node6"]), "1:3")
    job.start(*nodes)
    generation = job.wait_world(*nodes)
    for _ in range(KILLS):
        host, generation = etcd_hosts.cut_power_of_the_host(job, nodes, generation)
        job.lab.boot(host)
        job.start(host)
        generation = job.wait_world(*nodes, after=generation)
    job.finish()
