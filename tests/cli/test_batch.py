# SPDX-License-Identifier: Apache-2.0
"""What comes from a batch system, and how it is shown before anything starts."""
import json
import os
import re
import shutil
import signal
import socket

import ctrun
import pytest

STEP = {"SLURM_JOB_ID": "41", "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "n[001-003]",
        "SLURM_STEP_TASKS_PER_NODE": "1(x3)", "SLURM_NODEID": "1", "SLURM_LOCALID": "0"}
FLUX = {"FLUX_JOB_ID": "fABC", "FLUX_TASK_RANK": "3", "FLUX_TASK_LOCAL_ID": "1",
        "FLUX_JOB_SIZE": "4", "FLUX_JOB_NNODES": "2"}
LSF = {"LSB_JOBID": "31", "LSF_PM_TASKID": "2", "LSB_HOSTS": "hostA hostB"}
POD = {"JOB_COMPLETION_INDEX": "1", "KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOSTNAME": "train-1"}


def plan(box, env, *options):
    run = box.ctrun(*options, "--dry-run", "--json", "--no-python", "true", env=env)
    assert run.code == 0, run
    return json.loads(run.out)


def settings(box, env, *options):
    run = box.ctrun(*options, "--print-config", "--json", "--no-python", "true", env=env)
    assert run.code == 0, run
    return {name: (entry["value"], entry["from"])
            for name, entry in json.loads(run.out)["settings"].items()}


def test_nodes_order_endpoint_and_id_come_from_the_batch_system(box):
    found = plan(box, STEP, "--nproc-per-node=2")
    assert found["nodes"] == {"min": 3, "max": 3} and found["run_id"] == "slurm-41.0"
    assert found["endpoint"]["host"] == "n001" and 20000 <= found["endpoint"]["port"] < 29000
    assert found["batch"] == "Slurm job 41 step 0, node 1 of 3 (n002), task 1 of 3"
    found = plan(box, LSF)
    assert found["nodes"] == {"min": 2, "max": 2} and found["run_id"] == "lsf-31"
    assert found["endpoint"]["host"] == "hostA" and found["batch"].startswith("LSF job 31, node 1")


def test_each_setting_says_which_batch_system_it_comes_from(box):
    found = settings(box, STEP)
    assert found["nnodes"] == ("3:3", "Slurm") and found["node-rank"] == ("1", "Slurm")
    assert found["rdzv-id"] == ("slurm-41.0", "Slurm")
    found = settings(box, POD, "--nnodes=2")
    assert found["nnodes"] == ("2:2", "command line")
    assert found["rdzv-endpoint"] == ("train-0 port 29400", "Kubernetes")
    assert found["node-rank"] == ("1", "Kubernetes")
    found = settings(box, {**STEP, "PET_RDZV_ENDPOINT": "h:1"})
    assert found["rdzv-endpoint"] == ("h port 1", "PET_RDZV_ENDPOINT")
    assert found["nnodes"] == ("3:3", "Slurm") and found["rdzv-id"] == ("none", "default")


def test_a_task_that_is_a_rank_knows_its_place_before_the_start(box):
    uneven = {**STEP, "SLURM_STEP_TASKS_PER_NODE": "8(x2),7", "SLURM_NODEID": "2",
              "SLURM_LOCALID": "6"}
    found = plan(box, uneven)
    assert found["nodes"] == {"min": 23, "max": 23}
    assert found["batch"].endswith("node 2 of 3 (n003), task 22 of 23")
    (worker,) = found["workers"]
    env = worker["env"]
    assert (env["LOCAL_RANK"], env["LOCAL_WORLD_SIZE"], env["WORLD_SIZE"]) == ("6", "7", "23")
    assert (env["GROUP_RANK"], env["GROUP_WORLD_SIZE"]) == ("2", "3")


def test_a_task_with_one_gpu_of_its_own_is_local_rank_0(box):
    several = {**STEP, "SLURM_STEP_TASKS_PER_NODE": "4(x3)", "SLURM_LOCALID": "3"}
    (worker,) = plan(box, {**several, "CUDA_VISIBLE_DEVICES": "3"})["workers"]
    assert worker["env"]["LOCAL_RANK"] == "0"
    (worker,) = plan(box, {**several, "CUDA_VISIBLE_DEVICES": "0,1,2,3"})["workers"]
    assert worker["env"]["LOCAL_RANK"] == "3"
    (worker,) = plan(box, {**several, "CUDA_VISIBLE_DEVICES": "4,5,6,7"},
                     "--virtual-local-rank")["workers"]
    assert (worker["env"]["LOCAL_RANK"], worker["env"]["CUDA_VISIBLE_DEVICES"]) == ("0", "7")


