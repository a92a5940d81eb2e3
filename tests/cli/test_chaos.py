# SPDX-License-Identifier: Apache-2.0
"""ctrunctl chaos: what a plan does to a live run, how it is reported, and that no process stays
stopped."""
import json
import os
import re
import signal
import sys

import ctrun
import launch
import pytest
import schema

CTL = ctrun.program("ctrunctl")
HOLD = ["--no-python", "sh", "-c", "exec sleep 600"]


def start(box, *words, program=HOLD, ranks=2):
    run = box.start_ctrun("--allow-chaos", f"--nproc-per-node={ranks}", *words, *program)
    box.wait_event("worker_started", count=ranks)
    return run


def start_two(box, second=("--allow-chaos",), program=HOLD):
    """Two nodes of one rank each; the first one serves the rendezvous."""
    words = ["--nnodes=2", f"--rdzv-endpoint=localhost:{launch.free_port()}", "--rdzv-id=c", "--shutdown-timeout=1"]
    runs = []
    for own in (("--allow-chaos",), second):
        runs.append(box.start_ctrun(*own, *words, *program))
        box.wait_event("link_state", to="up", count=len(runs))
    box.wait_event("worker_started", count=2)
    return runs


def plan(box, *lines):
    return box.write("plan", "".join(f"{line}\n" for line in lines))


def chaos(box, *lines, run=None, words=()):
    name = [f"--run={run.pid}"] if run else []
    return box.run(CTL, "chaos", *name, *words, plan(box, *lines))


def interrupt(box, found, fault):
    """Ends the ctrunctl of a plan, and with it the fault."""
    found.signal(signal.SIGINT)
    found.wait()
    box.wait_event("chaos_over", fault=fault)


