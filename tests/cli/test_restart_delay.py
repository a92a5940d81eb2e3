# SPDX-License-Identifier: Apache-2.0
"""--restart-delay: the pause between a failure and the restart."""
import re
import signal

import ctrun
import pytest
import schema

VICTIM = ["--no-python", ctrun.program("victim")]


def delays(box):
    found = box.events("restart_delayed")
    for event in found:
        schema.check(event, "events")
    return [(event["failures"], event["delay_ms"]) for event in found]


def pauses(box):
    """Between the stop of a round and the start of the next, in milliseconds."""
    stopped, started = box.events("round_stopped"), box.events("round_started")
    return [(b["time_ns"] - a["time_ns"]) / 1e6 for a, b in zip(stopped, started[1:])]


def test_it_grows_without_progress_and_begins_anew_with_it(box):
    run = box.ctrun("--max-restarts=4", "--min-uptime=0", "--restart-delay=0.1,10", *VICTIM,
                    "@r0", "step", "5", "exit", "3", "@r1", "step", "4", "exit", "3", "@r2", "step", "5", "exit", "3",
                    "@r3", "step", "6", "exit", "3", "@r4", "step", "7")
    assert run.code == 0, run
    found = delays(box)
    assert [failures for failures, _ in found] == [1, 2, 3, 1], run
    for (failures, delay), pause in zip(found, pauses(box)):
        whole = 100 * 2 ** (failures - 1)
        assert whole / 2 <= delay <= whole and pause >= delay - 1, (found, pauses(box))
    lines = re.findall(r"ctrun: waiting 0\.\d s before the restart \(--restart-delay\): (\d) failures? without progress", run.err)
    assert lines == ["1", "2", "3", "1"], run


def test_a_round_that_lasts_is_progress_of_a_program_without_steps(box):
    run = box.ctrun("--max-restarts=2", "--min-uptime=0", "--restart-delay=0.001", "sh", "-c", "exit $((TORCHELASTIC_RESTART_COUNT < 2))")
    assert run.code == 0 and [failures for failures, _ in delays(box)] == [1, 1], run  # any round lasts for 0 s


def test_nobody_waits_by_default(box):
    run = box.ctrun("--max-restarts=1", *VICTIM, "@r0", "exit", "3", "@r1", "exit", "0")
    assert run.code == 0 and not delays(box), run


def test_a_restart_that_was_asked_for_does_not_wait(box):
    run = box.start_ctrun("--max-restarts=1", "--restart-delay=100", *VICTIM, "@r0", "touch", "here", "await", "again", "exit", "0")
    ctrun.wait_until(box.path("here").exists, "the first round runs")
    assert box.run(ctrun.program("ctrunctl"), "restart").code == 0
    box.wait_event("round_started", 2)
    box.write("again", "")
    assert run.wait() == 0 and not delays(box), run


def test_a_signal_ends_the_wait(box):
    run = box.start_ctrun("--max-restarts=1", "--restart-delay=100", *VICTIM, "exit", "3")
    box.wait_event("restart_delayed")
    run.signal(signal.SIGTERM)
    assert run.wait() == 143, run
    assert len(box.events("round_started")) == 1


def test_two_nodes_wait_for_the_one_that_waits_longer(box):
    port, runs = ctrun.free_port(), []
    for n, delay in enumerate(("0.2,0.2", "0")):
        runs.append(box.start_ctrun("--nnodes=2", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=delay", "--max-restarts=1",
                                    f"--restart-delay={delay}", *VICTIM, "@r0", "exit", "3", "@r1", "exit", "0"))
        box.wait_event("agent_state", n + 1, to="joining")
    assert [run.wait() for run in runs] == [0, 0], runs
    [(failures, delay)] = delays(box)
    assert failures == 1 and 100 <= delay <= 200
    told = box.events("restart_delayed")[0]["time_ns"]
    assert all((event["time_ns"] - told) / 1e6 >= delay - 1 for event in box.events("round_started", generation=2))


@pytest.mark.parametrize("value", ["-1", "x", "", "1,", "1,0.5", "2,x", "nan", "0.0001", "1,2,3", "301", "1,301"])
def test_a_delay_that_is_none_is_refused(box, value):
    run = box.ctrun(f"--restart-delay={value}", "true")
    assert run.code == 2 and f"--restart-delay={value}: " in run.err, run
