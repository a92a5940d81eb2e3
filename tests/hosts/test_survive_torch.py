# SPDX-License-Identifier: Apache-2.0
"""--survive=torch on two hosts: ranks that wait for each other are freed, and with PyTorch 2.15
they continue without the one that is lost."""
import signal
import sys

import ctrun
import schema
import torch_job
from elastic import AGENT

# Ranks without a library that reports a loss. With "lost" ranks 0 and 1 read from each other's
# socket, with "asks" only rank 1 does.
HELD = AGENT + r"""
folder, how = sys.argv[1:]
path = folder + "/port"
if rank == 0:
    listener = socket.create_server(("", 0))
    with open(path + ".new", "w") as file:
        file.write(str(listener.getsockname()[1]))
    os.rename(path + ".new", path)
    peer = listener.accept()[0]
else:
    while not os.path.exists(path):
        time.sleep(0.01)
    peer = socket.create_connection((os.environ["MASTER_ADDR"], int(open(path).read()))) if rank == 1 else None
open(f"{folder}/ready.{rank}", "w").close()
if rank == 2:
    os.read(agent.fileno(), 1)  # for good
if how == "lost" or rank == 1:
    assert peer.recv(1) == b""  # the other one sends nothing, and lives
say(39, struct.pack("<I", 0))
print(f"rank {rank} goes on with {ranks_of(hear(46))}", flush=True)
"""
RANKS, STEPS = 4, 150


def start_one(box, hosts, host, count, *words, env):
    """Each host has its own folder: a pid may be the same on two hosts."""
    own = box.path(host)
    own.mkdir(exist_ok=True)
    return hosts.start(host, ctrun.program("ctrun"), f"--nproc-per-node={count}", "--rdzv-id=J", "--survive=torch", *words,
                       env={**env, "TMPDIR": own, "CTRUN_CONTROL_DIR": own / "ctl"})


def start_all(box, hosts, per_node, *words, env):
    """The ranks follow the order of the hosts."""
    runs = []
    for number, count in enumerate(per_node, 1):
        runs.append(start_one(box, hosts, f"node{number}", count, *words, env=env))
        box.wait_event("agent_state", number, to="joining")
    return runs


def start(box, lab, per_node, *words, env):
    hosts = lab(2)
    return hosts, start_all(box, hosts, per_node, "--nnodes=2", "--rdzv-endpoint=node1:29400", *words, env=env)


def kill(box, hosts, host, rank):
    """The pid comes from the event: a worker that a template has forked has it nowhere else."""
    pid = box.wait_event("worker_started", rank=rank)[-1]["worker_pid"]
    hosts.sh(host, f"kill -9 {pid}")


def wait_ready(box, runs, count):
    for rank in range(count):
        ctrun.wait_until(lambda: box.path(f"ready.{rank}").exists() or any(run.process.poll() is not None for run in runs),
                         lambda: f"rank {rank} waits\n{runs}", 60)


def said(runs):
    return sorted(line for run in runs for line in run.out.splitlines())


def test_ranks_that_wait_for_each_other_are_freed_when_one_of_another_host_is_lost(box, lab):
    hosts, runs = start(box, lab, (2, 1), box.write("held.py", HELD), box.dir, "lost", env={"PYTHON_EXEC": sys.executable})
    wait_ready(box, runs, 3)
    kill(box, hosts, "node2", 2)
    assert [run.wait(60) for run in runs] == [0, 0], runs
    assert said(runs) == ["rank 0 goes on with [0, 1]", "rank 1 goes on with [0, 1]"], runs
    assert box.events("survivors_freed"), runs


def test_one_that_asks_by_itself_frees_one_of_another_host(box, lab):
    """No rank is lost: rank 0 asks for the next world, and rank 1, which waits for rank 0, is
    freed."""
    _, runs = start(box, lab, (1, 1), box.write("held.py", HELD), box.dir, "asks", env={"PYTHON_EXEC": sys.executable})
    assert [run.wait(60) for run in runs] == [0, 0], runs
    assert said(runs) == ["rank 0 goes on with [0, 1]", "rank 1 goes on with [0, 1]"], runs
    assert not box.events("rank_lost"), runs


def has_made(box, runs, ranks, step):
    """Waits until each of these ranks has made that step, in any of its processes."""
    def look():
        made = {rank for (rank, _), lines in torch_job.logs(box).items() for s, *_ in lines if s >= step}
        return set(ranks) <= made or any(run.process.poll() is not None for run in runs)
    ctrun.wait_until(look, lambda: f"ranks {ranks} make step {step}\n{runs}", 200)


def test_no_step_is_lost_when_ranks_of_two_hosts_are_killed(box, lab):
    """A rank of the second host; then rank 0, whose host has the worker store."""
    torch_job.allow(box, 50)
    hosts, runs = start(box, lab, (2, 2), "--warm", box.write("train.py", torch_job.SCRIPT), box.dir, STEPS,
                 env={**torch_job.PACKAGE, "PYTHON_EXEC": torch_job.interpreter("newer")})
    for number, (host, rank, others) in enumerate((("node2", 3, (0, 1, 2)), ("node1", 0, (1, 2))), 1):
        has_made(box, runs, (rank, *others), 50 * number - 30)
        kill(box, hosts, host, rank)
        box.wait_event("world_shrunk", 2 * number, seconds=60)
        torch_job.allow(box, 50 * (number + 1))
        has_made(box, runs, others, 50 * number + 10)
    assert [run.wait(200) for run in runs] == [0, 0], runs
    made = torch_job.logs(box)
    assert torch_job.check_steps(made, STEPS, {who for who in made if who[0] in (0, 3)}) == {2, 3, 4}
    assert len(made) == RANKS and len(box.events("round_started")) == 2, runs
    schema.check_events(box)


