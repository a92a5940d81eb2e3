# SPDX-License-Identifier: Apache-2.0
"""--survive-replace: a lost rank is started again, and the others take it in at a step.

CTRUN_TEST_KILLS=50: the last test kills 50 ranks, at random, instead of 3."""
import contextlib
import os
import random
import re
import signal

import ctrun
import elastic
import pytest
import schema
from elastic import SLOW as ELASTIC
from elastic import END, last_step, pids, result, speed_up, wait_step

STEPS = 4000
PACE = 400  # microseconds of a step, at least
KILLS = int(os.environ.get("CTRUN_TEST_KILLS", 3))


def start(box, world, replace, *program, steps=STEPS):
    return box.start_ctrun("--standalone", f"--nproc-per-node={world}", "--survive=sdk",
                           f"--survive-replace={replace}", *(program or (ELASTIC,)), steps, PACE)


def waiting(box):
    """The program; a new rank waits until let() is called."""
    os.mkfifo(box.path("fifo"))
    return box.write("waiting", f'#!/bin/sh\n[ "$CTRUN_MAY_GROW" = new ] && read _ < {box.path("fifo")}\n'
                              f'exec {ELASTIC} "$@"\n', 0o755)


def let(box):
    with open(box.path("fifo"), "w", encoding="ascii") as fifo:
        fifo.write("\n")


def lose(box, rank):
    """Kills a rank, and stops the others before the new one begins; returns the pids of the
    others."""
    of = pids(box)
    os.kill(of[rank], signal.SIGKILL)
    box.wait_event("rank_replacing")
    others = [pid for r, pid in of.items() if r != rank]
    for pid in others:
        os.kill(pid, signal.SIGSTOP)
    return others


def go_on(others):
    for pid in others:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


@pytest.fixture(scope="module")
def undisturbed():
    return elastic.undisturbed(STEPS)


def check(box, run, undisturbed):
    speed_up(box)
    assert run.wait(60) == 0, run
    steps, slope, offset = result(run)
    assert (steps, STEPS) == (undisturbed[0], STEPS)
    assert abs(slope - undisturbed[1]) < 1e-10 and abs(offset - undisturbed[2]) < 1e-10, (run, undisturbed)


def test_a_lost_rank_comes_again_and_all_come_to_the_same(box, undisturbed):
    run = start(box, 3, 1, waiting(box))
    wait_step(run, 1000)
    others = lose(box, 1)
    let(box)
    assert box.wait_event("rank_ready")[0]["rank"] == 1
    go_on(others)
    grown = box.wait_event("world_grown")[0]
    assert (grown["epoch"], grown["joined"], grown["size"]) == (2, 1, 3), grown
    check(box, run, undisturbed)
    assert "(--survive-replace)" in run.err and "1 rank added: 3 continue" in run.err, run
    assert re.findall(r"^step \d+, (\d) ranks", run.out, re.M)[-1] == "3", run
    assert len(box.events("worker_started")) == 4 and len(box.events("round_started")) == 1
    assert len(box.events("rank_lost")) == len(box.events("world_shrunk")) == 1
    [bill] = box.events("bill", of="recovery")
    assert bill["parts"][0]["phases"] == ["decide"] and bill["unknown"] == ["detect"], bill
    assert sorted(part["phases"] for part in bill["parts"][1:]) == [["join"], ["re-form", "next step"]], bill
    assert sum(part["ms"] for part in bill["parts"]) == bill["total_ms"] and bill["is_whole"] == 1, bill
    assert re.search(r"^ctrun: recovery took \d+\.\d{3} s: decide \d+\.\d{3}, .*; not known: detect$", run.err, re.M), run
    for event in box.events():
        schema.check(event, "events")


def test_one_that_comes_after_a_reload_runs_what_the_others_run(box, undisturbed):
    """What was reloaded is for the next round."""
    run = start(box, 3, 1)
    wait_step(run, 1000)
    assert box.run(ctrun.program("ctrunctl"), "reload", "true").code == 0
    box.wait_event("reloaded")
    os.kill(pids(box)[1], signal.SIGKILL)
    box.wait_event("worker_started", 4)
    box.wait_event("world_grown")
    check(box, run, undisturbed)


def test_one_that_dies_while_it_waits_is_nobodys_loss(box, undisturbed):
    run = start(box, 3, 2, waiting(box))
    wait_step(run, 1000)
    others = lose(box, 2)
    let(box)
    box.wait_event("rank_ready")
    os.kill(pids(box)[2], signal.SIGKILL)
    let(box)
    box.wait_event("rank_ready", 2)
    go_on(others)
    box.wait_event("world_grown")
    check(box, run, undisturbed)
    assert [e["count"] for e in box.events("rank_replacing")] == [1, 2]
    assert len(box.events("rank_lost")) == len(box.events("world_grown")) == 1


