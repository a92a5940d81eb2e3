# SPDX-License-Identifier: Apache-2.0
"""Random faults: nodes leave, return, die, freeze, boot and lose the network. An observer sees all
workers: two worlds never run at the same time, and after the faults every node joins the world.

One script of each kind runs with a fixed seed; CTRUN_CHAOS=200 runs 200 with random seeds. Each
prints its seed and kind: CTRUN_TEST_SEED and CTRUN_CHAOS_KIND repeat it. CTRUN_CHAOS_KIND alone
chooses the kind of all."""
import collections
import os
import random
import signal
import time

import ctrun
import observer

NODES = ["node1", "node2", "node3", "node4"]
ETCD = "node5"  # it has no faults
STEPS = 8
# For how long some scripts stop the processes of one node: longer than each lease, and than the
# time for which a paused node is waited for (CT_PAUSE_LEASES).
PAUSE_S = (15, 20)
# Processes that are stopped or killed together; never all three, for which ctrun guarantees
# nothing.
THREE = ["guard", "second", "agent"]
GROUPS = [["agent"], ["guard"], ["second"], ["agent", "guard"], ["agent", "second"],
          ["guard", "second"]]

Kind = collections.namedtuple("Kind", "options lease has_long_pause")
C10D = ["--rdzv-backend=c10d", "--rdzv-endpoint=node1:{port}"]
ETCD_V3 = ["--rdzv-backend=etcd", f"--rdzv-endpoint={ETCD}:2379"]
KINDS = {
    "c10d": Kind(C10D, 2, False),
    "ha": Kind(["--ha", *C10D], 3, False),
    "etcd": Kind(ETCD_V3, 3, False),
    "c10d-pause": Kind(C10D, 2, True),
    "ha-pause": Kind(["--ha", *C10D], 3, True),
    "etcd-pause": Kind(ETCD_V3, 3, True),
}