def state_of(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        return file.read().rpartition(")")[2].split()[0]


def pid_of(box, rank):
    return box.wait_event("worker_started", rank=rank)[-1]["worker_pid"]


def wait_stopped(pid, is_stopped=True):
    ctrun.wait_until(lambda: (state_of(pid) == "T") == is_stopped, f"stopped {is_stopped}")


# ---- Connections between ranks --------------------------------------------------------------


def test_a_rank_whose_connections_are_severed_and_its_peers_get_an_error_and_no_other_rank_does(box):
    """Rank 0 reads from rank 1, rank 1 from rank 2, and rank 2 from rank 0."""
    ring = [ctrun.ROOT / "tests" / "lib" / "ring.py", box.dir, "127.0.0.1"]
    run = box.start_ctrun("--allow-chaos", "--nproc-per-node=3", *ring, env={"PYTHON_EXEC": ctrun.DEBIAN_PYTHON})
    box.wait_event("worker_started", count=3)
    for rank in range(3):
        ctrun.wait_until(box.path(f"0/ready.{rank}").exists, f"rank {rank} waits for the next one")
    done = chaos(box, "at 0s sever rank=1")
    assert done.code == 0 and "sever rank=1" in done.out, done
    for rank in (0, 1):  # the store's connection is alive
        ctrun.wait_until(box.path(f"0/raised.{rank}").exists, f"rank {rank} has an error")
        assert box.path(f"0/raised.{rank}").read_text().split()[1:] == ["store"]
    assert not box.path("0/raised.2").exists()
    done = chaos(box, "at 0s sever rank=2")  # refused if the connection from rank 0 were not alive
    assert done.code == 0, done
    ctrun.wait_until(box.path("0/raised.2").exists, "rank 2 has an error only now")
    assert [e["target"] for e in box.events("chaos", fault="sever")] == [1, 2]
    run.signal(signal.SIGTERM)
    run.wait()


def test_who_has_no_connection_to_another_rank_cannot_be_severed(box):
    run = start(box)
    done = chaos(box, "at 0s sever rank=1")
    assert done.code == 1 and "rank 1 has no connection to another rank" in done.out, done
    run.signal(signal.SIGTERM)
    run.wait()


PACED = """import os, socket, sys, time
rank = int(os.environ["RANK"])
if rank == 0:
    listener = socket.create_server(("127.0.0.1", 0))
    with open("port.new", "w") as file:
        file.write(str(listener.getsockname()[1]))
    os.rename("port.new", "port")
    peer = listener.accept()[0]
else:
    while not os.path.exists("port"):
        time.sleep(0.02)
    peer = socket.create_connection(("127.0.0.1", int(open("port").read())))
last = None
while True:
    rate = peer.getsockopt(socket.SOL_SOCKET, 47) & 0xffffffff  # SO_MAX_PACING_RATE
    if rate != last:
        print(rank, rate, flush=True)
        last = rate
    time.sleep(0.02)
"""


def test_workers_send_at_a_limited_rate_until_the_fault_is_over(box):
    run = start(box, program=["--no-python", sys.executable, box.write("s.py", PACED)])
    ctrun.wait_until(lambda: run.out.count(f" {2**32 - 1}\n") == 2, lambda: run)  # connected, without a limit
    found = box.start(CTL, "chaos", plan(box, "at 0s throttle node=0 to=2M for=1h"))
    ctrun.wait_until(lambda: run.out.count(f" {2 << 20}\n") == 2, lambda: run)
    interrupt(box, found, "throttle")
    ctrun.wait_until(lambda: run.out.count(f" {2**32 - 1}\n") == 4, lambda: f"no limit again\n{run}")
    assert [event["to"] for event in box.events("chaos")] == [2 << 20]
    schema.check_events(box)
    ctrun.stop(run)


def test_workers_without_connections_cannot_be_throttled(box):
    run = start(box)
    done = chaos(box, "at 0s throttle node=0 to=2M for=1s")
    assert done.code == 1 and "its ranks have no connection to another rank" in done.out, done
    ctrun.stop(run)


# ---- The plan ---------------------------------------------------------------------------------


def test_the_same_seed_and_world_print_the_same_schedule_and_nothing_is_done(box):
    lines = ["seed 7", "end 1h", "every 1s..60s kill rank=any", "at 5s..50m cut node=any for=3s"]
    words = ["--dry-run", "--ranks=64", "--nodes=8"]
    first = chaos(box, *lines, words=words)
    assert first.code == 0 and len(first.out.splitlines()) > 50, first
    times = [float(line.split()[0]) for line in first.out.splitlines()]
    assert times == sorted(times) and times[-1] <= 3600
    assert re.search(r"^ *[\d.]+ s  \S+:3: kill rank=\d+ signal=KILL$", first.out, re.M), first
    assert chaos(box, *lines, words=words).out == first.out
    assert chaos(box, *lines, words=[*words, "--seed=8"]).out != first.out
    told = [json.loads(line) for line in chaos(box, *lines, words=[*words, "--json"]).out.splitlines()]
    assert [round(one["at_ms"] / 1000, 3) for one in told] == times
    assert box.run(CTL, "chaos", "--dry-run", plan(box, *lines)).code == 1  # without the size of the world


@pytest.mark.parametrize("lines, why", [
    (["seed 1", "at 10 kill rank=0"], "plan:2: '10': want a time"),
    (["at 1s explode"], "plan:1: no fault 'explode'"),
    (["", "at 1s stop rank=0"], "plan:2: stop needs for="),
    (["at 1s kill rank=0 node=1"], "plan:1: kill does not take 'node'"),
    (["at 1s kill rank=0 signal=STOP"], "plan:1: signal=STOP stops the process and nothing continues it"),
    (["every 1s kill rank=0"], "plan:1: every: the plan has no end"),
    (["at 1s kill rank=0", "at 1s kill rank=2"], "plan:2: rank=2: the world has ranks 0 to 1"),
    ([], "plan:0: the plan has no fault"),
])
def test_a_bad_plan_is_one_line_with_its_number(box, lines, why):
    found = chaos(box, *lines, words=["--dry-run", "--ranks=2"])
    assert found.code == 2 and len(found.err.splitlines()) == 1, found
    assert f"error[E_USAGE]: {box.path(why.partition(':')[0])}:{why.partition(':')[2]}" in found.err, found


def test_what_cannot_be_read_or_is_not_there_is_told(box):
    assert "No such file" in box.run(CTL, "chaos", "nowhere").err
    assert box.run(CTL, "chaos", "nowhere").code == 2
    assert chaos(box, "at 0s kill rank=0").code == 1  # no run
    found = chaos(box, "at 0s kill rank=0", words=["--dry-run", "--ranks=0"])
    assert found.code == 2 and "--ranks and --nodes must be at least 1" in found.err, found


# ---- Runs without --allow-chaos ---------------------------------------------------------------


def test_a_run_without_the_option_refuses(box):
    run = box.start_ctrun(*HOLD)
    box.wait_workers(1)
    found = chaos(box, "at 0s kill rank=0")
    assert found.code == 1 and "was started without --allow-chaos" in found.err, found
    assert not box.events("chaos") and not box.events("worker_ended")
    ctrun.stop(run)


def test_each_node_decides_for_itself_and_the_rest_of_the_plan_is_done(box):
    runs = start_two(box, second=())
    found = chaos(box, "at 0s stop rank=1 for=1ms", "at 1ms stop rank=0 for=1ms", run=runs[0])
    assert found.code == 1, found
    first, second = found.out.splitlines()
    assert re.search(r"plan:1: stop rank=1 for=1ms: not done: .* was started without --allow-chaos", first), found
    assert second.endswith("plan:2: stop rank=0 for=1ms"), found
    assert [event["target"] for event in box.events("chaos")] == [0]
    ctrun.stop(*runs)


# ---- Faults -----------------------------------------------------------------------------------


def test_who_is_killed_by_a_plan_is_not_blamed_and_it_is_no_crash_loop(box):
    run = start(box, "--max-restarts=4")
    for restart in range(5):
        box.wait_workers(2, restart=restart)
        assert chaos(box, "at 0s kill rank=1").code == 0
        if restart < 4:
            box.wait_event("round_started", generation=restart + 2)
            why = box.run(CTL, "why").out
            assert "chaos      : killed by ctrunctl chaos (plan line 1)" in why, why
            assert "which process sent the signal" not in why, why
    assert run.wait() == 137, run  # no restart is left; not E_CRASH_LOOP
    assert "killed by ctrunctl chaos (plan line 1)" in run.err and "E_CRASH_LOOP" not in run.err, run
    events = box.events("chaos")
    schema.check(events[0], "events")
    host = os.uname().nodename
    assert [(e["fault"], e["target"], e["signal"], e["line"], e["by"]) for e in events] == [("kill", 1, 9, 1, host)] * 5


def test_a_worker_that_makes_something_of_the_signal_is_told_with_it(box):
    run = start(box, program=["--no-python", "sh", "-c", "trap 'exit 7' TERM; : > up; while :; do sleep 0.05; done"],
                ranks=1)
    ctrun.wait_until(box.path("up").exists, lambda: f"up\n{run}")
    assert chaos(box, "# two", "at 0s kill rank=0 signal=TERM").code == 0
    assert run.wait() == 7
    assert re.search(r"chaos +: ctrunctl chaos sent it SIGTERM \d+\.\d s before \(plan line 2\)", run.err), run


def test_a_stopped_worker_goes_on_when_its_time_is_up(box):
    run = start(box)
    found = chaos(box, "at 0s stop rank=1 for=200ms")
    assert found.code == 0, found
    [over] = box.wait_event("chaos_over")
    schema.check(over, "events")
    [begun] = box.events("chaos")
    assert (over["fault"], over["target"], over["line"]) == ("stop", 1, 1)
    assert over["time_ns"] - begun["time_ns"] >= 150e6  # two clocks, which differ by a tick
    wait_stopped(pid_of(box, 1), False)
    ctrun.stop(run)


def test_an_interrupt_ends_what_lasts_on_all_nodes(box):
    runs = start_two(box)
    found = box.start(CTL, "chaos", f"--run={runs[0].pid}",
                      plan(box, "at 0s stop rank=0 for=1h", "at 0s stop rank=1 for=1h", "at 0s slow node=1 by=1ms for=1h"))
    box.wait_event("chaos", count=3)
    pids = [pid_of(box, rank) for rank in (0, 1)]
    for pid in pids:
        wait_stopped(pid)
    found.signal(signal.SIGINT)
    assert found.wait() == 128 + signal.SIGINT, found
    box.wait_event("chaos_over", count=3)
    for pid in pids:
        wait_stopped(pid, False)
    assert not box.events("worker_ended")
    ctrun.stop(*runs)


def test_the_agent_ends_it_when_ctrunctl_has_died(box):
    run = start(box)
    found = box.start(CTL, "chaos", plan(box, "at 0s stop rank=0 for=1s"))
    box.wait_event("chaos")
    found.signal(signal.SIGKILL)
    box.wait_event("chaos_over")
    wait_stopped(pid_of(box, 0), False)
    ctrun.stop(run)


def test_a_cut_node_comes_back_and_no_worker_ends(box):
    runs = start_two(box)
    assert chaos(box, "at 0s cut node=1 for=500ms", run=runs[0]).code == 0
    [cut] = box.wait_event("chaos")
    [down] = box.wait_event("link_state", to="connecting", **{"from": "up"})
    assert "cut by ctrunctl chaos" in down["why"], down
    box.wait_event("link_state", to="up", count=3)  # two at the start
    [over] = box.events("chaos_over")
    back = box.events("link_state", to="up")[2]
    assert cut["pid"] == down["pid"] == back["pid"] and over["time_ns"] <= back["time_ns"]
    assert not box.events("worker_ended") and not box.events("round_stopped")
    ctrun.stop(*runs)


def test_what_a_slow_node_says_arrives_late(box):
    runs = start_two(box)
    found = box.start(CTL, "chaos", f"--run={runs[1].pid}",
                      plan(box, "at 0s slow node=1 by=1s for=1h", "at 0s stop rank=0 for=1ms"))
    box.wait_event("chaos_over", fault="stop")
    [asked] = [e for e in box.events("control_request", verb="chaos") if e["rank"] == 0]
    [done] = box.events("chaos", fault="stop")
    assert done["time_ns"] - asked["time_ns"] >= 900e6, (asked, done)  # at least, and more on a busy machine
    found.signal(signal.SIGINT)
    assert found.wait() == 128 + signal.SIGINT, found
    ctrun.stop(*runs)


def test_log_files_meet_a_full_disk_and_those_of_the_next_round_do_not(box):
    run = start(box, "-r3", "--log-dir=D", "--max-restarts=1", ranks=1,
                program=["--no-python", "sh", "-c", "while :; do echo $TORCHELASTIC_RESTART_COUNT; sleep 0.05; done"])
    assert chaos(box, "at 0s full node=0 for=1h", "at 1ms kill rank=9 # in no world").code == 2
    found = box.start(CTL, "chaos", plan(box, "at 0s full node=0 for=1h"))
    [lost] = box.wait_event("log_file_lost")
    assert lost["why"] == "No space left on device", lost
    interrupt(box, found, "full")
    assert chaos(box, "at 0s kill rank=0").code == 0
    ctrun.wait_until(lambda: any("1" in path.read_text() for path in box.path("D").glob("*/attempt_1/0/stdout.log")),
                     lambda: f"a line of the next round\n{run}")
    assert lost["path"].endswith("/attempt_0/0/stdout.log") and "workers keep running" in run.err
    ctrun.stop(run)


WRITES = """import errno, os, time
while True:
    try:
        data = os.open("data", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(data, b"x")
        print("wrote", flush=True)
    except OSError as error:
        print(errno.errorcode[error.errno], flush=True)
    os.close(data)
    time.sleep(0.05)
"""


def test_workers_can_write_no_files_until_the_fault_is_over(box):
    run = start(box, program=["--no-python", sys.executable, box.write("s.py", WRITES)])
    found = box.start(CTL, "chaos", plan(box, "at 0s quota node=0 for=1h"))
    ctrun.wait_until(lambda: "EFBIG" in run.out, lambda: run)
    size = box.path("data").stat().st_size
    interrupt(box, found, "quota")
    ctrun.wait_until(lambda: box.path("data").stat().st_size > size, lambda: f"it writes again\n{run}")
    assert all(line.endswith(("wrote", "EFBIG")) for line in run.out.splitlines()), run
    schema.check_events(box)
    ctrun.stop(run)


def test_without_log_files_none_can_be_full(box):
    run = start(box)
    found = chaos(box, "at 0s full node=0 for=1s")
    assert found.code == 1 and ": its workers have no log files: start the run with -r3" in found.out, found
    ctrun.stop(run)


def test_a_run_that_ends_first_ends_the_plan(box):
    run = start(box)
    found = box.start(CTL, "chaos", plan(box, "at 0s stop rank=0 for=1ms", "at 1h kill rank=0"))
    box.wait_event("chaos_over")
    ctrun.stop(run)
    assert found.wait() == 0 and "has ended; 1 of 2 faults were not injected" in found.err, found
