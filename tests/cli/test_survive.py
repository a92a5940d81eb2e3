# SPDX-License-Identifier: Apache-2.0
"""--survive: a rank is lost, and the others continue in their processes and lose no step."""
import os
import random
import re
import signal
import sys

import ctrun
import elastic
import pytest
import schema
from elastic import SLOW as ELASTIC
from elastic import AGENT, pids, result, speed_up, wait_step

# Without sanitizers a rank is lost at five times as many steps.
pytestmark = pytest.mark.both

STEPS = 30000 if ctrun.SLOW == 1 else 6000


def start(box, world, *options, steps=STEPS):
    return box.start_ctrun("--standalone", f"--nproc-per-node={world}", *options, ELASTIC, steps)


@pytest.fixture(scope="module")
def undisturbed():
    return elastic.undisturbed(STEPS)


def test_survivors_go_on_and_come_to_the_same(box, undisturbed):
    run = start(box, 4, "--survive=sdk")
    draw = random.Random(os.getpid())
    ranks = list(range(4))
    for kill in range(1, 4):  # until one is left
        step = 1000 + (kill - 1) * (STEPS - 3000) // 3 // 1000 * 1000
        speed_up(box, step)
        wait_step(run, step)
        victim = ranks.pop(draw.randrange(len(ranks)))
        os.kill(pids(box)[victim], signal.SIGKILL)
        told = box.wait_event("world_shrunk", kill)[-1]
        assert (told["epoch"], told["losses"], told["left"]) == (kill, kill, 4 - kill), told
        assert box.events("rank_lost")[-1]["rank"] == victim
    speed_up(box)
    assert run.wait(60) == 0, run
    steps, slope, offset = result(run)
    assert (steps, STEPS) == (undisturbed[0], STEPS)
    assert abs(slope - undisturbed[1]) < 1e-11 and abs(offset - undisturbed[2]) < 1e-11, (run, undisturbed)
    assert len(box.events("worker_started")) == 4 and len(box.events("round_started")) == 1
    for event in box.events():
        schema.check(event, "events")
    assert "3 ranks may continue (--survive)" in run.err and "1 rank continues, " in run.err, run


def test_its_time_is_billed(box):
    run = start(box, 4, "--survive=sdk")
    wait_step(run, 1000)
    os.kill(pids(box)[2], signal.SIGKILL)
    [bill] = box.wait_event("bill", of="recovery")
    schema.check(bill, "events")
    assert [part["phases"] for part in bill["parts"]] == [["decide"], ["re-form", "next step"]], bill
    assert bill["unknown"] == ["detect"] and sum(part["ms"] for part in bill["parts"]) == bill["total_ms"], bill
    assert bill["parts"][1]["rank"] in (0, 1, 3), bill
    speed_up(box)
    assert run.wait(60) == 0, run
    assert re.search(r"^ctrun: recovery took \d+\.\d{3} s: decide \d+\.\d{3}, re-form and next step \d+\.\d{3}; not known: "
                     r"detect$", run.err, re.M), run


def test_a_loss_that_is_not_survived_has_no_bill_of_its_own(box):
    run = start(box, 3, "--survive=sdk", "--survive-timeout=3", "--max-restarts=1")
    wait_step(run, 1000)
    of = pids(box)
    os.kill(of[1], signal.SIGSTOP)
    os.kill(of[2], signal.SIGKILL)
    box.wait_event("bill", of="restart")
    assert not box.events("bill", of="recovery")
    speed_up(box)
    assert run.wait(60) == 0, run


def test_two_die_at_once(box, undisturbed):
    run = start(box, 4, "--survive=sdk")
    wait_step(run, 1000)
    for rank in (0, 2):
        os.kill(pids(box)[rank], signal.SIGKILL)
    speed_up(box)
    assert run.wait(60) == 0, run
    assert abs(result(run)[1] - undisturbed[1]) < 1e-11, run
    assert sorted(e["rank"] for e in box.events("rank_lost")) == [0, 2]
    assert box.events("world_shrunk")[-1]["left"] == 2


def test_a_worker_that_dies_while_the_others_ask_is_left_out_too(box, undisturbed):
    """Rank 2 is stopped, so that no world can be decided; then it dies."""
    run = start(box, 4, "--survive=sdk")
    wait_step(run, 1000)
    of = pids(box)
    os.kill(of[2], signal.SIGSTOP)
    os.kill(of[3], signal.SIGKILL)
    box.wait_event("rank_lost")
    assert not box.events("world_shrunk")
    os.kill(of[2], signal.SIGKILL)
    assert box.wait_event("world_shrunk")[0]["left"] == 2
    speed_up(box)
    assert run.wait(60) == 0, run
    assert abs(result(run)[1] - undisturbed[1]) < 1e-11, run


