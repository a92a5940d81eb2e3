# SPDX-License-Identifier: Apache-2.0
"""A job with one launcher per host; an etcd elects the rendezvous server."""
import time

import ctrun

WORK = ["sh", "-c", "while [ ! -e done ]; do sleep 0.05; done"]


class Job:
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
        """Each host has its own event file: a pid may be the same on two hosts."""
        return self.box.path(f"events.{host}")

    def events(self, host, name, **match):
        self.box.events_path = self.events_of(host)
        return self.box.events(name, **match)

    def host(self):
        """The host that was elected last."""
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


def cut_power_of_the_host(job, nodes, generation, seconds=30):
    """Cuts the power of the host that serves the rendezvous. Returns that host, and the generation
    that the others start within `seconds`."""
    host = job.host()
    job.lab.cut_power(host)
    job.runs.pop(host).wait()
    began = time.monotonic()
    others = [node for node in nodes if node != host]
    generation = job.wait_world(*others, after=generation, seconds=seconds)
    print(f"power of {host} cut: {time.monotonic() - began:.1f} s")
    return host, generation
