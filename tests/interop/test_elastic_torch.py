# SPDX-License-Identifier: Apache-2.0
"""ctrun.elastic: a stock DDP script with two more lines. Ranks are killed, the others continue in
their processes, and another worker gets their state. With the PyTorch of CTRUN_TEST_TORCH; Debian's
shows what an older one prints."""
import os
import signal

import ctrun
import schema
from torch_job import PACKAGE, SCRIPT, allow, check_steps, interpreter, logs

RANKS, STEPS = 3, 400


def start(box, python, *options, script=SCRIPT):
    allow(box, 50)
    return box.start_ctrun("--standalone", f"--nproc-per-node={RANKS}", "--survive=torch", *options,
                           box.write("train.py", script), box.dir, STEPS, env={**PACKAGE, "PYTHON_EXEC": python})


def wait_step(box, run, rank, step):
    """Waits until the rank has made that step; returns the pid of its worker."""
    box.wait_event("worker_started", RANKS, seconds=200)
    pid = [e["worker_pid"] for e in box.events("worker_started") if e["rank"] == rank][-1]
    ctrun.wait_until(lambda: any(s >= step for s, *_ in logs(box).get((rank, pid), [])) or run.process.poll() is not None,
                     lambda: f"rank {rank} (pid {pid}) makes step {step}\n{run}", 200)
    return pid


def check(box, run, killed, replaced):
    assert run.wait(200) == 0, run
    made = logs(box)
    sizes = check_steps(made, STEPS, {who for who in made if who[1] in killed})
    assert len(made) == RANKS + replaced, run
    schema.check_events(box)
    return sizes


def test_ranks_are_killed_and_no_step_is_lost(box):
    """Rank 0, too, while the others are in a step or wait for the next one. Then two at once, which
    are not replaced: the last rank continues."""
    run, killed = start(box, interpreter("newer"), "--survive-replace=2", "--warm"), []
    for kill, rank in enumerate((2, 0)):
        allow(box, 150 * (kill + 1))
        killed.append(wait_step(box, run, rank, 150 * kill + 20))
        os.kill(killed[-1], signal.SIGKILL)
        box.wait_event("rank_lost", kill + 1)
        allow(box, 150 * (kill + 1) + 25)
        box.wait_event("rank_ready", kill + 1, seconds=200)
        allow(box, 150 * (kill + 1) + 50)
        assert box.wait_event("world_grown", kill + 1)[-1]["size"] == RANKS
        wait_step(box, run, rank, 150 * (kill + 1) + 40)
    both = [wait_step(box, run, rank, 340) for rank in (0, 1)]
    for pid in both:
        os.kill(pid, signal.SIGKILL)
    allow(box, STEPS)
    assert check(box, run, killed + both, 2) == {1, 2, 3}
    assert [e["start"] for e in box.events("worker_started")] == ["fork"] * 5 and len(box.events("round_started")) == 1


# In rank 0 Gloo does not notice that a connection is shut down, as sometimes happens.
DEAF = """import threading
import torch.distributed as real
class Deaf:
    def __init__(self, work):
        self.work, self.is_deaf = work, False
    def wait(self, *limit):
        if not self.is_deaf:
            try:
                return self.work.wait(*limit)
            except RuntimeError:
                self.is_deaf = self.work.is_completed()
        if not limit:
            threading.Event().wait()
        raise RuntimeError("Operation timed out!")
    def is_completed(self):
        return self.work.is_completed() and not self.is_deaf
def all_reduce(tensor, *arguments, original=real.all_reduce, async_op=False, **options):
    work = Deaf(original(tensor, *arguments, async_op=True, **options))
    return work if async_op else work.wait()
"""
DEAF_SUM = DEAF + """
if __import__("os").environ["RANK"] == "0":
    real.all_reduce = all_reduce
"""
# A new rank receives nothing. A send with a long limit fails only after one with a short limit.
DEAF_SEND = DEAF + """
import os, sys
import ctrun.elastic
def say(what):
    open(f"{sys.argv[1]}/{what}", "w").close()
given_up = threading.Event()
class Sent(Deaf):
    def wait(self, limit):
        try:
            return super().wait(limit)
        except RuntimeError:
            if limit.total_seconds() < 1:
                given_up.set()
            else:
                given_up.wait()
            raise
def isend(tensor, rank, original=real.isend):
    work = Sent(original(tensor, rank))
    say("sends")
    return work
def exchange(self, work, original=ctrun.elastic._Trainer._exchange):
    before = threading.active_count()
    try:
        original(self, work)
    finally:
        if threading.active_count() > before:
            say("threads")
ctrun.elastic._Trainer._exchange = exchange
def refuse(*_):
    say("joins")
    threading.Event().wait()
if os.environ.get("CTRUN_MAY_GROW") == "new":
    real.recv = real.irecv = refuse
else:
    real.isend = isend
"""