def test_who_does_not_ask_in_time_ends_it_as_without(box):
    run = start(box, 3, "--survive=sdk", "--survive-timeout=3")
    wait_step(run, 1000)
    of = pids(box)
    os.kill(of[1], signal.SIGSTOP)
    os.kill(of[2], signal.SIGKILL)
    assert run.wait(60) == 128 + signal.SIGKILL, run
    assert "within 3 s these ranks did not call ctrun_group_shrink(): 1" in run.err, run
    assert "rank 2 (" in run.err.split("E_SIGNAL")[0] + run.err, run
    assert not box.events("world_shrunk")


def test_a_loss_that_was_survived_is_not_the_cause_of_a_later_restart(box):
    run = start(box, 3, "--survive=sdk", "--survive-timeout=5", "--max-restarts=1")
    wait_step(run, 1000)
    of = pids(box)
    os.kill(of[2], signal.SIGKILL)
    box.wait_event("world_shrunk")
    os.kill(of[0], signal.SIGSTOP)
    os.kill(of[1], signal.SIGKILL)
    speed_up(box)
    assert run.wait(60) == 0, run
    assert "restart 1/1: rank 1 on " in run.err and len(box.events("round_started")) == 2, run
    assert len(box.events("worker_started")) == 6  # all of them again


def test_the_last_calls_of_a_later_failure_are_those_of_its_world(box):
    run = start(box, 3, "--survive=sdk", "--survive-timeout=3", "--log-dir=logs")
    wait_step(run, 1000)
    of = pids(box)
    os.kill(of[2], signal.SIGKILL)
    box.wait_event("world_shrunk")
    os.kill(of[0], signal.SIGSTOP)
    os.kill(of[1], signal.SIGKILL)
    assert run.wait(60) == 128 + signal.SIGKILL, run
    text = next(box.path("logs").glob("*/attempt_0/calls.node0.txt")).read_text()
    assert "rank 0: the last " in text and "rank 1: the last " in text and "rank 2: " not in text, text


def test_it_starts_again_where_nobody_asks(box):
    """A program without the SDK restarts at once, as without the option."""
    program = box.write("p", "#!/bin/sh\n[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0\n"
                             "[ $RANK = 1 ] && exit 7\nexec sleep 1000\n", 0o755)
    run = box.ctrun("--standalone", "--nproc-per-node=2", "--survive=sdk", "--max-restarts=1",
                    "--survive-timeout=1000", program)
    assert run.code == 0, run
    assert not box.events("rank_lost") and len(box.events("round_started")) == 2


def test_without_it_a_loss_ends_all(box):
    run = start(box, 2)
    wait_step(run, 1000)
    os.kill(pids(box)[1], signal.SIGKILL)
    assert run.wait(60) == 128 + signal.SIGKILL, run
    assert not box.events("rank_lost")


def test_what_a_lost_rank_left_behind_is_gone_before_the_others_go_on(box):
    """The worker is a shell; its child has its rank and the agent's socket."""
    shell = box.write("shell", f"#!/bin/sh\n{ELASTIC} {STEPS} &\necho $! > pid.$RANK\nwait $!\n", 0o755)
    run = box.start_ctrun("--standalone", "--nproc-per-node=2", "--survive=sdk", shell)
    wait_step(run, 1000)
    inner = int(box.path("pid.1").read_text())
    os.kill(pids(box)[1], signal.SIGKILL)
    box.wait_event("world_shrunk")
    assert not ctrun.is_alive(inner)
    speed_up(box)
    assert run.wait(60) == 0, run


@pytest.mark.parametrize("words, text", [
    (("--standalone", "--survive=sdk", "--role=a=1:true", "--role-restarts=a=1"),
     "--survive=sdk: not with --role-restarts"),
    (("--standalone", "--survive=sdk", "--survive-timeout=0"), "--survive-timeout=0: 1 to "),
    (("--standalone", "--survive=all"), "--survive"),
    (("--standalone", "--survive-replace=1"), "--survive-replace=1: only with --survive"),
])
def test_what_it_cannot_do_is_refused(box, words, text):
    run = box.ctrun(*words, *(() if any(w.startswith("--role=") for w in words) else ("true",)))
    assert run.code == 2 and text in run.err and run.err.count("\n") <= 3, run


