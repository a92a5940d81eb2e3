# SPDX-License-Identifier: Apache-2.0
"""The command line: what torchrun's argparse takes and refuses, ctrun takes and refuses."""
import os
import re
import shutil
import subprocess

import ctrun
import launch
import pytest

OPTIONS = """nnodes nproc-per-node rdzv-backend rdzv-endpoint rdzv-id rdzv-conf standalone
max-restarts monitor-interval start-method event-log-handler role module no-python run-path log-dir
redirects tee log-line-prefix-template local-ranks-filter duplicate-stdout-filters
duplicate-stderr-filters node-rank master-addr master-port local-addr logs-specs numa-binding
signals-to-handle shutdown-timeout virtual-local-rank print-completion""".split()
FLAGS = "standalone module no-python run-path virtual-local-rank".split()


@pytest.fixture
def script(box):
    return box.write("x.py", "")


@pytest.mark.parametrize("words", [["--nproc-per-node=2"], ["--nproc_per_node", "2"],
                                   ["--nproc-per", "2"], ["--nproc_per=2"]])
def test_torchrun_001_both_spellings_give_the_same(box, script, words):
    assert launch.plan(box, *words, script)["nproc_per_node"] == 2


@pytest.mark.parametrize("name", OPTIONS)
def test_torchrun_002_every_option_is_known_in_both_spellings(box, name):
    for spelling in (name, name.replace("-", "_")):
        run = box.ctrun(f"--{spelling}=" if name not in FLAGS else f"--{spelling}", "--help")
        assert "unrecognized" not in run.err and "ambiguous" not in run.err, run


@pytest.mark.parametrize("words", [["-r3"], ["-r", "3"], ["-r=3"], ["--redirects=3"],
                                   ["--redirect=3"]])
def test_torchrun_003_redirects_has_five_forms(box, words):
    run = box.ctrun(*words, "--log-dir", "D", "sh", "-c", "echo out; echo err >&2")
    assert run.code == 0 and run.out == "", run
    assert [p.read_text() for p in sorted(box.path("D").glob("*/attempt_0/0/*.log"))] == [
        "err\n", "out\n"]


def test_torchrun_004_a_cluster_sets_module_mode_and_tee(box):
    assert launch.plan(box, "-mt3", "pkg.mod")["workers"][0]["argv"][1:] == ["-u", "-m", "pkg.mod"]


def test_torchrun_005_an_ambiguous_prefix_exits_2(box, script):
    run = box.ctrun("--nproc", "2", script)
    assert run.code == 2 and "ambiguous option" in run.err


def test_torchrun_006_an_unknown_option_exits_2_with_usage_and_a_hint(box, script):
    run = box.ctrun("--nproc-pre-node=2", script)
    assert run.code == 2
    assert run.err.startswith("ctrun: error[E_USAGE]: unrecognized arguments: --nproc-pre-node=2")
    assert "--nproc-per-node?" in run.err and "usage:" in run.err
    assert run.out == ""


def test_torchrun_007_no_script_exits_2(box):
    run = box.ctrun("--standalone")
    assert run.code == 2
    assert "the following arguments are required: training_script" in run.err


def test_torchrun_008_what_follows_the_script_is_its_own(box, script):
    words = ["-h", "--", "--nnodes", "4", "--standalone"]
    for first in ([script], [script, "--"], ["--", script]):  # as in argparse, a first -- is dropped
        plan = launch.plan(box, *first, *words)
        assert plan["workers"][0]["argv"][3:] == words
        assert plan["nodes"] == {"min": 1, "max": 1}


def test_torchrun_009_a_leading_double_dash_is_dropped(box, script):
    assert launch.plan(box, "--", script, "--foo")["workers"][0]["argv"][2:] == [script, "--foo"]


def test_torchrun_010_help_names_every_option_and_its_environment(box):
    run = box.ctrun("--help", "--bogus")
    assert run.code == 0 and run.err == ""
    for name in OPTIONS:
        assert f"--{name}" in run.out
        if name not in ("logs-specs", "numa-binding", "print-completion"):
            assert "PET_" + name.upper().replace("-", "_") in run.out