def test_a_collective_that_does_not_end_when_a_rank_is_lost_is_given_up(box):
    run = start(box, interpreter("newer"), script=DEAF_SUM + SCRIPT)
    killed = wait_step(box, run, 2, 20)
    os.kill(killed, signal.SIGKILL)
    allow(box, STEPS)
    assert check(box, run, [killed], 0) == {2, 3}


def test_what_does_not_arrive_when_a_new_rank_is_lost_is_given_up(box):
    run = start(box, interpreter("newer"), "--survive-replace=1", script=DEAF_SEND + SCRIPT)
    killed = [wait_step(box, run, 2, 20)]
    os.kill(killed[0], signal.SIGKILL)
    box.wait_event("rank_ready", seconds=200)
    allow(box, STEPS)
    ctrun.wait_until(lambda: box.path("sends").exists() and box.path("joins").exists(), lambda: f"its state is sent\n{run}", 60)
    killed.append(box.events("worker_started")[-1]["worker_pid"])
    os.kill(killed[1], signal.SIGKILL)
    assert check(box, run, killed, 0) == {2, 3}
    assert not box.path("threads").exists(), run


# Two new ranks: the second one begins when the first one waits for its state, which it gets later.
TWO = """import os, sys, time
import torch.distributed as real
folder, own, is_new = sys.argv[1], os.environ["RANK"], os.environ.get("CTRUN_MAY_GROW") == "new"
def say(what):
    with open(f"{folder}/{what}", "a") as file:
        file.write("x")
def wait(what):
    while not os.path.exists(f"{folder}/{what}"):
        time.sleep(0.005)
def isend(tensor, rank, original=real.isend):
    say("sent")
    return original(tensor, rank)
def irecv(tensor, rank, original=real.irecv):
    say("joins")
    wait("receive")
    return original(tensor, rank)
real.isend = isend
if is_new and own == "2":
    real.irecv = irecv
if is_new and own == "3":
    wait("joins")
import ctrun.elastic
def has_shrunk(self, original=ctrun.elastic._World.has_shrunk):
    if os.path.exists(f"{folder}/joins"):
        say("looks." + own)
    return original(self)
ctrun.elastic._World.has_shrunk = has_shrunk
"""


def test_a_state_is_sent_once_while_another_new_rank_waits(box):
    run = start(box, interpreter("newer"), "--nproc-per-node=4", "--survive-replace=2", "--warm", script=TWO + SCRIPT)
    killed = [wait_step(box, run, rank, 20) for rank in (2, 3)]
    ctrun.kill_at_once(*killed)
    box.wait_event("rank_ready", seconds=200)
    allow(box, 100)
    box.wait_event("rank_ready", 2, seconds=200)

    def looks():
        return [box.path(f"looks.{rank}").stat().st_size if box.path(f"looks.{rank}").exists() else 0 for rank in (0, 1)]
    before = looks()
    ctrun.wait_until(lambda: all(now > was + 3 for now, was in zip(looks(), before)) or run.process.poll() is not None, lambda: f"both look {looks()}\n{run}", 60)
    box.path("receive").touch()
    box.wait_event("world_grown", 2, seconds=60)
    allow(box, STEPS)
    assert run.wait(200) == 0, run
    made = logs(box)
    check_steps(made, STEPS, {who for who in made if who[1] in killed})
    assert len(made) == 6 and box.path("sent").read_text() == 4 * "x", run  # a length and the state for each
    assert [e["joined"] for e in box.events("world_grown")] == [1, 1], run
    schema.check_events(box)


# Rank 2 does not get the sum of a step that rank 1 has, in which a new rank 0 is ready. All three
# meet, and each gets what it is sent. The new rank continues; rank 2 has seen that not all were
# done, and looks again when rank 1 is dead.
UNSURE = """import os, signal, sys, time
folder, own, is_new = sys.argv[1], os.environ["RANK"], os.environ.get("CTRUN_MAY_GROW") == "new"
def say(what):
    open(f"{folder}/{what}", "w").close()
def wait(what):
    while not os.path.exists(f"{folder}/{what}"):
        time.sleep(0.005)
if is_new:
    wait("join")
import ctrun.elastic
from ctrun.elastic import _Trainer as Trainer, _World as World
def summed(self, side, original=Trainer._sum):
    original(self, side)
    if self.done == 60 and own == "1":
        say("summed")
    if self.done == 60 and own == "2" and not os.path.exists(f"{folder}/behind"):
        wait("summed")
        say("behind")
        wait("ready")
        raise RuntimeError("Connection closed by peer")
def is_over(self, original=World.is_over):
    say("looked")
    while not self.has_shrunk():
        time.sleep(0.005)
    return original(self)
def part(self, original=World.part):
    if self.ranks != [0, 1, 2]:
        return original(self)
    if is_new:
        wait("looked")
    if own == "2":
        World.is_over = is_over
    try:
        original(self)
    except RuntimeError:
        say("unsure." + own)
        raise
    finally:
        World.is_over = ORIGINAL
    if is_new:
        say("passed")
    if own == "1":
        wait("passed")
        os.kill(os.getpid(), signal.SIGKILL)
ORIGINAL = World.is_over
Trainer._sum, World.part = summed, part
"""


