# SPDX-License-Identifier: Apache-2.0
"""What a worker is started with: program, arguments, environment, session and limits."""
import json
import os
import pathlib
import resource
import uuid

import ctrun
import launch
import pair
import pytest


@pytest.fixture
def script(box):
    return box.write("x.py", "")


def dump_argv(box, *options, script_args=(), env=None):
    """argv of a Python script that prints it; the script's own path comes as typed."""
    box.write("show.py", "import sys, json; print(json.dumps(sys.orig_argv + ['|'] + sys.argv))")
    run = box.ctrun(*options, *script_args, env=env)
    assert run.code == 0, run
    words = json.loads(run.out)
    bar = words.index("|")
    return words[:bar], words[bar + 1:]


def test_torchrun_028_a_script_runs_under_python_unbuffered(box):
    original, argv = dump_argv(box, script_args=["show.py", "a", "--b"])
    assert original[1:] == ["-u", "show.py", "a", "--b"]
    assert os.path.basename(original[0]).startswith("python")
    assert argv == ["show.py", "a", "--b"]


def test_torchrun_029_a_module_runs_with_m(box):
    original, _ = dump_argv(box, "-m", script_args=["show", "a"])
    assert original[1:] == ["-u", "-m", "show", "a"]


def test_torchrun_030_no_python_runs_the_program_itself(box, dump):
    run = box.ctrun("--no-python", "dump.sh", "a", "b",
                    env={**dump.env, "PATH": f"{box.dir}:{box.env['PATH']}"})
    assert run.code == 0, run
    assert dump.argv()[1:] == ["a", "b"]


def test_torchrun_031_python_exec_replaces_the_interpreter(box, dump):
    env = {**dump.env, "PYTHON_EXEC": dump.program}
    assert box.ctrun(box.write("x.py", ""), "a", env=env).code == 0
    assert dump.argv()[1:] == ["-u", str(box.path("x.py")), "a"]
    run = box.ctrun("--no-python", "sh", "-c", "echo direct", env=env)
    assert run.out == "direct\n"


def test_torchrun_032_macros_are_substituted_in_arguments(box, dump):
    words = ["${local_rank}", "$local_rank", "${foo}", "$$x", "a${local_rank}b"]
    assert box.ctrun("--nproc-per-node=2", dump.program, *words, env=dump.env).code == 0
    assert dump.argv(1)[1:] == ["1", "1", "${foo}", "$x", "a1b"]
    assert dump.argv(0)[1:] == ["0", "0", "${foo}", "$x", "a0b"]


def test_torchrun_033_local_rank_is_not_appended(box, dump):
    assert box.ctrun(dump.program, env=dump.env).code == 0
    assert dump.argv()[1:] == []


def test_torchrun_034_run_path_runs_the_script_as_main(box):
    box.write("main.py", "import sys\nassert __name__ == '__main__'\n"
              "print(sys.argv)\nsys.exit(0)\n")
    run = box.ctrun("--run-path", "main.py", "a")
    assert run.code == 0 and run.out == "['main.py', 'a']\n", run


@pytest.mark.parametrize("options", [[], ["--warm=json"]], ids=["exec", "warm"])
def test_an_exception_of_a_script_under_run_path_is_in_the_error_file(box, options):
    """As torchrun, which needs no @record then."""
    box.write("main.py", "raise ValueError('a \\'word\\'')\n")
    run = box.ctrun("--log-dir=logs", *options, "--run-path", "main.py")
    assert run.code == 1, run
    error = json.loads(next(box.path("logs").glob("*/attempt_0/0/error.json")).read_text())["message"]
    assert error["message"] == "ValueError: a 'word'", error
    assert 'File "main.py", line 1, in <module>\n' in error["extraInfo"]["py_callstack"], error
    assert error["extraInfo"]["timestamp"].isdigit(), error


def test_torchrun_035_cwd_and_streams_are_the_launchers(box):
    run = box.ctrun("sh", "-c", "pwd; echo problem >&2; readlink /proc/self/fd/0")
    assert run.out.splitlines() == [str(box.dir), "/dev/null"]
    assert run.err == "problem\n"