class Script:
    def __init__(self, box, lab, kind, seed, port):
        self.box, self.lab, self.kind, self.seed, self.id = box, lab, kind, seed, f"{kind}{seed}"
        self.dice = random.Random(f"{kind}{seed}")
        self.observer = observer.Observer(box, f"lives.{self.id}")
        self.paused_node = None  # for long: it gets no other fault
        self.nodes = f"{self.dice.choice([1, 2, 3])}:{len(NODES)}"
        conf = f"keep_alive_interval=1,keep_alive_max_attempt={KINDS[kind].lease},last_call_timeout=1"
        self.words = [ctrun.program("ctrun"), *(o.format(port=port) for o in KINDS[kind].options),
                      f"--rdzv-id={self.id}", f"--nnodes={self.nodes}", "--shutdown-timeout=1",
                      f"--rdzv-conf={conf}", *self.observer.program]
        self.runs, self.log, self.paused, self.ended = {}, [], [], set()
        self.off, self.frozen, self.is_cut = set(), set(), False
        for name in NODES:
            self.start(name)

    def start(self, name):
        self.check_end(name)
        self.runs[name] = self.lab.start(name, *self.words,
                                         env={"CTRUN_EVENTS": str(self.events_of(name))})

    def events_of(self, name):
        return self.box.path(f"events.{self.id}.{name}")

    def check_end(self, name):
        """A launcher that was not asked to end may have ended with 75 only."""
        run = self.runs.get(name)
        assert run is None or name in self.ended or run.code == 75, f"{run}\n{self}"
        self.ended.discard(name)

    def processes(self, name):
        """{guard, second, agent: pid} as seen from outside the host, without those that have
        ended; empty while it has no agent."""
        for pid in self.lab.agents(name):
            second, guard = ctrun.guards_of(pid)
            return {who: pid for who, pid in zip(THREE, (guard, second, pid)) if pid}
        return {}

    # ---- What happens

    def signal(self, name, number, groups=None):
        found = self.processes(name)
        stopped = {who for who in found if found[who] in self.paused}
        groups = [group for group in groups or GROUPS if not stopped.issuperset(set(THREE) - set(group))]
        if not groups:
            return []
        group = self.dice.choice(groups)
        done = []
        for who in group:
            try:
                os.kill(found[who], number)
                done.append(found[who])
            except (KeyError, ProcessLookupError):
                pass
        self.log[-1] += f" ({'+'.join(group)})"
        return done

    def leave(self, name):
        self.ended.add(name)
        self.runs[name].signal(self.dice.choice([signal.SIGTERM, signal.SIGINT]))

    def die(self, name):
        self.ended.add(name)
        self.signal(name, signal.SIGKILL)

    def pause(self, name):
        self.paused += self.signal(name, signal.SIGSTOP)

    def wake(self, _=None):
        while self.paused:
            try:
                os.kill(self.paused.pop(), signal.SIGCONT)
            except ProcessLookupError:
                pass

    def pause_long(self):
        """Stops the agent of a node, alone or with one of its guards, for longer than any lease.
        The other nodes get faults meanwhile. In half of the scripts the node serves the
        rendezvous."""
        up = [name for name in NODES
              if name not in self.off | self.frozen and self.runs[name].code is None]
        server = [name for name in up if name == self.server()]
        if not up:
            return
        name = self.dice.choice(server if server and self.dice.random() < 0.5 else up)
        end = time.monotonic() + self.dice.uniform(*PAUSE_S)
        self.log.append(f"pause_long {name}")
        self.paused_node = name
        stopped = self.signal(name, signal.SIGSTOP, [["agent"], ["agent", "guard"], ["agent", "second"]])
        self.paused = [pid for pid in self.paused if pid not in stopped]
        while time.monotonic() < end:
            if self.dice.random() < 0.3:
                self.step()
            self.wait(seconds=min(6, end - time.monotonic()))
        self.log.append(f"wake {name}")
        self.paused += stopped
        self.wake()
        self.paused_node = None

    def server(self):
        """The node that serves the rendezvous: the one elected last, else the one at the
        endpoint."""
        found = [(0, NODES[0])]
        for name in NODES:
            self.box.events_path = self.events_of(name)
            found += [(e["time_ns"], name) for e in self.box.events("election", to="leading")]
        return max(found)[1]

    def freeze(self, name):
        self.lab.freeze(name)
        self.frozen.add(name)

    def thaw(self, _=None):
        for name in sorted(self.frozen):
            self.lab.thaw(name)
        self.frozen.clear()

    def cut(self, name):
        self.lab.partition(name)
        self.is_cut = True

    def cut_one_way(self, name):
        other = self.dice.choice([node for node in [*NODES, ETCD] if node != name])
        pair = [name, other] if self.dice.random() < 0.5 else [other, name]
        self.log[-1] += f" from {pair[0]} to {pair[1]}"
        self.lab.partition("-1", *pair)
        self.is_cut = True

    def heal(self, _=None):
        self.lab.heal()
        self.is_cut = False

    def power(self, name):
        """Cuts the power; come() boots the node and starts the same command."""
        self.lab.cut_power(name)
        self.off.add(name)
        self.ended.add(name)

    def come(self, name):
        if name in self.off:
            self.lab.boot(name)
            self.off.remove(name)
            self.runs[name].wait(20)
        if self.runs[name].code is not None:
            self.start(name)

    def wait(self, _=None, seconds=6):
        """Waits until the set of live workers has changed, or for a random time."""
        before = self.observer.now()
        try:
            ctrun.wait_until(lambda: self.observer.now() != before, "",
                             self.dice.random() * seconds)
        except AssertionError:
            pass

    def actions(self, name):
        always = ([self.wait] + [self.heal] * self.is_cut + [self.wake] * bool(self.paused)
                  + [self.thaw] * bool(self.frozen))
        if name in self.frozen:
            return always
        if name in self.off or self.runs[name].code is not None:
            return [*always, self.come, self.come]
        return [*always, self.pause, self.pause, self.cut, self.cut_one_way, self.freeze,
                self.die, self.leave, self.power]

    def step(self):
        name = self.dice.choice([name for name in NODES if name != self.paused_node])
        action = self.dice.choice(self.actions(name))
        self.log.append(f"{action.__name__} {name}")
        action(name)
        self.wait(seconds=2)

    def play(self):
        for i in range(STEPS):
            if KINDS[self.kind].has_long_pause and i == STEPS // 2:
                self.pause_long()
            else:
                self.step()

    def __str__(self):
        return (f"CTRUN_TEST_SEED={self.seed} CTRUN_CHAOS_KIND={self.kind} --nnodes={self.nodes}: "
                f"{', '.join(self.log)}\n{self.observer.tell()}\n"
                + "\n".join(f"{n}: {r}" for n, r in self.runs.items()))

    def finish(self):
        """Ends all faults, starts launchers again that have ended, as a scheduler does, and waits
        for one world. Returns for how many seconds workers of a thawed host ran beside others."""
        self.heal()
        self.thaw()
        self.wake()
        for name in NODES:
            self.come(name)

        def whole():
            for name in NODES:
                if self.runs[name].code is not None:
                    self.start(name)
            return self.observer.is_world(NODES)

        ctrun.wait_until(whole, lambda: f"all in one world\n{self}", 150)
        ctrun.stop(*self.runs.values())
        try:
            return self.observer.check()
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self}") from None


def test_random_scripts_never_make_two_worlds_nor_leave_a_node_out(box, etcd_lab):
    count = int(os.environ.get("CTRUN_CHAOS", len(KINDS)))
    given, kind = os.environ.get("CTRUN_TEST_SEED"), os.environ.get("CTRUN_CHAOS_KIND")
    is_search = "CTRUN_CHAOS" in os.environ  # without it the result does not depend on chance
    lab = etcd_lab(5, [ETCD])
    for i in range(1 if given else count):
        name = kind or list(KINDS)[i % len(KINDS)]
        script = Script(box, lab, name, int(given or (random.randrange(10**9) if is_search else i)), 29400 + i)
        print(f"script {i + 1}: CTRUN_TEST_SEED={script.seed} CTRUN_CHAOS_KIND={name}", end=" ",
              flush=True)
        ctrun.wait_until(lambda: script.observer.is_world(NODES), lambda: f"a start\n{script}", 60)
        script.play()
        thawed = script.finish()
        print(f"{', '.join(script.log)}; thawed workers ran {thawed:.3f} s beside others", flush=True)