def test_tasks_that_share_their_cpus_share_the_threads(box):
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2 or len(cpus) < os.cpu_count():
        pytest.skip("wants a machine of two CPUs and more, all of them allowed")
    several = {**STEP, "SLURM_STEP_TASKS_PER_NODE": f"{os.cpu_count() * 2}(x3)"}
    (worker,) = plan(box, several)["workers"]
    assert worker["env"]["OMP_NUM_THREADS"] == "1"
    several = {**STEP, "SLURM_STEP_TASKS_PER_NODE": f"{os.cpu_count()}(x3)"}
    run = box.run("taskset", "-c", str(cpus[0]), ctrun.program("ctrun"), "--dry-run", "--json",
                  "--no-python", "true", env=several)  # as srun --cpu-bind=cores does
    assert run.code == 0, run
    assert "OMP_NUM_THREADS" not in json.loads(run.out)["workers"][0]["env"]


def test_the_time_that_is_left_and_earlier_starts_are_shown(box):
    conf = box.write("slurm.conf", "ClusterName=x\nKillWait=60\n")
    found = plan(box, {**STEP, "SLURM_JOB_END_TIME": "99999999999", "SLURM_RESTART_COUNT": "2",
                       "SLURM_CONF": conf})
    assert found["requeues"] == 2 and found["time_left_s"] > 10**9 and found["kill_wait_s"] == 60
    assert found["run_id"] == "slurm-41.0.2"
    grace = settings(box, {**STEP, "SLURM_CONF": conf})["shutdown-timeout"]
    assert grace == ("54 s", "Slurm")
    grace = settings(box, {**STEP, "SLURM_CONF": conf}, "--shutdown-timeout=7")["shutdown-timeout"]
    assert grace == ("7 s", "command line")


def step_of_two_tasks():
    return {**STEP, "SLURM_STEP_NODELIST": "localhost", "SLURM_STEP_TASKS_PER_NODE": "2",
            "SLURM_NODEID": "0", "SLURM_JOB_ID": str(os.getpid())}


def test_what_happens_to_tasks_that_are_ranks_is_told_once_a_node(box):
    runs = [box.start_ctrun("--max-restarts=1", "--no-python", "sh", "-c",
                            "[ $RANK = 1 ] || exec sleep 600; echo boom >&2; exit 5",
                            env={**step_of_two_tasks(), "SLURM_LOCALID": task}) for task in "01"]
    assert [run.wait(30) for run in runs] == [5, 5], runs
    for words in ("error[E_EXIT]: rank 1 (", "last lines : boom", "restart 1/1: rank 1", "Root Cause"):
        assert words in runs[0].err and words not in runs[1].err, runs


def test_tasks_that_do_not_join_are_counted_as_tasks_of_their_hosts(box):
    """This host's other task never starts, nor does any of the other host."""
    here = socket.gethostname()
    step = {**step_of_two_tasks(), "SLURM_STEP_NODELIST": f"{here},nohost", "SLURM_STEP_TASKS_PER_NODE": "2,3"}
    run = box.ctrun("--rdzv-conf=join_timeout=11", "--no-python", "true", env=step)
    assert run.code == 75, run
    waiting, = re.findall(r"ctrun: (waiting .*)", run.err)
    assert waiting == f"waiting 10 s: 1/5 tasks; missing {here} (1 of 2 tasks joined), nohost (never connected)", run
    said = run.err[run.err.index("ctrun: error"):].splitlines()[:5]  # a line on loopback may follow
    assert said == ["ctrun: error[E_JOIN_TIMEOUT]: 1 of 5 tasks joined in 11.0 s (RendezvousTimeoutError)",
                    f"  joined     : {here}", f"  missing    : {here}: 1 of 2 tasks joined", "               nohost: never connected",
                    "  do         : look at the missing tasks; longer: --rdzv-conf join_timeout=1200"], run


def test_an_endpoint_that_was_typed_leaves_the_missing_nodes_their_names(box):
    here = socket.gethostname()
    step = {**STEP, "SLURM_STEP_NODELIST": f"{here},nohost[1-2]", "SLURM_NODEID": "0"}
    for options in ([], ["--nnodes=3"]):
        run = box.ctrun(f"--rdzv-endpoint={here}:{ctrun.free_port()}", *options, "--rdzv-conf=join_timeout=1", "--no-python",
                        "true", env=step)
        assert run.code == 75, run
        assert ": 1 of 3 nodes joined in 1.0 s" in run.err, run
        assert "  missing    : nohost1: never connected\n               nohost2: never connected\n  do " in run.err, run