def test_torchrun_036_each_worker_leads_its_session_and_group(box):
    run = box.ctrun("--nproc-per-node=2", "sh", "-c", "ps -o pid=,pgid=,sid= -p $$$$")
    assert run.code == 0, run
    lines = [line.split() for line in run.out.splitlines()]
    assert len(lines) == 2 and all(len(set(line)) == 1 for line in lines)


NAMES = """LOCAL_RANK RANK GROUP_RANK ROLE_RANK ROLE_NAME LOCAL_WORLD_SIZE WORLD_SIZE
GROUP_WORLD_SIZE ROLE_WORLD_SIZE MASTER_ADDR MASTER_PORT TORCHELASTIC_RESTART_COUNT
TORCHELASTIC_MAX_RESTARTS TORCHELASTIC_RUN_ID TORCHELASTIC_USE_AGENT_STORE
TORCH_NCCL_ASYNC_ERROR_HANDLING TORCHELASTIC_ERROR_FILE OMP_NUM_THREADS
TORCHELASTIC_SIGNALS_TO_HANDLE PYTHONFAULTHANDLER""".split()


def test_torchrun_037_038_044_045_047_057_one_node_environment(box, dump):
    run = box.ctrun("--nproc-per-node=3", "--max-restarts=2", dump.program,
                    env={**dump.env, "MINE": "kept"})
    assert run.code == 0, run
    found = dump.environments()
    assert sorted(found) == [0, 1, 2]
    for rank, env in found.items():
        assert all(env.get(name) for name in NAMES), (rank, env)
        assert env["MINE"] == "kept"
        assert env["LOCAL_RANK"] == env["ROLE_RANK"] == env["RANK"] == str(rank)
        assert env["WORLD_SIZE"] == env["LOCAL_WORLD_SIZE"] == env["ROLE_WORLD_SIZE"] == "3"
        assert (env["GROUP_RANK"], env["GROUP_WORLD_SIZE"]) == ("0", "1")
        assert env["ROLE_NAME"] == "default"
        assert env["TORCHELASTIC_USE_AGENT_STORE"] == "True"
        assert (env["TORCHELASTIC_RESTART_COUNT"], env["TORCHELASTIC_MAX_RESTARTS"]) == ("0", "2")
        assert env["TORCHELASTIC_SIGNALS_TO_HANDLE"] == "SIGTERM,SIGINT,SIGHUP,SIGQUIT"
    assert len({(e["MASTER_ADDR"], e["MASTER_PORT"]) for e in found.values()}) == 1


@pytest.mark.parametrize("words", [[], ["--standalone"],
                                   ["--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0",
                                    "--rdzv-conf=is_host=1"]])
def test_the_master_port_is_left_free_where_worker_0_serves(box, words):
    run = box.ctrun(*words, "--nproc-per-node=3", box.write("serve.py", pair.SERVER),
                    env=pair.NOT_SHARED)
    assert run.code == 0, run
    assert sorted(run.out.splitlines()) == [f"store {rank} False" for rank in range(3)], run


def test_the_static_backend_serves_the_workers_in_any_case(box, dump):
    run = box.ctrun("--rdzv-backend=static", "--master-port=0", dump.program,
                    env={**dump.env, **pair.NOT_SHARED})
    assert run.code == 0 and "has no effect with the static backend" in run.err, run
    assert dump.environments()[0]["TORCHELASTIC_USE_AGENT_STORE"] == "True"


def test_torchrun_051_omp_num_threads(box, dump):
    run = box.ctrun("--nproc-per-node=2", "--omp-threads=torchrun", dump.program, env=dump.env)
    assert "Setting OMP_NUM_THREADS" in run.err and "*" * 41 in run.err
    assert dump.environments()[1]["OMP_NUM_THREADS"] == "1"
    one = launch.Dump(box, "one")
    run = box.ctrun(one.program, env=one.env)
    assert run.err == "" and "OMP_NUM_THREADS" not in one.environments()[0]
    mine = launch.Dump(box, "mine")
    run = box.ctrun("--nproc-per-node=2", mine.program, env={**mine.env, "OMP_NUM_THREADS": "7"})
    assert run.err == "" and mine.environments()[0]["OMP_NUM_THREADS"] == "7"


def cores():
    """Physical cores that this process may use."""
    found = set()
    for cpu in os.sched_getaffinity(0):
        path = f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
        found.add(open(path).read() if os.path.exists(path) else cpu)
    return len(found)