ASKS = r"""
import os, signal, socket, struct, sys, time
how, rank = sys.argv[1], int(os.environ["RANK"])
if how == "child" and os.fork():
    os.wait()
    sys.exit(0)
if how == "child":
    os.setsid()
name = os.environ["CTRUN_AGENT_SOCKET"]
agent = socket.socket(socket.AF_UNIX)
agent.connect("\0" + name[1:] if name[0] == "@" else name)
for kind, body in ((32, struct.pack("<iQ", 1 - rank if how == "liar" else rank, int(os.environ["CTRUN_GENERATION"]))),
                   (39, struct.pack("<I", 0))):
    agent.sendall(b"\xc7\x52\x08" + struct.pack("<BI", kind, len(body)) + body)
said = agent.recv(8 + 520, socket.MSG_WAITALL)
epoch, losses = struct.unpack_from("<II", said, 8)
print(f"kind {said[3]} epoch {epoch} losses {losses} ranks {[i for i in range(4096) if said[16 + i // 8] >> i % 8 & 1]}")
if how in ("last", "fails") and rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
while how in ("last", "fails") and '"rank_lost"' not in open(os.environ["CTRUN_EVENTS"]).read():
    time.sleep(0.01)
sys.exit(how == "fails")
"""


@pytest.mark.parametrize("how, ranks", [("worker", "[0, 1]"), ("liar", "[]"), ("child", "[]")])
def test_only_a_worker_itself_may_go_on(box, how, ranks):
    """A process outside of the worker's session, or one that sends another rank than its own, gets
    a world without ranks."""
    script = box.write("asks.py", ASKS)
    run = box.ctrun("--standalone", "--nproc-per-node=2", "--survive=sdk", script, how,
                    env={"PYTHON_EXEC": sys.executable})
    assert run.code == 0, run
    assert run.out.splitlines() == [f"kind 46 epoch 1 losses 0 ranks {ranks}"] * 2, run
    assert len(box.events("world_shrunk")) == (how == "worker")
    assert "after the loss" not in run.err, run


@pytest.mark.parametrize("how", ["last", "fails"])
def test_a_loss_that_nobody_continues_after_is_the_cause_and_nothing_came_before_it(box, how):
    run = box.ctrun("--standalone", "--nproc-per-node=2", "--survive=sdk", box.write("asks.py", ASKS), how,
                    env={"PYTHON_EXEC": sys.executable})
    assert run.code == 128 + signal.SIGKILL and box.events("rank_lost"), run
    assert "before it" not in run.err, run


HELD = AGENT + r"""
folder = sys.argv[1]
path = folder + "/port"
if rank == 0:
    listener = socket.create_server(("127.0.0.1", 0))
    with open(path + ".new", "w") as file:
        file.write(str(listener.getsockname()[1]))
    os.rename(path + ".new", path)
    peer = listener.accept()[0]
elif rank == 1:
    while not os.path.exists(path):
        time.sleep(0.01)
    peer = socket.create_connection(("127.0.0.1", int(open(path).read())))
if rank < 2:
    open(f"{folder}/ready.{rank}", "w").close()
    assert peer.recv(1) == b""  # the other one sends nothing, and lives
else:
    os.read(agent.fileno(), 1)  # for good
say(39, struct.pack("<I", 0))
print(f"rank {rank} goes on with {ranks_of(hear(46))}")
"""


def test_ranks_that_wait_for_each_other_are_freed(box):
    """--survive=torch: two ranks without the SDK each read from a socket of the other."""
    run = box.start_ctrun("--standalone", "--nproc-per-node=3", "--survive=torch", box.write("held.py", HELD), box.dir,
                          env={"PYTHON_EXEC": sys.executable})
    for rank in (0, 1):
        ctrun.wait_until(box.path(f"ready.{rank}").exists, lambda: f"rank {rank} waits\n{run}", 60)
    os.kill(pids(box)[2], signal.SIGKILL)
    assert run.wait(60) == 0, run
    assert sorted(run.out.splitlines()) == ["rank 0 goes on with [0, 1]", "rank 1 goes on with [0, 1]"], run
    assert box.events("survivors_freed")[0]["connections"] == 2, run


def test_a_rank_of_another_library_that_does_not_ask_is_told_in_the_words_of_that(box):
    run = box.start_ctrun("--standalone", "--nproc-per-node=3", "--survive=torch", "--survive-timeout=3",
                          box.write("held.py", HELD), box.dir, env={"PYTHON_EXEC": sys.executable})
    for rank in (0, 1):
        ctrun.wait_until(box.path(f"ready.{rank}").exists, lambda: f"rank {rank} waits\n{run}", 60)
    os.kill(pids(box)[1], signal.SIGSTOP)
    os.kill(pids(box)[2], signal.SIGKILL)
    assert run.wait(60) == 128 + signal.SIGKILL, run
    assert "within 3 s these ranks did not ask who continues (ctrun.elastic): 1" in run.err, run