def test_tasks_that_are_ranks_are_counted_as_tasks(box):
    run = box.start_ctrun("--no-python", "true", env=step_of_two_tasks())
    ctrun.wait_until(lambda: "1 of 2 tasks have joined; they meet at" in run.err, str(run))
    status = box.run(ctrun.program("ctrunctl"), "status", f"--run={run.pid}")
    assert re.search(r"^  waiting for the others: 1 of 2 have joined", status.out, re.M), status
    run.signal(signal.SIGTERM)
    assert run.wait() == 143, run


@pytest.mark.parametrize("cause, paths", [("exit", "bb"), ("exec", "bn")])
def test_a_task_that_is_a_rank_has_its_own_local_rank_in_all_that_is_told(box, cause, paths):
    """Also when its program cannot be started, and in torchrun's events."""
    for folder, interpreter in (("b", "/bin/sh"), ("n", "/absent")):
        box.path(folder).mkdir()
        box.write(f"{folder}/fails_as_rank_1", f"#!{interpreter}\nexit $((RANK * 5))\n", 0o755)
    runs = [box.start_ctrun("--event-log-handler=console", "--log-dir=logs", "--no-python", "fails_as_rank_1",
                            env={**step_of_two_tasks(), "SLURM_LOCALID": str(task), "PATH": f"{box.path(path)}:/usr/bin:/bin"})
            for task, path in enumerate(paths)]
    for run in runs:
        run.wait(30)
    failures = json.loads(next(box.path("logs").glob("**/summary.json")).read_text())["failures"]
    assert [(one["cause"], one["rank"], one["local_rank"]) for one in failures][:1] == [(cause, 1, 1)], failures
    for name in ("worker_started", "worker_ended"):
        found = box.events(name)
        assert found and all(one["local_rank"] == one["rank"] for one in found), found
    told = [json.loads(line)["metadata"] for line in runs[1].err.splitlines() if line.startswith('{"name"')]
    states = {one["state"]: json.loads(one["metadata"])["local_rank"] for one in told if one["global_rank"] == 1}
    assert states.pop("START", [1]) == [1] and states == {"FAILED": [1]}, runs


def start_merged(box):
    """Two tasks of one node that merge: the agent, and the one that sleeps."""
    step = step_of_two_tasks()
    runs = [box.start_ctrun("--nproc-per-node=2", "--no-python", "sh", "-c",
                            "touch up.$RANK; exec sleep 600", env={**step, "SLURM_LOCALID": task})
            for task in "01"]
    ctrun.wait_until(lambda: box.path("up.0").exists() and box.path("up.1").exists(), str(runs))
    return runs


def test_a_task_that_sleeps_leaves_signals_to_its_agent_and_ends_with_its_code(box):
    agent, sleeper = start_merged(box)
    sleeper.signal(signal.SIGUSR1)  # by default it would end with 138
    sleeper.signal(signal.SIGTERM)  # a scheduler signals all tasks
    agent.signal(signal.SIGTERM)
    assert (agent.wait(), sleeper.wait()) == (143, 143)


def test_a_task_that_sleeps_ends_when_its_agent_is_killed(box):
    agent, sleeper = start_merged(box)
    agent.signal(signal.SIGKILL)
    assert sleeper.wait() == 1 and "ended without reporting" in sleeper.err, sleeper
    box.wait_gone()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_task_that_a_signal_ends_while_it_waits_for_the_others_leaves_no_socket(box, number):
    step = {**STEP, "SLURM_STEP_NODELIST": "localhost", "SLURM_STEP_TASKS_PER_NODE": "2", "SLURM_NODEID": "0",
            "SLURM_LOCALID": "0", "SLURM_JOB_ID": str(os.getpid())}
    run = box.start_ctrun("--nproc-per-node=2", "--no-python", "true", env=step)
    folder = box.path("ctl")
    ctrun.wait_until(lambda: list(folder.glob("*.merge")), "it waits")
    run.signal(number)
    assert run.wait() == 128 + number, run
    assert list(folder.iterdir()) == []


