# SPDX-License-Identifier: Apache-2.0
"""Tasks of `srun --mpi=pmi2` get their endpoint through its PMI. tests/hosts has a real Slurm."""
import json
import os
import socket

import ctrun
import pmi
import pytest

# A host that does not exist: its name can not be looked up.
STEP = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "nohost[1-2]",
        "SLURM_STEP_TASKS_PER_NODE": "1(x2)", "SLURM_LOCALID": "0"}
SHOW = 'echo "$RANK/$WORLD_SIZE $(env | grep -c -e ^PMI_ -e ^CTRUN_TOKEN=) $PMI_FD"'


@pytest.fixture
def server():
    """server(N, ...): a PMI of N tasks, closed after the test."""
    made = []

    def make(*how, **more):
        made.append(pmi.Pmi(*how, **more))
        return made[-1]

    yield make
    for one in made:
        one.close()


def start(box, found, task, *options, show=SHOW, **env):
    """Starts this task of a step that has one task on each node, unless `env` has another step."""
    return box.start_ctrun(*options, "--no-python", "sh", "-c", show, fds=found.fds(task),
                           env={**STEP, **found.env(task), "SLURM_NODEID": str(task), **env})


def both(box, found, *options, **env):
    runs = [start(box, found, task, *options, **env) for task in (0, 1)]
    assert [run.wait() for run in runs] == [0, 0], runs
    return runs


def shown(box, found, *options, **env):
    run = box.ctrun(*options, "--dry-run", "--json", "--no-python", "true", fds=found.fds(0),
                    env={**STEP, **found.env(0), "SLURM_NODEID": "0", **env})
    assert run.code == 0, run
    return json.loads(run.out)


def test_tasks_meet_without_a_name_that_resolves(box, server):
    found = server(2)
    runs = both(box, found)
    assert [run.out for run in runs] == ["0/2 0 \n", "1/2 0 \n"], runs
    (card,) = found.kvs.values()
    port = card.split("|")[3]
    assert f"port {port}, sent through srun's PMI" in runs[0].err, runs
    assert "srun's PMI" not in runs[1].err, runs
    assert [heard[1:] for heard in found.heard] == [
        ["fullinit", "kvs-put", "kvs-fence", "finalize"],
        ["fullinit", "kvs-fence", "kvs-get", "finalize"]]


def test_the_derived_port_is_taken_where_it_is_free(box, server):
    derived = shown(box, server(2), "--bootstrap=port")["endpoint"]["port"]

    def told():
        found = server(2)
        both(box, found)
        (card,) = found.kvs.values()
        return int(card.split("|")[3])

    with socket.socket(socket.AF_INET6) as taken:
        taken.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("::", derived))
        taken.listen()
        assert told() != derived
    assert told() == derived


def test_an_agent_that_is_started_again_finds_the_others_at_the_derived_port(box, server):
    found = server(2)
    show = 'echo "$TORCHELASTIC_RESTART_COUNT" > up.$RANK; until [ -e leave ]; do sleep 0.05; done'
    how = {"CTRUN_TOKEN": "correct horse battery", "SLURM_STEP_NODELIST": "localhost,nohost"}
    runs = [start(box, found, task, show=show, **how) for task in (0, 1)]
    ctrun.wait_until(lambda: box.path("up.0").exists() and box.path("up.1").exists(), str(runs))
    runs[1].signal(9)
    assert runs[1].wait() == 137
    again = start(box, found, 1, show=show, **how)
    box.wait_event("round_started", count=4)
    box.write("leave", "")
    assert [run.wait() for run in (runs[0], again)] == [0, 0], (runs, again)
    assert "srun's PMI cannot be used (the PMI server has closed the connection)" in again.err, again


def test_a_run_without_a_secret_gets_one_that_only_the_pmi_tells(box, server):
    found = server(2, tamper=lambda card: "0" * 64 + card[card.index("|"):])
    runs = [start(box, found, task, "--rdzv-conf=join_timeout=60") for task in (0, 1)]
    (card,) = found.wait_told()
    if card.startswith("-"):
        pytest.skip("MUNGE is there, so no token is made")
    assert len(bytes.fromhex(card.split("|")[0])) == 32
    assert runs[1].wait() == 77 and "E_AUTH" in runs[1].err, runs
    runs[0].signal(15)
    assert runs[0].wait() == 143, runs