def test_a_member_that_dies_while_another_waits_is_left_out_of_the_same_answer(box, undisturbed):
    run = start(box, 3, 1, waiting(box))
    wait_step(run, 1000)
    others = lose(box, 0)
    let(box)
    box.wait_event("rank_ready")
    os.kill(pids(box)[2], signal.SIGKILL)
    box.wait_event("rank_lost", 2)
    go_on(others)
    assert box.wait_event("world_grown")[0]["size"] == 2
    assert [e["left"] for e in box.events("world_shrunk")] == [2, 1]
    check(box, run, undisturbed)


def test_the_limit_is_kept(box, undisturbed):
    run = start(box, 3, 1, waiting(box))
    wait_step(run, 1000)
    others = lose(box, 1)
    let(box)
    box.wait_event("rank_ready")
    os.kill(pids(box)[1], signal.SIGSTOP)  # the others wait for it when it is a member
    go_on(others)
    box.wait_event("world_grown")
    os.kill(pids(box)[1], signal.SIGKILL)
    box.wait_event("world_shrunk", 2)
    check(box, run, undisturbed)
    assert len(box.events("rank_replacing")) == 1 and len(box.events("worker_started")) == 4


def test_a_run_that_ends_waits_for_nobody(box, undisturbed):
    """The new rank never asks."""
    shell = box.write("shell", f'#!/bin/sh\n[ "$CTRUN_MAY_GROW" = new ] && exec sleep 1000\nexec {ELASTIC} "$@"\n',
                      0o755)
    run = start(box, 3, 1, shell)
    wait_step(run, 1000)
    os.kill(pids(box)[1], signal.SIGKILL)
    check(box, run, undisturbed)
    assert len(box.events("worker_started")) == 4 and not box.events("world_grown")


def test_all_are_started_again_where_none_of_the_world_is_left(box):
    """The new rank alone is no world."""
    run = box.start_ctrun("--standalone", "--nproc-per-node=2", "--survive=sdk", "--survive-replace=1",
                          "--max-restarts=1", waiting(box), STEPS, PACE)
    wait_step(run, 1000)
    lose(box, 1)  # rank 0 is stopped
    let(box)
    box.wait_event("rank_ready")
    os.kill(pids(box)[0], signal.SIGKILL)
    speed_up(box)
    assert run.wait(60) == 0, run
    assert len(box.events("round_started")) == 2 and len(box.events("worker_started")) == 5
    assert not box.events("world_grown") and "restart 1/1: rank 0 " in run.err, run


def test_one_that_dies_while_the_others_save_is_nobodys_loss(box):
    """The run is asked to stop while the others are stopped, and the new rank is killed: that is
    not the cause of the run's end."""
    run = start(box, 3, 1, waiting(box))
    wait_step(run, 1000)
    others = lose(box, 1)
    let(box)
    box.wait_event("rank_ready")
    stop = box.run(ctrun.program("ctrunctl"), "stop")
    assert stop.code == 0, stop
    os.kill(pids(box)[1], signal.SIGKILL)
    box.wait_event("worker_ended", 2)
    go_on(others)
    assert run.wait(60) == 128 + signal.SIGTERM, run
    assert "stopped as asked" in run.err and "error[" not in run.err, run
    end = END.search(run.out)  # none if the stop continued them and they began to take in the new rank
    assert not end or int(end[1]) < STEPS, run


@pytest.mark.parametrize("words, text", [
    (("--survive-replace=1",), "--survive-replace=1: only with --survive"),
    (("--survive=sdk", "--survive-replace=-1"), "--survive-replace=-1: 0 to "),
])
def test_what_it_cannot_do_is_refused(box, words, text):
    run = box.ctrun("--standalone", *words, "true")
    assert run.code == 2 and text in run.err and run.err.count("\n") <= 3, run


def test_random_kills_cost_no_step(box):
    """At any step, also while an earlier rank is still being replaced; the result is that of one
    rank."""
    steps = 2000 * (KILLS + 2)
    speed_up(box)
    want = box.ctrun("--standalone", ELASTIC, steps)
    before = {kind: len(box.events(kind)) for kind in ("worker_started", "round_started")}
    run = start(box, 4, KILLS, steps=steps)
    seed = os.getpid()
    draw = random.Random(seed)
    victim = None
    for count in range(1, KILLS + 1):
        wait_step(run, last_step(run) + 1000)
        victim = draw.choice([rank for rank in range(4) if rank != victim])
        os.kill(pids(box)[victim], signal.SIGKILL)
        box.wait_event("worker_started", before["worker_started"] + 4 + count)
        joined = count - draw.randrange(2)  # the last one may not have joined yet
        ctrun.wait_until(lambda n=joined: sum(e["joined"] for e in box.events("world_grown")) >= n,
                         lambda: f"{joined} joined, seed {seed}\n{run}", 60)
    assert run.wait(60 + (steps - last_step(run)) // 200) == 0, (seed, run)
    assert result(run)[0] == steps and abs(result(run)[1] - result(want)[1]) < 1e-9, (seed, run, want)
    assert len(box.events("round_started")) == before["round_started"] + 1