def test_merged_workers_have_the_cpus_of_all_tasks(box):
    cpus = sorted(os.sched_getaffinity(0))[:2]
    if len(cpus) < 2 or not shutil.which("taskset"):
        pytest.skip("two CPUs and taskset are needed")
    step = {**STEP, "SLURM_STEP_NODELIST": "localhost", "SLURM_STEP_TASKS_PER_NODE": "2",
            "SLURM_NODEID": "0", "SLURM_JOB_ID": str(os.getpid())}
    runs = [box.start("taskset", "-c", cpu, ctrun.program("ctrun"), "--nproc-per-node=2", "--no-python",
                      "grep", "Cpus_allowed_list", "/proc/self/status",
                      env={**step, "SLURM_LOCALID": str(task)}) for task, cpu in enumerate(cpus)]
    assert [run.wait() for run in runs] == [0, 0], runs
    lists = {"-".join(map(str, cpus)), ",".join(map(str, cpus))}
    assert [line.split()[1] in lists for line in runs[0].out.splitlines()] == [True, True], runs


# The programs, $1, may lie below /tmp.
IN_A_SQUATTED_TMP = """
mount --bind "$1" /mnt && shift
mount -t tmpfs -o mode=1777 none /tmp
setpriv --reuid=65534 --clear-groups mkdir /tmp/ctrun-$(id -u)
setpriv --reuid=65534 --clear-groups "$0" -c 'import signal, socket
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.bind(f"\\0ctrun-merge-0-slurm-'$SLURM_JOB_ID'.0-0")
open("/tmp/bound", "w")
signal.pause()' &
trap "kill $!" EXIT
until [ -e /tmp/bound ]; do kill -0 $! || exit 1; sleep 0.05; done
SLURM_LOCALID=1 "$@" &
SLURM_LOCALID=0 "$@" && wait $!
"""


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="only root can be two users")
def test_tasks_of_a_node_find_each_other_where_another_user_has_taken_their_folder(box):
    ctrun.needs_mounts()
    step = {**STEP, "SLURM_STEP_NODELIST": "localhost", "SLURM_STEP_TASKS_PER_NODE": "2",
            "SLURM_NODEID": "0", "SLURM_JOB_ID": str(os.getpid()), "CTRUN_CONTROL_DIR": "",
            "XDG_RUNTIME_DIR": "", "TMPDIR": "/var/tmp", "CTRUN_EVENTS": ""}
    run = box.run("unshare", "-m", "sh", "-c", IN_A_SQUATTED_TMP, ctrun.DEBIAN_PYTHON, str(ctrun.BUILD / "bin"),
                  "/mnt/ctrun", "--nproc-per-node=2", "--no-python", "echo", "here", env=step, cwd="/")
    assert run.code == 0 and run.out == "here\nhere\n", run


def test_a_batch_script_of_several_nodes_is_told_of_srun(box):
    script = {"SLURM_JOB_ID": "41", "SLURM_NNODES": "2"}
    for options in ([], ["--nproc-per-node=2"], ["--nnodes=2"]):
        run = box.ctrun(*options, "--no-python", "true", env=script)
        assert run.code == 2 and "put srun in front" in run.err and "--nnodes=1" in run.err, run
    for options in (["--nnodes=1"], ["--standalone"]):
        assert box.ctrun(*options, "--no-python", "true", env=script).code == 0
    assert box.ctrun("--no-python", "true", env={**script, "SLURM_NNODES": "1"}).code == 0


def test_flux_does_not_name_its_nodes_and_an_endpoint_is_asked_for(box):
    run = box.ctrun("--no-python", "true", env=FLUX)
    assert run.code == 2 and "--rdzv-endpoint" in run.err, run


def test_a_hostlist_that_scontrol_refuses_is_refused(box):
    run = box.ctrun("--no-python", "true", env={**STEP, "SLURM_STEP_NODELIST": "gpu-[01-02]x"})
    assert run.code != 0 and "SLURM_STEP_NODELIST" in run.err, run


@pytest.mark.parametrize("starter, options", [
    ("mpirun.openmpi", ["--allow-run-as-root", "--oversubscribe"]), ("mpiexec.hydra", [])])
def test_mpirun_starts_ranks_or_one_agent(box, starter, options):
    if not shutil.which(starter):
        pytest.skip(f"{starter} is not installed")
    say = 'echo "$RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE"'
    start = [starter, *options, "-np", "3", ctrun.program("ctrun")]
    run = box.run(*start, "--no-python", "sh", "-c", say)
    assert run.code == 0, run
    assert sorted(run.out.split("\n")[:-1]) == ["0/3 0/3", "1/3 1/3", "2/3 2/3"], run
    run = box.run(*start, "--nproc-per-node=2", "--no-python", "sh", "-c", say)
    assert run.code == 0, run
    assert sorted(run.out.split("\n")[:-1]) == ["0/2 0/2", "1/2 1/2"], run