def test_a_sum_comes_from_a_new_rank_when_the_one_that_sent_it_is_lost(box):
    run = start(box, interpreter("newer"), "--survive-replace=1", script=UNSURE + SCRIPT)
    killed = [wait_step(box, run, 0, 20)]
    os.kill(killed[0], signal.SIGKILL)
    box.wait_event("rank_lost")
    allow(box, 61)
    ctrun.wait_until(lambda: box.path("behind").exists() or run.process.poll() is not None, lambda: f"rank 2 is behind\n{run}", 60)
    box.path("join").touch()
    box.wait_event("rank_ready", seconds=200)
    box.path("ready").touch()
    allow(box, STEPS)
    killed.append(box.wait_event("rank_lost", 2)[-1]["worker_pid"])
    assert check(box, run, killed, 1) == {2, 3}
    assert [path.name for path in box.path(".").glob("unsure.*")] == ["unsure.2"], run


# Each step adds up the gradients of three batches. In step 40 all pause between them.
STEP = SCRIPT[SCRIPT.index("        model("):SCRIPT.index("        optimizer.step()")]
ADDS = SCRIPT.replace(STEP, """        for batch in range(3):
            if step == 40 and batch > 0:
                open(f"{folder}/paused.{rank}", "w").close()
                while not os.path.exists(f"{folder}/go.{batch}"):
                    time.sleep(0.005)
            with model.no_sync() if batch < 2 else contextlib.nullcontext():
        """ + STEP.replace("step * 100", "step * 100 + batch * 10")).replace("import hashlib", "import contextlib, hashlib")


def test_gradients_are_accumulated_and_a_new_rank_joins_between_two_of_a_step(box):
    run = start(box, interpreter("newer"), "--survive-replace=1", "--warm", script=ADDS)
    killed = [wait_step(box, run, 2, 39)]
    ctrun.wait_until(lambda: box.path("paused.2").exists() or run.process.poll() is not None, lambda: f"rank 2 is in step 40\n{run}", 60)
    os.kill(killed[0], signal.SIGKILL)
    box.path("go.1").touch()
    box.wait_event("rank_ready", seconds=200)
    box.path("go.2").touch()
    allow(box, STEPS)
    assert check(box, run, killed, 1) == {3}
    assert min(step for (rank, pid), made in logs(box).items() for step, *_ in made if rank == 2 and pid not in killed) == 40


SLOW = """from datetime import timedelta
import torch, torch.distributed as dist
import ctrun.elastic
dist.init_process_group("gloo", timeout=timedelta(seconds=9))
try:
    dist.recv(torch.zeros(1), 1 - dist.get_rank())  # nobody sends
except RuntimeError as error:
    print(error)
"""


def test_a_script_s_own_recv_waits_as_long_as_the_script_has_said(box):
    run = box.ctrun("--standalone", "--nproc-per-node=2", "--survive=torch", box.write("slow.py", SLOW), seconds=200,
                    env={**PACKAGE, "PYTHON_EXEC": interpreter("newer")})
    assert run.code == 0 and "Timed out waiting 9000ms for recv" in run.out, run


OLD = """import os, sys
import torch, torch.distributed as dist
import ctrun.elastic
net = torch.nn.Linear(2, 2)
first = ctrun.elastic.attach(net, torch.optim.SGD(net.parameters(), 0.1))
rank = int(os.environ["RANK"])
open(sys.argv[1], "wr"[rank]).close()  # both open the FIFO: rank 0 has said its line
sys.exit(first or (7 if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and rank == 1 else 0))
"""


def test_an_older_pytorch_says_so_in_one_line_and_starts_again(box):
    os.mkfifo(box.path("attached"))
    run = box.ctrun("--standalone", "--nproc-per-node=2", "--survive=torch", "--max-restarts=1",
                    "--survive-timeout=1000", box.write("old.py", OLD), box.path("attached"), seconds=200,
                    env={**PACKAGE, "PYTHON_EXEC": interpreter("debian")})
    assert run.code == 0, run
    told = [line for line in run.err.splitlines() if "ctrun.elastic" in line]
    assert len(told) == 2 and "cannot form a group again: this needs enable_reconfigure" in told[0], run  # one in each round
    assert len(box.events("round_started")) == 2 and not box.events("rank_lost"), run


def test_without_the_option_nothing_is_said_and_nothing_changes(box):
    run = box.run(interpreter("debian"), "-c", "import torch.distributed as d; was = d.init_process_group; "
                  "import ctrun.elastic, torch; n = torch.nn.Linear(1, 1); assert d.init_process_group is was; "
                  "print(ctrun.elastic.attach(n, torch.optim.SGD(n.parameters(), 1)))", env=PACKAGE)
    assert (run.code, run.out, run.err) == (0, "0\n", ""), run
