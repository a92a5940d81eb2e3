# SPDX-License-Identifier: Apache-2.0
"""Nodes leave, return, die, freeze and are cut off at random. Never two live worlds, never a run that
ends without a cause, and when all is healed all nodes meet again.

CTRUN_CHAOS=50 runs so many scripts instead of 3; each prints its seed, CTRUN_TEST_SEED repeats one."""
import os
import random
import signal

import beacon
import ctrun

NODES = ["node1", "node2", "node3"]  # node1 hosts the rendezvous: it is cut off, never killed
LEASE = "keep_alive_interval=1,keep_alive_max_attempt=1,last_call_timeout=1"


class Script:
    def __init__(self, box, hosts, seed, port):
        self.box, self.hosts, self.seed = box, hosts, seed
        self.dice = random.Random(seed)
        self.beacon = beacon.Beacon(box, f"beacon{seed}")
        self.nodes = f"{self.dice.choice([1, 2])}:3"
        self.words = [ctrun.program("ctrun"), f"--rdzv-endpoint=node1:{port}",
                      f"--rdzv-id=chaos{seed}", f"--nnodes={self.nodes}", "--shutdown-timeout=1",
                      f"--rdzv-conf={LEASE}", *self.beacon.program]
        self.runs, self.log, self.paused = {}, [], []
        for name in NODES:
            self.come(name)

    def come(self, name):
        self.runs[name] = self.hosts.start(name, *self.words)

    def agent(self, name):
        """The agent's pid as seen from here: the ctrun whose parent is its guard, also a ctrun."""
        for pid in self.box.pids():
            line = ctrun._read(f"/proc/{pid}/cmdline")
            if (f"chaos{self.seed}".encode() in line
                    and line == ctrun._read(f"/proc/{ctrun.parent_of(pid)}/cmdline")
                    and os.readlink(f"/proc/{pid}/ns/uts") == Script.namespaces[name]):
                return pid
        return None

    namespaces = {}  # host -> its UTS namespace

    def leave(self, name):
        self.runs[name].signal(self.dice.choice([signal.SIGTERM, signal.SIGINT]))

    def die(self, name):
        pid = self.agent(name)
        if pid:
            os.kill(pid, signal.SIGKILL)

    def pause(self, name):
        pid = self.agent(name)
        if pid and pid not in self.paused:
            os.kill(pid, signal.SIGSTOP)
            self.paused.append(pid)

    def wake(self, _=None):
        while self.paused:
            try:
                os.kill(self.paused.pop(), signal.SIGCONT)
            except ProcessLookupError:
                pass

    def cut(self, name):
        self.hosts.partition(name)

    def heal(self, _=None):
        self.hosts.heal()

    def wait(self, _=None):
        """Until the set of live workers has changed, or not in two leases."""
        before = self.beacon.now()
        try:
            ctrun.wait_until(lambda: self.beacon.now() != before, "", self.dice.random() * 4)
        except AssertionError:
            pass

    def step(self):
        name = self.dice.choice(NODES)
        actions = [self.cut, self.heal, self.wake, self.wait, self.wait, self.pause]
        # With a minimum of two the others go on without node1, and those who are replaced are no
        # proof that nobody has: what is cut off comes back, as itself.
        if name != "node1" and self.nodes == "1:3":
            actions += [self.leave, self.die, self.come]
        action = self.dice.choice(actions)
        if action == self.come and self.runs[name].code is None:
            action = self.wait
        if action in (self.leave, self.die, self.pause) and self.runs[name].code is not None:
            action = self.come if name != "node1" else self.wait
        self.log.append(f"{action.__name__} {name}")
        action(name)

    def __str__(self):
        return (f"CTRUN_TEST_SEED={self.seed} --nnodes={self.nodes}: {', '.join(self.log)}\n"
                f"{self.beacon.now()}\n" + "\n".join(f"{n}: {r}" for n, r in self.runs.items()))

    def finish(self):
        self.heal()
        self.wake()

        def whole():
            assert self.runs["node1"].code is None, f"the run ended without a cause\n{self}"
            for name in NODES[1:]:
                if self.runs[name].code is not None:
                    self.come(name)
            return self.beacon.is_world(NODES)

        ctrun.wait_until(whole, lambda: f"all three in one world\n{self}", 60)
        for run in self.runs.values():
            run.signal(signal.SIGTERM)
        for run in self.runs.values():
            run.wait(30)
        try:
            self.beacon.check()
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self}") from None


def test_random_scripts_never_make_two_worlds_nor_end_a_run_without_a_cause(box, lab):
    count = int(os.environ.get("CTRUN_CHAOS", "3"))
    given = os.environ.get("CTRUN_TEST_SEED")
    hosts = lab(3)
    for name in NODES:
        probe = hosts.start(name, "readlink", "/proc/self/ns/uts")
        assert probe.wait(20) == 0, probe
        Script.namespaces[name] = probe.out.strip()
    for i in range(1 if given else count):
        script = Script(box, hosts, int(given) if given else random.randrange(10**9), 29400 + i)
        print(f"script {i + 1}: CTRUN_TEST_SEED={script.seed}", flush=True)
        ctrun.wait_until(lambda: script.beacon.is_world(NODES), lambda: f"a start\n{script}", 30)
        for _ in range(10):
            script.step()
        script.finish()
