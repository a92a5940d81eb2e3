# SPDX-License-Identifier: Apache-2.0
"""--rdzv-backend=etcd on several hosts: whichever loses its power, the run goes on; a host that is
cut off never has workers beside those of the next one."""
import os
import time

import ctrun

KILLS = int(os.environ.get("CTRUN_TEST_HOST_KILLS", "2"))  # in a row
WORK = ["sh", "-c", "while [ ! -e done ]; do sleep 0.05; done"]


class Job:
    """One launcher on each of some hosts."""

    def __init__(self, box, lab, nnodes, *options):
        self.box = box
        self.lab = lab
        self.words = ["--rdzv-backend=etcd", f"--rdzv-endpoint={lab.endpoint}", "--rdzv-id=job",
                      f"--nnodes={nnodes}", *options, *WORK]
        self.runs = {}

    def start(self, *hosts):
        for host in hosts:
            self.runs[host] = self.lab.start(host, ctrun.program("ctrun"), *self.words,
                                             env={"CTRUN_EVENTS": str(self.events_of(host))})

    def events_of(self, host):
        """Pids are the host's own, so each host has its own stream."""
        return self.box.path(f"events.{host}")

    def events(self, host, name, **match):
        self.box.events_path = self.events_of(host)
        return self.box.events(name, **match)

    def host(self):
        """Who was elected last."""
        found = [(event["time_ns"], host) for host in self.runs
                 for event in self.events(host, "election", to="leading")]
        return max(found)[1]

    def world(self, size):
        """(generation, hosts) of the newest world of that size."""
        started = {}
        for host in self.runs:
            for event in self.events(host, "round_started", group_world_size=size):
                started.setdefault(event["generation"], set()).add(host)
        newest = max(started, default=0)
        return newest, started.get(newest, set())

    def wait_world(self, *hosts, after=0, seconds=20):
        """Waits until those hosts run a world newer than that generation; returns its number."""
        def have():
            generation, members = self.world(len(hosts))
            return generation if generation > after and members == set(hosts) else None

        def what():
            return "\n".join(f"{host}: {run}" for host, run in self.runs.items())

        return ctrun.wait_until(have, lambda: f"a world of {hosts} after {after}\n{what()}",
                                seconds)

    def finish(self):
        self.box.write("done", "")
        for run in self.runs.values():
            assert run.wait() == 0, run


def cut_power_of_the_host(job, nodes, generation):
    """Returns who it was, and the generation that runs without it within ten seconds."""
    host = job.host()
    job.lab.cut_power(host)
    job.runs.pop(host).wait()
    began = time.monotonic()
    others = [node for node in nodes if node != host]
    generation = job.wait_world(*others, after=generation, seconds=10)
    print(f"power of {host} cut: {time.monotonic() - began:.1f} s")
    return host, generation


def test_the_run_goes_on_each_time_the_power_of_its_host_is_cut(box, etcd_lab):
    """CTRUN_TEST_HOST_KILLS=20 is what the acceptance list asks for."""
    nodes = ["node1", "node2", "node3"]
    job = Job(box, etcd_lab(6, ["node4", "node5", "node6"]), "1:3")
    job.start(*nodes)
    generation = job.wait_world(*nodes)
    for _ in range(KILLS):
        host, generation = cut_power_of_the_host(job, nodes, generation)
        job.lab.boot(host)
        job.start(host)
        generation = job.wait_world(*nodes, after=generation)
    job.finish()


def test_a_node_that_is_host_and_leads_etcd_may_die(box, etcd_lab):
    nodes = ["node1", "node2", "node3"]
    lab = etcd_lab(3, nodes, "--tls", "--auth")
    password = box.write("password", "ctrunpw\n")
    job = Job(box, lab, "1:3", f"--rdzv-conf=protocol=https,cacert={lab.file('ca.pem')},"
              f"cert={lab.file('client.pem')},key={lab.file('client.key')},"
              f"user=ctrun,password_file={password}")
    leader = lab.etcd("leader")
    job.start(leader)
    ctrun.wait_until(lambda: job.events(leader, "election", to="leading"), "a host", 20)
    job.start(*(node for node in nodes if node != leader))
    generation = job.wait_world(*nodes)
    host, _ = cut_power_of_the_host(job, nodes, generation)
    assert host == leader
    job.finish()


def test_a_host_that_is_cut_off_has_no_worker_when_the_next_world_starts(box, etcd_lab):
    nodes = ["node1", "node2", "node3"]
    job = Job(box, etcd_lab(4, ["node4"]), "1:3")
    job.start(*nodes)
    generation = job.wait_world(*nodes)
    host = job.host()
    others = [node for node in nodes if node != host]
    job.lab.partition(host)
    after = job.wait_world(*others, after=generation, seconds=12)
    ended = [event["time_ns"] for event in job.events(host, "worker_ended", generation=generation)]
    started = [event["time_ns"] for node in others
               for event in job.events(node, "round_started", generation=after)]
    assert ended and max(ended) < min(started), (ended, started)
    job.lab.heal()
    job.wait_world(*nodes, after=after, seconds=30)  # it comes back as a member like any other
    job.finish()