def test_torchrun_011_a_flag_takes_no_value(box, script):
    run = box.ctrun("--standalone=1", script)
    assert run.code == 2 and "ignored explicit argument '1'" in run.err


def test_torchrun_012_the_last_value_wins(box, script):
    assert launch.plan(box, "--nproc-per-node=2", "--nproc-per-node=3", script)[
        "nproc_per_node"] == 3


def test_torchrun_013_the_environment_alone_is_enough(box):
    plan = launch.plan(box, "sh", "-c", "true", env={
        "PET_NNODES": "2", "PET_NPROC_PER_NODE": "3", "PET_RDZV_ID": "J",
        "PET_MAX_RESTARTS": "4", "PET_NO_PYTHON": "1"})
    assert plan["nodes"] == {"min": 2, "max": 2}
    assert (plan["nproc_per_node"], plan["run_id"], plan["max_restarts"]) == (3, "J", 4)
    assert plan["workers"][0]["argv"] == ["sh", "-c", "true"]


def test_torchrun_014_the_command_line_beats_the_environment(box, script):
    assert launch.plan(box, "--nproc-per-node=2", script, env={"PET_NPROC_PER_NODE": "3"})[
        "nproc_per_node"] == 2


def test_torchrun_015_flags_in_the_environment_are_numbers(box, script):
    assert launch.plan(box, script, env={"PET_NO_PYTHON": "0"})["workers"][0]["argv"][1] == "-u"
    run = box.ctrun(script, env={"PET_MODULE": "1", "PET_NO_PYTHON": "1"})
    assert run.code == 1
    assert box.ctrun(script, env={"PET_STANDALONE": "true"}).code == 1


def test_torchrun_016_no_python_and_module_exclude_each_other(box):
    run = box.ctrun("--no-python", "--module", "sh")
    assert run.code == 1 and "Don't use both the '--no-python' flag" in run.err
    assert not box.events("worker_started")


def test_torchruns_own_log_layout_and_store_may_be_named(box, script):
    run = box.ctrun("--logs-specs=default", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0",
                    "--rdzv-conf=store_type=TCP", "--no-python", "true")
    assert run.code == 0 and run.err == "", run


# Item of the checklist, words, exit code, and text of the error.
BAD_VALUES = [
    (17, ["--nnodes=1:2:3"], 1, 'nnodes=1:2:3 is not in "MIN:MAX" format'),
    (18, ["--nnodes=0"], 1, "min_nodes must be > 0"),
    (18, ["--nnodes=3:2"], 1, "min_nodes must be > 0 and <= max_nodes"),
    (18, ["--nproc-per-node=0"], 1, "--nproc-per-node=0"),
    (18, ["--max-restarts=-1"], 1, "max_restarts must be >= 0"),
    (18, ["--max-restarts=2147483648"], 1, "and at most 2147483647"),
    (18, ["--max-restarts=x"], 2, "invalid int value: 'x'"),
    (19, ["--nproc-per-node=unknown"], 1, "Unsupported nproc_per_node value"),
    (23, ["--local-ranks-filter=a"], 1, "--local_ranks_filter must be a comma-separated list"),
    (24, ["--log-dir=/etc/passwd"], 1, "log_dir: /etc/passwd is a file"),
    (26, ["--rdzv-backend=c10d", "--rdzv-conf=join_timeout=abc"], 1, "'join_timeout'"),
    (27, ["--rdzv-backend=nosuch"], 1, "'nosuch' is not registered"),
    (63, ["--rdzv-backend=c10d", "--rdzv-endpoint=h:70000"], 1, "h:70000"),
    (130, ["--logs-specs=x"], 2, "--logs-specs=x"),
    (130, ["--start-method=foo"], 2, "invalid choice: 'foo'"),
    (130, ["--rdzv-backend=etcd-v2"], 2, "--rdzv-id"),
    (136, ["--rdzv-backend=c10d", "--rdzv-conf=cas_backoff_max_seconds=abc"], 1,
     "cas_backoff_max_seconds"),
    (136, ["--rdzv-backend=c10d", "--rdzv-conf=cas_backoff_max_seconds=-1"], 1,
     "cas_backoff_max_seconds"),
    (136, ["--rdzv-backend=c10d", "--rdzv-conf=cas_backoff_max_seconds=inf"], 1,
     "cas_backoff_max_seconds"),
]