def in_a_cgroup(box, quota):
    """Words in front of a command that sees cgroups, of each version, with this quota of CPU time in 100 ms."""
    ctrun.needs_mounts()
    for folder in ("cpu", "cpu,cpuacct"):
        box.path(f"cgroup/{folder}").mkdir(parents=True)
        box.write(f"cgroup/{folder}/cpu.cfs_quota_us", f"{quota}\n")
        box.write(f"cgroup/{folder}/cpu.cfs_period_us", "100000\n")
    box.write("cgroup/cpu.max", f"{'max' if quota < 0 else quota} 100000\n")
    return ("unshare", "-m", "sh", "-c", 'mount --bind "$0" /sys/fs/cgroup && exec "$@"', box.path("cgroup"),
            ctrun.program("ctrun"))


def test_omp_num_threads_is_a_workers_share_of_the_cores_and_said_when_asked(box, dump):
    free = in_a_cgroup(box, -1)
    run = box.run(*free, "--nproc-per-node=2", dump.program, env=dump.env)
    assert run.code == 0 and run.err == "", run
    run = box.run(*free, "--nproc-per-node=2", "-v", dump.program, env=dump.env)
    threads = str(max(1, cores() // 2))
    assert {e["OMP_NUM_THREADS"] for e in dump.environments().values()} == {threads}
    assert run.err.count(f"ctrun: info: OMP_NUM_THREADS={threads}: ") == 1, run


def test_a_cpu_limit_of_the_cgroup_counts_in_place_of_more_cores(box, dump):
    run = box.run(*in_a_cgroup(box, 90000), "--nproc-per-node=2", "-v", dump.program, env=dump.env)
    assert run.code == 0 and "2 workers share the time of 1 CPU: a limit of the cgroup" in run.err, run
    assert {e["OMP_NUM_THREADS"] for e in dump.environments().values()} == {"1"}
    assert cores() == 1 or run.err.count("OMP_NUM_THREADS=1: 1 CPU for 2 workers") == 1, run


@pytest.mark.skipif(cores() < 2, reason="this machine has one core")
def test_cores_are_divided_among_workers_without_a_gpu(box):
    shown = ("--numa-binding=cores", "--nproc-per-node=2")
    script = box.write("cpus.py", "import os; print(sorted(os.sched_getaffinity(0)), flush=True)\n")
    first, second = [set(json.loads(line)) for line in box.ctrun(*shown, script).out.splitlines()]
    assert first and second and not first & second and first | second <= os.sched_getaffinity(0)
    plan = box.ctrun(*shown, "--dry-run", script).out
    assert plan.count("    CPUs ") == 2 and "GPU" not in plan, plan
    run = box.ctrun("--numa-binding=cores", f"--nproc-per-node={cores() + 1}", script)
    assert run.code == 1 and f"{cores()} usable cores for {cores() + 1} workers" in run.err, run


def test_open_files_are_raised_and_core_files_on_request(box):
    shown = ("sh", "-c", "echo $$(ulimit -Sn) $$(ulimit -Sc)")
    small = ("bash", "-c", "ulimit -Sn 256; ulimit -Sc 0; exec \"$@\"", "-",
             ctrun.program("ctrun"))
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    most = 524288 if hard < 0 else min(hard, 524288)
    assert box.run(*small, *shown).out.split() == [str(most), "0"]
    run = box.run(*small, "--open-files=keep", "--core", *shown)
    files, core = run.out.split()
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    assert (files, core) == ("256", "unlimited" if hard < 0 else str(hard // 1024))


def test_locked_memory_is_raised_to_the_hard_limit(box):
    hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
    most = 4096 if hard < 0 else hard // 1024
    run = box.run("bash", "-c", f'ulimit -Sl 32; ulimit -Hl {most}; exec "$@"', "-", ctrun.program("ctrun"), "sh", "-c",
                  "ulimit -Sl")
    assert run.out == f"{most}\n", run


def test_print_config_tells_where_each_setting_comes_from(box, script):
    run = box.ctrun("--nproc-per-node=2", "--print-config", "--json", script,
                    env={"PET_MAX_RESTARTS": "3", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "7",
                         "OMP_NUM_THREADS": "5"})
    settings = json.loads(run.out)["settings"]
    expected = {"nproc-per-node": ("2", "command line"), "max-restarts": ("3", "PET_MAX_RESTARTS"),
                "shutdown-timeout": ("7 s", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"),
                "omp-threads": ("5", "OMP_NUM_THREADS"), "tee": ("0", "default")}
    for name, (value, origin) in expected.items():
        assert settings[name] == {"value": value, "from": origin}
    slurm = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_NODEID": "0", "SLURM_PROCID": "0",
             "SLURM_LOCALID": "0", "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_NODELIST": "n[1-2]",
             "SLURM_STEP_NODELIST": "n[1-2]", "SLURM_STEP_NUM_NODES": "2",
             "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
             "SLURM_NTASKS": "2"}
    run = box.ctrun("--print-config", script, env=slurm)
    rows = {line.split()[0]: line.split()[1:] for line in run.out.splitlines()}
    assert rows["nnodes"] == ["2:2", "Slurm"], run
    assert rows["rdzv-endpoint"][0] == "n1" and rows["rdzv-endpoint"][-1] == "Slurm"
    assert rows["tee"] == ["0", "default"]


def test_dry_run_shows_cpus_and_limits(box, script):
    plan = launch.plan(box, "--core", script)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = 524288 if hard < 0 else min(hard, 524288)
    assert plan["cores"] == cores() and plan["raises_core"] is True
    assert plan["open_files"] == max(soft, most)
    assert "CPUs       : " + plan["cpus"] in box.ctrun("--dry-run", script).out


def test_a_cpu_mask_smaller_than_the_workers_is_warned_of(box):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one CPU: no smaller mask")
    cpu = min(os.sched_getaffinity(0))
    small = ("taskset", "-c", cpu, ctrun.program("ctrun"), "--nproc-per-node=2", "true")
    run = box.run(*small)
    assert run.code == 0 and f"2 workers share 1 CPU ({cpu})" in run.err, run
    run = box.run(*small, env={"SLURM_JOB_ID": "1"})
    assert "srun --cpus-per-task=2 or --cpu-bind=none" in run.err, run


def test_torchrun_052_nccl_error_handling_is_the_users_if_set(box, dump):
    assert box.ctrun(dump.program,
                     env={**dump.env, "TORCH_NCCL_ASYNC_ERROR_HANDLING": "3"}).code == 0
    assert dump.environments()[0]["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "3"


def test_torchrun_053_153_the_run_id_is_the_users_or_a_uuid(box, dump):
    assert box.ctrun("--rdzv-id=J", dump.program, env=dump.env).code == 0
    assert dump.environments()[0]["TORCHELASTIC_RUN_ID"] == "J"
    alone = launch.Dump(box, "alone")
    assert box.ctrun("--standalone", "--rdzv-id=J", alone.program, env=alone.env).code == 0
    uuid.UUID(alone.environments()[0]["TORCHELASTIC_RUN_ID"])


def test_torchrun_054_the_restart_count_grows_by_one(box, dump):
    box.write("flaky.sh", '#!/bin/sh\n"$DUMP" && test "$TORCHELASTIC_RESTART_COUNT" = 2\n', 0o755)
    run = box.ctrun("--max-restarts=2", "--min-uptime=0", "flaky.sh", env={**dump.env, "DUMP": dump.program})
    assert run.code == 0, run
    for attempt in range(3):
        assert dump.environments(attempt)[0]["TORCHELASTIC_RESTART_COUNT"] == str(attempt)


def test_torchrun_055_139_virtual_local_rank(box, dump):
    run = box.ctrun("--virtual-local-rank", "--nproc-per-node=2", dump.program,
                    env={**dump.env, "CUDA_VISIBLE_DEVICES": "4, 5"})
    assert run.code == 0, run
    found = dump.environments()
    assert [found[rank]["CUDA_VISIBLE_DEVICES"] for rank in (0, 1)] == ["4", "5"]
    assert found[0]["LOCAL_RANK"] == found[1]["LOCAL_RANK"] == "0"
    hip = launch.Dump(box, "hip")
    assert box.ctrun("--virtual-local-rank", "--nproc-per-node=2", hip.program,
                     env={**hip.env, "HIP_VISIBLE_DEVICES": "6,7"}).code == 0
    for rank, env in hip.environments().items():
        assert env["HIP_VISIBLE_DEVICES"] == env["CUDA_VISIBLE_DEVICES"] == str(6 + rank)


def test_an_empty_list_hides_the_gpus_from_a_virtual_local_rank_too(box, dump):
    env = {**dump.env, "CUDA_VISIBLE_DEVICES": ""}
    assert box.ctrun("--virtual-local-rank", dump.program, env=env).code == 0
    assert dump.environments()[0]["CUDA_VISIBLE_DEVICES"] == ""
    run = box.ctrun("--virtual-local-rank", "--nproc-per-node=2", dump.program, env=env)
    assert run.code == 1 and "local_rank 0 exceeds available GPUs in CUDA_VISIBLE_DEVICES=" in run.err


def test_torchrun_056_virtual_local_rank_with_too_few_gpus_exits_1(box, dump):
    run = box.ctrun("--virtual-local-rank", "--nproc-per-node=3", dump.program,
                    env={**dump.env, "CUDA_VISIBLE_DEVICES": "4,5"})
    assert run.code == 1 and "exceeds available GPUs in CUDA_VISIBLE_DEVICES=4,5" in run.err


def test_torchrun_147_the_error_file_path_is_absolute(box, dump):
    assert box.ctrun("--log-dir=logs", dump.program, env=dump.env).code == 0
    path = pathlib.Path(dump.environments()[0]["TORCHELASTIC_ERROR_FILE"])
    assert path.is_absolute() and path.parent.is_dir() and path.name == "error.json"


# ---- Not as torchrun: what runs directly without --no-python --------------------------------

def test_an_executable_script_with_a_shebang_runs_directly(box, dump):
    assert box.ctrun("./dump.sh", "a", env=dump.env).code == 0
    assert dump.argv() == ["./dump.sh", "a"]


def test_a_file_of_this_directory_runs_directly_by_its_plain_name(box, dump):
    assert box.ctrun("dump.sh", env=dump.env).code == 0
    assert dump.argv() == ["./dump.sh"]


def test_an_executable_python_script_still_runs_under_python(box):
    box.write("x.py", "#!/bin/false\nprint('python')\n", 0o755)
    assert box.ctrun("x.py").out == "python\n"


def test_a_script_without_suffix_that_is_not_executable_runs_under_python(box):
    box.write("train", "print('python')\n")
    assert box.ctrun("train").out == "python\n"


def test_a_program_beside_ctrun_is_found_by_its_plain_name(box):
    run = box.ctrun("--dry-run", "ctrund", env={"PATH": "/usr/bin:/bin"})
    assert run.code == 0 and "/ctrund" in run.out, run


def test_an_elf_file_that_is_not_executable_ends_with_126(box):
    path = box.path("prog")
    path.write_bytes(pathlib.Path("/bin/true").read_bytes())
    path.chmod(0o644)
    run = box.ctrun("./prog")
    assert run.code == 126, run
    assert "E_EXEC" in run.err


def test_nic_affinity_without_a_gpu_is_a_warning_and_nothing_more(box):
    env = {"CUDA_VISIBLE_DEVICES": ""}
    run = box.ctrun("--nic-affinity", "--no-python", "sh", "-c", "env | grep -c NCCL_IB_HCA",
                    env=env)
    assert run.code == 1 and run.out == "0\n", run
    assert "--nic-affinity has no effect" in run.err and "no GPU is visible" in run.err, run
    run = box.ctrun("--dry-run", "--json", "--no-python", "true", env=env)
    assert "nics" not in json.loads(run.out)["workers"][0] and "nic-affinity" not in run.err, run


def resident_bytes(pid):
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("Rss:"))


@pytest.mark.plain("sanitizers need memory of their own")
def test_launching_eight_workers_takes_less_than_6_mb(box):
    run = box.start_ctrun("--standalone", "--nproc-per-node=8", "--no-python", "sleep", "1000")
    workers = {event["worker_pid"] for event in box.wait_event("worker_started", count=8)}
    own = set(box.pids()) - workers

    def enough():  # the guards unmap their code perhaps after the workers' start
        return sum(resident_bytes(pid) for pid in own) < 6e6

    ctrun.wait_until(enough, lambda: {pid: resident_bytes(pid) for pid in own}, 10)
    run.signal(15)
    run.wait()