def test_killed_ranks_of_two_hosts_are_replaced_and_all_come_to_the_same_bits(box, lab):
    """A rank of the second host, then all of the first, which has the worker store: the new ranks
    get their state from the others."""
    torch_job.allow(box, 50)
    hosts, runs = start(box, lab, (1, 2), "--warm", "--survive-replace=2", box.write("train.py", torch_job.SCRIPT), box.dir,
                        STEPS, env={**torch_job.PACKAGE, "PYTHON_EXEC": torch_job.interpreter("newer")})
    for number, (host, rank, others) in enumerate((("node2", 2, (0, 1)), ("node1", 0, (1, 2))), 1):
        has_made(box, runs, (rank, *others), 50 * number - 30)
        kill(box, hosts, host, rank)
        box.wait_event("world_shrunk", 2 * number, seconds=60)
        box.wait_event("rank_ready", number, seconds=100)
        torch_job.allow(box, 50 * number + 20)
        assert [e["size"] for e in box.wait_event("world_grown", 2 * number, seconds=60)] == [3] * 2 * number
        torch_job.allow(box, 50 * (number + 1))
    torch_job.allow(box, STEPS)
    assert [run.wait(200) for run in runs] == [0, 0], runs
    made = torch_job.logs(box)
    assert torch_job.check_steps(made, STEPS, {who for who in made if made[who][-1][0] < STEPS - 1}) <= {2, 3}, runs
    assert len(made) == 5 and len(box.events("round_started")) == 2, runs
    schema.check_events(box)


SHORT = "keep_alive_interval=1,keep_alive_max_attempt=3"


def begin_training(box, hosts, per_node, *words):
    torch_job.allow(box, 50)
    env = {**torch_job.PACKAGE, "PYTHON_EXEC": torch_job.interpreter("newer")}
    words = (f"--nnodes=1:{len(per_node)}", *words, "--warm", box.write("train.py", torch_job.SCRIPT), box.dir, STEPS)
    return start_all(box, hosts, per_node, *words, env=env), (words, env)


def check_end(box, runs, lost, sizes):
    """Every worker makes each step to the end; only those of the `lost` ranks may end before."""
    torch_job.allow(box, STEPS)
    assert [run.wait(200) for run in runs] == [0] * len(runs), runs
    made = torch_job.logs(box)
    assert torch_job.check_steps(made, STEPS, {who for who in made if who[0] in lost and made[who][-1][0] < STEPS - 1}) == sizes
    schema.check_events(box)


def test_rank_0_s_host_is_lost_and_then_the_next_one(box, lab):
    """The worker store is lost with the first host, then again with the second one, which has it
    then."""
    hosts = lab(4)
    server = hosts.start("node4", ctrun.program("ctrund"), f"--listen={hosts.ip('node4')}:29400")
    runs, _ = begin_training(box, hosts, (1, 1, 2), "--rdzv-backend=c10d", "--rdzv-endpoint=node4:29400",
                             f"--rdzv-conf=is_host=0,last_call_timeout=60,{SHORT}")
    for number, others in enumerate(((1, 2, 3), (2, 3)), 1):
        has_made(box, runs, (number - 1, *others), 50 * number - 30)
        hosts.cut_power(f"node{number}")
        runs.pop(0).wait()
        torch_job.allow(box, 50 * number + 20)
        told = box.wait_event("worker_store_moved", (2, 3)[number - 1], seconds=60)
        assert told[-1]["master_addr"] == hosts.ip(f"node{number + 1}"), told
        has_made(box, runs, others, 50 * number + 10)
        torch_job.allow(box, 50 * (number + 1))
    check_end(box, runs, (0, 1), {2, 3, 4})
    assert len(box.events("round_started")) == 3 and len(torch_job.logs(box)) == RANKS
    server.signal(signal.SIGTERM)
    server.wait()


def test_a_spare_host_takes_the_place_of_rank_0_s(box, lab):
    """It gets parameters and state from the rank of the other host, which continues meanwhile; then
    that host is lost, too, and comes back."""
    hosts = lab(4)
    server = hosts.start("node4", ctrun.program("ctrund"), f"--listen={hosts.ip('node4')}:29400")
    runs, (words, env) = begin_training(box, hosts, (1, 1), "--rdzv-backend=c10d", "--rdzv-endpoint=node4:29400",
                                        f"--rdzv-conf=is_host=0,last_call_timeout=60,{SHORT}", "--survive-replace=1")
    runs.append(start_one(box, hosts, "node3", 1, *words, env=env))
    box.wait_event("agent_state", 3, to="joining")
    for number, lost in enumerate(("node1", "node2"), 1):
        has_made(box, runs, (0, 1), 50 * number - 30)
        hosts.cut_power(lost)
        runs.pop(0).wait()
        box.wait_event("worker_store_moved", number, seconds=60)
        if number == 2:
            hosts.boot(lost)
            runs.append(start_one(box, hosts, lost, 1, *words, env=env))
        box.wait_event("rank_ready", number, seconds=100)
        torch_job.allow(box, 50 * number + 20)
        assert [e["size"] for e in box.wait_event("world_grown", 2 * number, seconds=100)] == [2] * 2 * number
        torch_job.allow(box, 50 * (number + 1))
    torch_job.allow(box, STEPS)
    assert [run.wait(200) for run in runs] == [0, 0], runs
    made = torch_job.logs(box)
    assert torch_job.check_steps(made, STEPS, {who for who in made if made[who][-1][0] < STEPS - 1}) == {1, 2}
    assert len(box.events("round_started")) == 4 and {e["generation"] for e in box.events("round_started")} == {1}
    schema.check_events(box)
    server.signal(signal.SIGTERM)
    server.wait()