@pytest.mark.parametrize("words, code, text", [row[1:] for row in BAD_VALUES],
                         ids=[f"torchrun_{row[0]:03}" for row in BAD_VALUES])
def test_bad_values_are_refused_in_one_line(box, script, words, code, text):
    run = box.ctrun(*words, script)
    assert run.code == code and text in run.err, run
    assert run.err.startswith("ctrun: error[E_USAGE]: ")
    assert "worker_started" not in [event["event"] for event in box.events()]


@pytest.mark.skipif(os.path.exists("/dev/nvidia0"), reason="this machine has a GPU")
def test_torchrun_020_gpu_without_a_gpu_exits_1(box, script):
    run = box.ctrun("--nproc-per-node=gpu", script)
    assert run.code == 1 and "Cuda is not available." in run.err


def test_torchrun_021_a_list_of_gpus_decides(box, script):
    assert launch.plan(box, "--nproc-per-node=gpu", script,
                       env={"CUDA_VISIBLE_DEVICES": "0,2,5"})["nproc_per_node"] == 3


def test_torchrun_022_138_cpu_and_auto_count_the_affinity_mask(box, script):
    for word in ("cpu", "auto"):
        run = box.run("taskset", "-c", str(min(os.sched_getaffinity(0))), ctrun.program("ctrun"),
                      "--dry-run", f"--nproc-per-node={word}", script,
                      env={"CUDA_VISIBLE_DEVICES": ""})
        assert run.code == 0 and "workers    : 1 on this node" in run.out, run


def test_torchrun_025_unknown_rdzv_keys_and_stray_quotes_are_taken(box, script):
    launch.plan(box, "--rdzv-backend=c10d", "--rdzv-conf='join_timeout=5,foo=bar,timeout=5'", script)


def test_torchrun_133_completion_scripts_are_good_for_their_shells(box):
    for shell in ("bash", "zsh", "tcsh"):
        for spelling in ("--print-completion", "--print_completion"):
            run = box.ctrun(spelling, shell, "--bogus")
            assert run.code == 0 and "--rdzv-backend" in run.out.replace("rdzv-b", "--rdzv-b", 1)
        if shutil.which(shell):
            assert box.run(shell, "-n", box.write("script", run.out)).code == 0


def test_torchrun_134_completion_for_an_unknown_shell_exits_2(box):
    run = box.ctrun("--print-completion", "nosuch")
    assert run.code == 2 and "invalid choice" in run.err


@pytest.mark.parametrize("words, expected", [
    (["ctrun", "--rdzv-b"], {"--rdzv-backend"}),
    (["ctrun", "--start-method", ""], {"spawn", "fork", "forkserver"}),
    (["ctrun", "--exit-code", "t"], {"torchrun"})])
def test_torchrun_135_bash_completes_options_and_words(box, words, expected):
    script = box.write("completion", box.ctrun("--print-completion", "bash").out)
    line = " ".join(f"'{word}'" for word in words)
    run = box.run("bash", "-c", f"source {script}; COMP_WORDS=({line}); "
                  f"COMP_CWORD={len(words) - 1}; _ctrun; printf '%s\\n' \"${{COMPREPLY[@]}}\"")
    assert set(run.out.split()) == expected, run