def test_a_secret_of_the_user_is_not_told(box, server):
    found = server(2)
    both(box, found, CTRUN_TOKEN="correct horse battery")
    (card,) = found.kvs.values()
    assert card.startswith("-|")
    found = server(2)
    both(box, found, "--auth=none")
    (card,) = found.kvs.values()
    assert card.startswith("-|")


def test_several_tasks_a_node_come_all(box, server):
    found = server(4)
    runs = [start(box, found, task, "--nproc-per-node=2", SLURM_STEP_TASKS_PER_NODE="2(x2)",
                  SLURM_NODEID=str(task // 2), SLURM_LOCALID=str(task % 2)) for task in range(4)]
    assert [run.wait() for run in runs] == [0] * 4, runs
    lines = sorted("".join(run.out for run in runs).splitlines())
    assert lines == [f"{rank}/4 0 " for rank in range(4)], runs
    assert all("kvs-fence" in heard for heard in found.heard)


# As MPICH does first. The worker itself reads the answer.
SPEAK = '''
import os, socket
with socket.socket(fileno=int(os.environ["PMI_FD"])) as pmi:
    pmi.sendall(b"cmd=init pmi_version=2 pmi_subversion=0\\n")
    print(os.environ["RANK"], os.environ["PMI_RANK"], pmi.recv(200).decode().split()[0])
'''
RANKS = {"SLURM_STEP_NODELIST": "localhost", "SLURM_STEP_TASKS_PER_NODE": "2",
         "SLURM_NODEID": "0"}


@pytest.mark.parametrize("options", [[], ["--bootstrap=port"]])
def test_where_each_task_is_a_rank_the_pmi_is_left_to_its_program(box, server, options):
    found = server(2)
    show = f"{ctrun.DEBIAN_PYTHON} {box.write('speak.py', SPEAK)}"
    runs = [start(box, found, task, *options, show=show, SLURM_LOCALID=str(task), **RANKS)
            for task in (0, 1)]
    assert [run.wait() for run in runs] == [0, 0], runs
    assert [run.out for run in runs] == ["0 0 cmd=response_to_init\n",
                                         "1 1 cmd=response_to_init\n"], runs
    assert "sent through srun's PMI" not in runs[0].err, runs
    why = shown(box, found, *options, SLURM_LOCALID="0", **RANKS)["bootstrap"]["why"]
    assert why == (options or ["each task is a rank, and its program may use MPI, which needs the PMI server"])[0]


def test_where_each_task_is_a_rank_the_pmi_can_be_asked_for(box, server):
    found = server(2)
    runs = [start(box, found, task, "--bootstrap=pmi", SLURM_LOCALID=str(task), **RANKS)
            for task in (0, 1)]
    assert [run.wait() for run in runs] == [0, 0], runs
    assert sorted(run.out for run in runs) == ["0/2 0 \n", "1/2 0 \n"], runs
    assert "sent through srun's PMI" in runs[0].err, runs


@pytest.mark.parametrize("reply,why", [
    (b"", "the PMI server has closed the connection"),
    (b"cmd=response_to_init rc=-1 pmi_version=1 pmi_subversion=1\n", "the PMI server does not support PMI-2"),
    (b"x" * 200, "the PMI server's answer to init is malformed (not PMI-2)"),
    (None, "the PMI server did not answer within 5 s")])
def test_a_pmi_that_cannot_be_used_is_told_and_the_port_is_derived(box, server, reply, why):
    found = server(2, reply=reply)
    runs = [start(box, found, task, SLURM_STEP_NODELIST="localhost,nohost")
            for task in (0, 1)]
    assert [run.wait() for run in runs] == [0, 0], runs
    assert f"srun's PMI cannot be used ({why}): the nodes meet at localhost port 2" in runs[0].err
    assert sorted(run.out for run in runs) == ["0/2 0 \n", "1/2 0 \n"], runs


def test_a_pmi_that_is_asked_for_is_used_or_refused(box, server):
    run = start(box, server(2, reply=b""), 0, "--bootstrap=pmi")
    assert run.wait() == 1 and "--bootstrap=pmi: srun's PMI: the PMI server has closed" in run.err, run
    run = box.ctrun("--bootstrap=pmi", "--no-python", "true", env={**STEP, "SLURM_NODEID": "0"})
    assert run.code == 2 and "PMI_FD is not set; srun --mpi=pmi2 sets it" in run.err, run
    run = box.ctrun("--bootstrap=pmi", "--nnodes=2", "--rdzv-endpoint=h", "--no-python", "true")
    assert run.code == 2 and "without an option that says where to meet" in run.err, run
    run = box.ctrun("--bootstrap=dns", "--no-python", "true")
    assert run.code == 2 and "--bootstrap" in run.err, run


THREE = {"SLURM_STEP_NODELIST": "nohost[1-3]", "SLURM_STEP_TASKS_PER_NODE": "1(x3)"}
GIVES_UP = "--rdzv-conf=join_timeout=1"


def missing(run, tasks):
    """What a run that has given up says about the missing nodes."""
    assert run.wait() == 75, run
    lines = run.err.splitlines()
    at = lines.index(f"ctrun: error[E_JOIN_TIMEOUT]: srun's PMI: not all {tasks} tasks of the step have reached "
                     "it in 1 s (RendezvousTimeoutError)")
    assert lines[at + 1].startswith("  missing    : ") and lines[at + 2].startswith("  do         : "), run
    return lines[at + 1][15:]


@pytest.mark.parametrize("first", [0, 2])
def test_who_waits_for_a_task_that_never_comes_names_its_node(box, server, first):
    found = server(3)
    other = start(box, found, first, **THREE)
    ctrun.wait_until(lambda: found.names, "it waits, so it has published its name")
    assert missing(start(box, found, 1, GIVES_UP, **THREE), 3) == f"nohost{3 - first}: never came"
    assert other.code is None
    other.signal(15)
    other.wait()


def test_all_nodes_that_never_come_are_one_line(box, server):
    assert missing(start(box, server(3), 0, GIVES_UP, **THREE), 3) == "nohost[2-3]: never came"


def test_where_srun_keeps_no_names_it_is_said_that_nobody_knows_who_is_missing(box, server):
    found = server(3)
    found.names = None
    assert missing(start(box, found, 0, GIVES_UP, **THREE), 3) == "(not known: srun's PMI does not say who came)"
    assert found.heard[0].count("name-publish") == 1 and "name-lookup" not in found.heard[0]


def test_a_task_that_is_missing_beside_another_of_its_node_is_not_a_missing_node(box, server):
    step = {"SLURM_STEP_NODELIST": "nohost[1-2]", "SLURM_STEP_TASKS_PER_NODE": "2(x2)"}
    found = server(4)
    other = start(box, found, 2, "--bootstrap=pmi", SLURM_NODEID="1", **step)
    ctrun.wait_until(lambda: found.names, "it waits, so it has published its name")
    assert missing(start(box, found, 0, "--bootstrap=pmi", GIVES_UP, SLURM_NODEID="0", **step), 4) == \
        "(a task of a node of which another came)"
    other.signal(15)
    other.wait()


def test_of_the_tasks_of_a_node_only_the_first_asks_for_names_unless_it_is_missing(box, server):
    step = {"SLURM_STEP_NODELIST": "nohost[1-2]", "SLURM_STEP_TASKS_PER_NODE": "2(x2)", "SLURM_NODEID": "0"}
    found = server(4)
    first = start(box, found, 0, "--bootstrap=pmi", **step)
    ctrun.wait_until(lambda: found.names, "it waits, so it has published its name")
    second = start(box, found, 1, "--bootstrap=pmi", GIVES_UP, **{**step, "SLURM_LOCALID": "1"})
    assert missing(second, 4) == "(another task of this node says which)"
    assert (found.heard[1].count("name-lookup"), found.heard[1].count("name-publish")) == (1, 0)
    first.signal(15)
    first.wait()
    found = server(4)
    alone = start(box, found, 1, "--bootstrap=pmi", GIVES_UP, **{**step, "SLURM_LOCALID": "1"})
    assert missing(alone, 4) == "nohost2: never came"


def test_of_many_nodes_only_the_first_looks_for_all(box, server):
    many = {"SLURM_STEP_NODELIST": "nohost[1-70]", "SLURM_STEP_TASKS_PER_NODE": "1(x70)"}
    found = server(70)
    first = start(box, found, 1, **many)
    ctrun.wait_until(lambda: found.names, "it waits, so it has published its name")
    assert missing(start(box, found, 5, GIVES_UP, **many), 70) == "(nohost2 says which)"
    assert found.heard[5].count("name-lookup") == 2
    assert missing(start(box, found, 0, GIVES_UP, **many), 70) == "nohost[3-5,7-70]: never came"
    first.signal(15)
    first.wait()


def test_the_fence_that_ends_while_srun_is_asked_for_names_is_passed(box, server):
    found = server(2)
    found.answers_names.clear()
    early = start(box, found, 0)
    ctrun.wait_until(lambda: found.names, "it waits, so it has published its name")
    late = start(box, found, 1)
    assert [run.wait() for run in (early, late)] == [0, 0], (early, late)
    assert sorted(run.out for run in (early, late)) == ["0/2 0 \n", "1/2 0 \n"], (early, late)


def test_no_name_is_asked_for_once_the_fence_is_passed(box, server):
    found = server(3)
    found.held = "name-lookup"
    found.answers_names.clear()
    other = start(box, found, 1, **THREE)
    early = start(box, found, 0, GIVES_UP, **THREE)
    ctrun.wait_until(lambda: "name-lookup" in found.heard[0], "it looks for the others")
    runs = [other, early, start(box, found, 2, **THREE)]
    assert [run.wait() for run in runs] == [0, 0, 0], runs
    assert found.heard[0].count("name-lookup") == 1


def test_a_signal_ends_the_wait_for_the_other_tasks(box, server):
    found = server(2)
    run = start(box, found, 0)
    ctrun.wait_until(lambda: "kvs-fence" in found.heard[0], "it waits at the fence")
    run.signal(15)
    assert run.wait() == 143, run


def test_what_the_user_says_wins_and_nothing_is_said_to_the_pmi(box, server):
    found = server(2)
    runs = both(box, found, f"--rdzv-endpoint=127.0.0.1:{ctrun.free_port()}", "--nnodes=2",
                SLURM_STEP_NODELIST="n1", SLURM_STEP_TASKS_PER_NODE="2", SLURM_NODEID="0")
    assert sorted(run.out.split()[1] for run in runs) == ["4", "4"], runs
    assert found.heard == [[], []]


def test_the_way_is_shown_before_anything_starts(box, server):
    found = server(2)
    plan = shown(box, found)
    assert plan["bootstrap"] == {"way": "pmi"} and plan["endpoint"]["port"] is None
    assert found.heard == [[], []]
    plan = shown(box, found, "--bootstrap=port")
    assert plan["bootstrap"] == {"way": "port", "why": "--bootstrap=port"}
    assert 20000 <= plan["endpoint"]["port"] < 29000
    assert "waits for all" in shown(box, found, "--nnodes=1:2")["bootstrap"]["why"]
    assert "3 tasks" in shown(box, found, SLURM_STEP_NODELIST="n[1-3]",
                              SLURM_STEP_TASKS_PER_NODE="1(x3)")["bootstrap"]["why"]
    assert "not an open socket here" in shown(box, found, PMI_FD="99")["bootstrap"]["why"]
    assert "PMI_RANK" in shown(box, found, PMI_RANK="x")["bootstrap"]["why"]
    run = box.ctrun("--print-config", "--no-python", "true", fds=found.fds(0),
                    env={**STEP, **found.env(0), "SLURM_NODEID": "0"})
    (line,) = [line.split() for line in run.out.splitlines() if line.startswith("bootstrap ")]
    assert line == ["bootstrap", "pmi", "Slurm"], run
