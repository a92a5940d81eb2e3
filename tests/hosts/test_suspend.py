# SPDX-License-Identifier: Apache-2.0
"""A machine that was suspended for longer than the lease of its workers: others have continued
without it. At wake-up the kernel fires the timer of the guards, which counts the time of the
suspension; here the test sends the timer's signal."""
import os
import signal

import ctrun
import observer
from clock import Clock

CONF = "keep_alive_interval=1,keep_alive_max_attempt=6,last_call_timeout=1,is_host=0"
OWN_CLOCK = ["env", "-u", "LD_PRELOAD"]  # the workers have the real clock: their times are compared
FENCE_SIGNAL = signal.SIGRTMAX - 4


class Pair:
    """A ctrund on node1; node1 and node2 have workers, and the test sets the clock of node2."""

    def __init__(self, box, lab):
        self.hosts, self.observer, self.clock = lab(2), observer.Observer(box, "lives"), Clock(box)
        self.server = self.hosts.start("node1", ctrun.program("ctrund"), "--listen=10.77.0.11:29400")
        ctrun.wait_until(lambda: "listening" in self.server.out, lambda: f"{self.server}")
        self.runs = [self.start("node1"), self.start("node2", self.clock.env)]
        ctrun.wait_until(lambda: self.observer.is_world(["node1", "node2"]), lambda: f"a world: {self.runs}", 60)
        self.generation = self.generation_of("node2")

    def start(self, host, env=None):
        names = [f"{name}={value}" for name, value in (env or {}).items()]  # for ctrun alone
        return self.hosts.start(host, "env", *names, ctrun.program("ctrun"), "--nnodes=1:2", "--rdzv-endpoint=10.77.0.11:29400",
                                f"--rdzv-conf={CONF}", "--shutdown-timeout=1", *OWN_CLOCK, *self.observer.program)

    def generation_of(self, host):
        return max((world[0] for world, at, _, _ in self.observer.now() if at == host), default=0)

    def below(self, host):
        """[second guard, guard, agent] of the host."""
        [agent] = self.hosts.agents(host)
        return [*ctrun.guards_of(agent), agent]

    def wake_guards(self, host, pids):
        for guard in pids[:2]:
            os.kill(guard, FENCE_SIGNAL)

    def end(self):
        ctrun.stop(*self.runs)
        self.server.signal(signal.SIGTERM)
        self.server.wait()
        self.observer.check()


def test_guards_end_the_workers_when_a_machine_wakes_up(box, lab):
    """Before the agent runs: TCP's clock stood still, by which the server has just sent
    something."""
    pair = Pair(box, lab)
    pids = pair.below("node2")
    os.kill(pids[2], signal.SIGSTOP)
    pair.clock.suspend(60)
    pair.wake_guards("node2", pids)
    ctrun.wait_until(lambda: pair.generation_of("node2") == 0, "its workers are gone")
    os.kill(pids[2], signal.SIGCONT)
    ctrun.wait_until(lambda: pair.observer.is_world(["node1", "node2"])
                     and pair.generation_of("node2") > pair.generation, lambda: f"it is back: {pair.runs}", 60)
    pair.end()