def test_a_dry_run_prints_a_command_that_a_shell_takes(box):
    words = ["a b", "two\n'lines'\\n", "it's", "$HOME", "*", "a;b", "\t\x1b1", "\\", "", "é"]
    plan = box.ctrun("--dry-run", "--no-python", "printf", "%s|", *words)
    command = plan.out.split("worker 0\n")[1].splitlines()[0]
    assert "\\u" not in command and box.run("bash", "-c", command).out == "|".join(words) + "|", plan


def test_a_dry_run_prints_an_environment_that_a_shell_takes(box):
    run_id = "a b;'c'\\$HOME"
    plan = box.ctrun("--rdzv-backend=c10d", f"--rdzv-id={run_id}", "--dry-run", "true")
    lines = "".join(line + "\n" for line in plan.out.splitlines() if re.match(r"    \w+=", line))
    shown = box.run("bash", "-c", f'{lines}printf "%s|" "$TORCHELASTIC_RUN_ID" "$LOCAL_RANK" "$MASTER_PORT"')
    assert shown.out == f"{run_id}|0|?|", plan


def test_torchrun_137_node_rank_with_c10d_is_warned_about(box, script):
    run = box.ctrun("--dry-run", "--rdzv-backend=c10d", "--node-rank=1", script)
    assert run.code == 0 and "--node-rank" in run.err


@pytest.mark.skipif(os.path.exists("/dev/nvidia0"), reason="this machine has a GPU")
def test_torchrun_152_numa_binding_without_an_accelerator_exits_1(box, script):
    run = box.ctrun("--numa-binding=node", script)
    assert run.code == 1 and "No accelerator available for NUMA binding" in run.err
    assert run.err.startswith("ctrun: error[E_RESOURCES]: ")


@pytest.mark.parametrize("words, host", [([], "localhost"), (["--rdzv-endpoint=gpu9"], "gpu9")])
def test_torchrun_062_an_endpoint_has_a_default_port_and_host(box, script, words, host):
    plan = launch.plan(box, "--nnodes=2", "--rdzv-backend=c10d", *words, script)
    assert plan["endpoint"] == {"host": host, "port": 29400}


def test_an_empty_run_id_is_the_default_one(box, script):
    """--rdzv-id=$SLURM_JOB_ID, outside of a job."""
    plan = launch.plan(box, "--nnodes=2", "--rdzv-endpoint=h", "--rdzv-id=", script)
    assert plan["run_id"] == "none"


@pytest.mark.parametrize("text, host, port", [
    ("h", "h", 29400), ("h:1", "h", 1), ("[::1]", "::1", 29400), ("[::1]:1", "::1", 1)])
def test_torchrun_063_the_forms_of_an_endpoint(box, script, text, host, port):
    plan = launch.plan(box, "--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint={text}", script)
    assert plan["endpoint"] == {"host": host, "port": port}


def test_torchrun_136_a_back_off_in_parts_of_a_second_is_taken(box, script):
    launch.plan(box, "--rdzv-backend=c10d", "--rdzv-conf=cas_backoff_max_seconds=0.5", script)


def test_torchrun_123_a_health_check_port_that_is_none_stops_nothing(box, script):
    run = box.ctrun("--no-python", "true", env={"TORCHELASTIC_HEALTH_CHECK_PORT": "x"})
    assert run.code == 0 and "TORCHELASTIC_HEALTH_CHECK_PORT=x is ignored" in run.err, run


def test_torchrun_129_an_interval_of_polling_delays_nothing(box, script):
    run = box.ctrun("--monitor-interval=3600", "--no-python", "sh", "-c", "exit 3", seconds=30)
    assert run.code == 3, run


def test_an_interface_that_is_not_there_is_refused_for_one_node_too(box):
    run = box.ctrun("--net=nosuch0", "true")
    assert run.code == 2 and "--net=nosuch0: " in run.err and "has no such interface or address" in run.err, run


def test_version_is_one_line(box):
    run = box.ctrun("--version")
    assert run.code == 0 and re.fullmatch(r"ctrun \d+\.\d+\.\d+\n", run.out)


