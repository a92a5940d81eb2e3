# SPDX-License-Identifier: Apache-2.0
"""--ha on several hosts: the host that serves the rendezvous loses its power, or is frozen."""
import os
import shutil
import signal
import time

import ctrun
import etcd_hosts
import pytest

# How many losses, over all kinds. How long each takes is checked only when this is set: the machine
# must be idle then.
LOSSES = os.environ.get("CTRUN_TEST_HA_LOSSES")
LEASE_S = 5  # keep_alive_interval times keep_alive_max_attempt
LIMIT_S = LEASE_S + 3


class Job(etcd_hosts.Job):
    """The first host serves the rendezvous; the only etcd is the one that the run starts."""

    def __init__(self, box, lab, nnodes, members):
        self.box = box
        self.lab = lab
        self.members = members
        self.words = [f"--ha={members}", "--rdzv-backend=c10d", "--rdzv-endpoint=node1:29400",
                      "--rdzv-id=job", f"--nnodes={nnodes}", *etcd_hosts.WORK]
        self.runs = {}

    def wait_survives(self, loss, after_ns=0):
        def have():
            return [event for host in self.runs
                    for event in self.events(host, "ha_state", to="active", survives=loss)
                    if event["time_ns"] > after_ns]

        return ctrun.wait_until(have, lambda: f"survives {loss}\n{self.runs}", 60)


@pytest.fixture
def ha_lab(lab):
    if not shutil.which("etcd") or not shutil.which("openssl"):
        pytest.skip("no etcd (Debian: etcd-server) or no openssl")
    return lab


def start(box, ha_lab, members):
    nodes = [f"node{i + 1}" for i in range(members)]
    job = Job(box, ha_lab(members), f"1:{members}", members)
    for node in nodes:
        job.events_of(node).unlink(missing_ok=True)
    job.start(*nodes)
    generation = job.wait_world(*nodes)
    job.wait_survives(members // 2)
    return job, nodes, generation


def last_s(job, hosts, began_ns, name, **match):
    """Seconds from began_ns to the last such event."""
    return max((event["time_ns"] - began_ns) / 1e9
               for host in hosts for event in job.events(host, name, **match))


def lose(job, nodes, generation, host, how):
    """Calls how(), which loses the host. Returns the generation of the world without it, and the
    seconds until another node was elected and until the last worker had started."""
    others = [node for node in nodes if node != host]
    began_ns = time.time_ns()
    how()
    generation = job.wait_world(*others, after=generation, seconds=3 * LIMIT_S)
    ctrun.wait_until(lambda: all(job.events(other, "worker_started", generation=generation)
                                 for other in others), "its workers")
    return (generation, last_s(job, others, began_ns, "election", to="leading"),
            last_s(job, others, began_ns, "worker_started", generation=generation))


def cut_power(job, host):
    return lambda: (job.lab.cut_power(host), job.runs.pop(host).wait())


def freeze(job, host):
    return lambda: job.lab.freeze(host)


def stop_agent(job, host):
    """Its etcd continues, and the kernel keeps its connections."""
    [agent] = job.lab.agents(host)
    return lambda: os.kill(agent, signal.SIGSTOP)


def release(job):
    """Ends the job by ending its hosts."""
    job.lab.down()
    for run in job.runs.values():
        run.wait()


def test_the_rendezvous_host_is_lost(box, ha_lab):
    """Its power is cut, it is frozen, or its agent is stopped; with three nodes and with five."""
    kinds = [(how, members) for how in (cut_power, freeze, stop_agent) for members in (3, 5)]
    late = []
    for i in range(int(LOSSES or 1)):
        how, members = kinds[i % len(kinds)]
        job, nodes, generation = start(box, ha_lab, members)
        _, elected, took = lose(job, nodes, generation, "node1", how(job, "node1"))
        print(f"{i + 1}: {how.__name__}, 1 of {members} nodes: elected after {elected:.2f} s, "
              f"new world after {took:.2f} s, load {os.getloadavg()[0]:.1f}", flush=True)
        if took > LIMIT_S:
            late.append((how.__name__, members, took))
        release(job)
    assert not LOSSES or not late, late


def test_the_rendezvous_host_is_frozen_and_thaws(box, ha_lab):
    job, nodes, generation = start(box, ha_lab, 3)
    generation, _, _ = lose(job, nodes, generation, "node1", freeze(job, "node1"))
    job.lab.thaw("node1")
    job.wait_world(*nodes, after=generation, seconds=40)
    job.finish()