def test_help_manual_and_parser_name_the_same_options(box):
    """--help is made from the parser's table; the manual is written by hand."""
    page = (ctrun.ROOT / "man" / "ctrun.1").read_text()
    rendered = subprocess.run(["mandoc", "-T", "utf8", "-O", "width=200",
                               str(ctrun.ROOT / "man" / "ctrun.1")],
                              capture_output=True, text=True, check=True).stdout
    rendered = re.sub(r".\x08", "", rendered)
    in_help = set(re.findall(r"^ +(?:-\w, )?--([a-z-]+)", box.ctrun("--help").out, re.M))
    in_page = set(re.findall(r"^\.It (?:Fl \w , )?Fl Fl ([a-z-]+)", page, re.M))
    assert in_help == in_page
    for variable in re.findall(r"\[((?:PET|CTRUN)_\w+)", box.ctrun("--help").out):
        assert variable in rendered, variable


def test_the_manual_is_clean(box):
    for page in ("ctrun.1", "ctrun-torchrun.7"):
        run = box.run("mandoc", "-T", "lint", "-W", "warning", str(ctrun.ROOT / "man" / page))
        assert run.code == 0, run.out


def test_a_key_of_rdzv_conf_that_nobody_has_is_told_with_the_nearest(box, script):
    run = box.ctrun("--rdzv-conf=join_timeuot=5", "--dry-run", script)
    assert run.code == 0 and "no backend has a key 'join_timeuot'; did you mean join_timeout?" in run.err
    assert "no backend" not in box.ctrun("--rdzv-conf=timeout=5,is_host=1,close_timeout=3", "--dry-run",
                                         script).err
    run = box.ctrun("--rdzv-conf=min_nodes=2", "--dry-run", script)
    assert run.code == 1 and "min_nodes" in run.err, run


def test_a_shell_script_that_is_not_executable_is_not_given_to_python(box):
    path = box.write("x.sh", "#!/bin/sh\necho $1\n")
    run = box.ctrun(path, "a")
    assert run.code == 126 and run.err.startswith("ctrun: error[E_EXEC]: ") and len(run.err.splitlines()) == 1, run
    assert f"chmod +x it, or write --no-python /bin/sh {path}" in run.err
    run = box.ctrun("--no-python", "/bin/sh", path, "a")
    assert run.code == 0 and "a" in run.out, run
    for first in ("#!/usr/bin/env python3", "# no interpreter named"):
        assert box.ctrun(box.write("train", first + "\nprint('b')\n")).code == 0


def test_a_program_in_a_folder_that_may_not_be_entered_ends_with_126(box):
    box.path("closed").mkdir(mode=0)
    without = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    if subprocess.run([*without, "true"], check=False).returncode:
        pytest.skip("setpriv may not take capabilities here")
    run = box.run(*without, ctrun.program("ctrun"), "--standalone", "--no-python", str(box.path("closed") / "program"))
    assert run.code == 126 and "closed/program: Permission denied" in run.err and len(run.err.splitlines()) == 1, run


@pytest.mark.parametrize("option", ["rdzv-endpoint", "master-addr", "local-addr"])
def test_a_bare_number_is_no_address(box, script, option):
    run = box.ctrun("--nnodes=2", f"--{option}=29888", "--dry-run", script)
    assert run.code in (1, 2) and "write HOST:PORT" in run.err, run


def test_a_misspelt_name_of_the_environment_is_told_with_the_right_one(box):
    run = box.ctrun("true", env={"CTRUN_HANG_TIMOUT": "5", "CTRUN_ROOT": "/opt/ctrun", "CTRUN_TOKEN_FILE": "f"})
    assert run.code == 0 and sorted(run.err.splitlines()) == [
        f"ctrun: warning: {typed} is set, and nothing reads it; did you mean {ours}?"
        for typed, ours in (("CTRUN_HANG_TIMOUT", "CTRUN_HANG_TIMEOUT"), ("CTRUN_TOKEN_FILE", "CTRUN_RDZV_TOKEN_FILE"))], run
