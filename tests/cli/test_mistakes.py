# SPDX-License-Identifier: Apache-2.0
"""Mistakes in the command line, and machines that lack something: one clear line and an exit code
before anything starts, and no process is left."""
import contextlib
import os
import resource
import signal
import socket

import ctrun
import launch
import pytest

SCRIPT = "import os\nprint('rank', os.environ['RANK'])\n"


def one_line(run, code, name, *words):
    """Checks that the only line, except the usage, begins with that error."""
    lines = [line for line in run.err.splitlines() if not line.startswith("ctrun: usage")]
    assert run.code == code and len(lines) == 1 and not run.out, run
    assert lines[0].startswith(f"ctrun: error[{name}]: "), run
    for word in words:
        assert word in lines[0], run


@pytest.mark.parametrize("option", ["--nproc-per-node", "--nnodes", "--hosts", "--hosts-file"])
def test_an_option_with_an_empty_value_is_refused(box, option):
    one_line(box.ctrun(f"{option}=", "true"), 1, "E_USAGE", f"{option}=", "empty")


def test_an_empty_name_of_the_program_is_told(box):
    one_line(box.ctrun(""), 127, "E_EXEC", "the name of the program is empty")


def test_blanks_around_the_sign_of_a_value_are_told(box):
    one_line(box.ctrun("--nproc-per-node", "=", "2", "true"), 1, "E_USAGE", "--nproc-per-node = ...: no blanks")


@pytest.mark.parametrize("name", ["-", "/dev/stdin"])
def test_a_script_may_come_by_standard_input(box, name):
    run = box.run("sh", "-c", f"echo 'print(3 + 4)' | {ctrun.program('ctrun')} {name}")
    assert run.code == 0 and run.out == "7\n", run


def test_a_server_of_another_kind_at_the_endpoint_is_told_as_such(box):
    with socket.create_server(("127.0.0.1", 0)) as other:
        run = box.start_ctrun("--nnodes=2", f"--rdzv-endpoint=127.0.0.1:{other.getsockname()[1]}",
                              "--rdzv-conf=is_host=0,read_timeout=10", "true")
        other.settimeout(0.1)
        taken = []
        while run.code is None:
            with contextlib.suppress(TimeoutError):
                taken.append(other.accept()[0])
                taken[-1].sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
        for connection in taken:
            connection.close()
    assert run.wait() == 75 and "does not use the protocol of ctrun" in run.err, run


@pytest.mark.parametrize("endpoint", [["--standalone"], ["--nnodes=1:2", "--rdzv-endpoint=127.0.0.1:{free}"]])
def test_a_range_of_ports_that_are_taken_is_named(box, endpoint):
    words = [word.format(free=ctrun.free_port()) for word in endpoint]
    with socket.create_server(("0.0.0.0", 0)) as other:
        port = other.getsockname()[1]
        run = box.ctrun(*words, f"--port-range={port}-{port}", "--no-python", "true")
    one_line(run, 77, "E_PORT_BUSY", f"ports {port}-{port}: all of them are taken; give a wider --port-range")


def test_an_empty_variable_is_refused_like_its_option(box):
    one_line(box.ctrun("true", env={"PET_NPROC_PER_NODE": ""}), 1, "E_USAGE", "--nproc-per-node=")


@pytest.mark.parametrize("word, hint", [("\u2014nproc-per-node=2", "long dash"), ("\u2013m", "long dash"),
                                        ("LR=1", "NAME=VALUE ctrun"), ("~/train.py", "between quotes"),
                                        ("$HOME/train.py", "between quotes"), ("True", "a flag takes no value"),
                                        ("run", "has no verbs"),
                                        ("train.py --lr 1", "leave out the quotes")])
def test_a_word_that_is_no_program_is_told_what_it_may_be(box, word, hint):
    box.write("train.py", SCRIPT)
    one_line(box.ctrun(word, "train.py"), 127, "E_EXEC", word, hint)


def test_a_folder_is_a_program_when_it_has_a_main(box):
    box.path("job").mkdir()
    one_line(box.ctrun("job"), 126, "E_EXEC", "job: is a folder without __main__.py")
    box.write("job/__main__.py", SCRIPT)
    run = box.ctrun("job")
    assert run.code == 0 and run.out == "rank 0\n", run


def test_a_file_in_this_directory_is_no_program_of_path(box):
    box.write("mine", "#!/bin/sh\n", 0o755)
    one_line(box.ctrun("--no-python", "mine"), 127, "E_EXEC", "mine: no program of that name in PATH; to run the file in "
             f"{box.dir}, write ./mine")


def test_a_missing_script_of_run_path_is_told_before_the_start(box):
    """It is not looked for in PATH, where there is a program of that name."""
    run = box.ctrun("--run-path", "true")
    one_line(run, 127, "E_EXEC", f"true: no such file (in {box.dir})")
    assert "PATH" not in run.err, run


@pytest.mark.parametrize("python, code, why", [("/nonexistent/python", 127, "No such file"),
                                               ("/tmp", 126, "cannot be executed"), ("nosuchpython", 127, "PATH")])
def test_a_python_that_is_not_there_is_told_by_the_variable_that_names_it(box, python, code, why):
    box.write("train.py", SCRIPT)
    one_line(box.ctrun("train.py", env={"PYTHON_EXEC": python}), code, "E_EXEC", f"PYTHON_EXEC={python}", why)


def test_a_working_folder_that_was_removed_is_told(box):
    box.path("gone").mkdir()
    run = box.run("sh", "-c", f"cd gone; rmdir ../gone; exec {ctrun.program('ctrun')} nosuch.py")
    assert run.code == 127 and "was removed: cd to it again" in run.err, run


def test_options_behind_the_program_are_told_unless_they_were_given_before_it(box):
    box.write("train.py", SCRIPT)
    run = box.ctrun("train.py", "--nproc_per_node", "2")
    assert run.code == 0 and "warning: --nproc_per_node comes after train.py" in run.err, run
    run = box.ctrun("--nproc-per-node=1", "train.py", "--nproc-per-node=2", "--lr=1")
    assert run.code == 0 and not run.err, run


def test_a_shell_script_that_python_is_to_run_gets_a_hint(box):
    box.write("run.sh", "echo ran\n")
    run = box.ctrun("run.sh")
    assert "run.sh is run by Python: for a shell script" in run.err and "--no-python sh run.sh" in run.err, run
    run = box.ctrun("--no-python", "sh", "run.sh")
    assert run.code == 0 and run.out == "ran\n" and not run.err, run


@pytest.mark.parametrize("words", [["torchrun"], ["./accelerate", "launch"], ["-m", "torch.distributed.run"],
                                   ["python3", "-m", "torch.distributed.launch"]])
def test_another_launcher_below_ctrun_is_told(box, words):
    for name in ("torchrun", "accelerate", "python3"):
        box.write(name, "#!/bin/sh\n", 0o755)
    run = box.ctrun(*words, "train.py", env={"PATH": f"{box.dir}:/usr/bin:/bin", "PYTHON_EXEC": str(box.path("python3"))})
    launcher = " ".join(words[words.index("-m") + 1:] if "-m" in words else words).removeprefix("./")
    assert run.code == 0 and f"warning: {launcher} would start ranks of its own" in run.err, run
    assert run.err.count("\n") == 1, run


def test_a_program_with_the_name_of_a_launcher_in_its_arguments_is_not_told(box):
    run = box.ctrun("--no-python", "echo", "torchrun", "launch")
    assert run.code == 0 and not run.err, run


def test_an_address_of_ipv6_with_a_port_and_no_brackets_is_refused(box):
    one_line(box.ctrun("--nnodes=2", "--rdzv-endpoint=::1:29500", "true"), 1, "E_USAGE", "[v6]:port")


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]"])
def test_an_endpoint_that_means_all_addresses_is_told(box, host):
    run = box.ctrun("--nnodes=2", f"--rdzv-endpoint={host}:{launch.free_port()}", "--rdzv-conf=read_timeout=1", "true")
    assert run.code == 75 and f"likely     : {host.strip('[]')} is where a server listens" in run.err, run


@pytest.mark.parametrize("name", ["job\r", "a\n\tb", "\udcff"])
def test_a_run_id_may_have_characters_that_cannot_be_printed(box, name):
    run = box.ctrun("--nnodes=1", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", f"--rdzv-id={name}", "true")
    assert run.code == 0 and not run.err, run


def test_a_pipe_that_nobody_writes_is_told(box):
    os.mkfifo(box.path("pipe"), 0o600)
    runs = [box.start_ctrun(f"--{name}=pipe", "true") for name in ("rdzv-token-file", "hosts-file")]
    runs.append(box.start(ctrun.program("ctrund"), "--token-file=pipe"))
    for run in runs:
        assert run.wait(30) == 2 and "pipe: a pipe, and nobody has written " in run.err, run


@pytest.mark.parametrize("words", [["--rdzv-endpoint=:29500"], ["--rdzv-endpoint=:29500", "--node-rank=1"],
                                   ["--master-addr=", "--node-rank=1"],
                                   *[[f"--rdzv-endpoint={members}", f"--rdzv-backend={etcd}", "--rdzv-id=job"]
                                     for members in (":2379", "http://:2379") for etcd in ("etcd", "etcd-v2")]])
def test_an_endpoint_without_a_host_is_refused(box, words):
    one_line(box.ctrun("--nnodes=2", *words, "true"), 1, "E_USAGE", words[0], "no host", "empty")


def test_a_name_that_nobody_knows_is_answered_with_what_helps_against_it(box):
    run = box.ctrun("--nnodes=2", "--rdzv-endpoint=nohost.invalid:29500", "--rdzv-conf=read_timeout=1", "true")
    assert run.code == 75 and "cannot resolve the host name 'nohost.invalid'" in run.err, run
    assert "/etc/hosts" in run.err and "start ctrun" not in run.err, run


def test_a_local_address_that_nobody_knows_is_warned_of(box):
    run = box.ctrun("--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{launch.free_port()}",
                    "--local-addr=nohost.invalid", "true")
    assert run.code == 0 and "warning[E_DNS]: --local-addr=nohost.invalid" in run.err, run


def test_loopback_for_several_nodes_is_warned_of_once(box):
    run = box.start_ctrun("--nnodes=2", f"--rdzv-endpoint=localhost:{launch.free_port()}", "true")
    ctrun.wait_until(lambda: run.err.count("\nctrun: waiting ") == 2, run, 60)
    assert run.err.count("warning[E_LOOPBACK]") == 1, run
    run.signal(signal.SIGTERM)
    assert run.wait() == 143


def limited(kind, value, *command):
    """The command, started by a Python that has the limit."""
    return [ctrun.DEBIAN_PYTHON, "-c", f"import os, resource, sys; resource.setrlimit({kind}, ({value}, {value})); "
            "os.execv(sys.argv[1], sys.argv[1:])", *(str(word) for word in command)]


@pytest.mark.parametrize("files", [8, 16, 32])
def test_too_few_open_files_are_told(box, files):
    run = box.run(*limited(resource.RLIMIT_NOFILE, files, ctrun.program("ctrun"), "--no-python", "true"))
    one_line(run, 1, "E_RESOURCES", f"{files} open files", "ulimit -Hn")


def test_a_stack_that_is_too_small_is_told(box):
    run = box.run(*limited(resource.RLIMIT_STACK, 128 << 10, ctrun.program("ctrun"), "--no-python", "true"))
    one_line(run, 1, "E_RESOURCES", "a stack of 128 KiB", "ulimit -s", "needs 256 KiB")


@pytest.mark.parametrize("verb", ["doctor", "status"])
def test_a_stack_that_is_too_small_for_ctrunctl_is_told(box, verb):
    run = box.run(*limited(resource.RLIMIT_STACK, 64 << 10, ctrun.program("ctrunctl"), verb))
    assert (run.code, run.out, run.err) == (1, "", (
        "ctrunctl: error[E_RESOURCES]: this process may have a stack of 64 KiB at most (ulimit -s); ctrunctl needs "
        "256 KiB\n")), run


@pytest.mark.plain("under a sanitizer functions need more of it")
def test_the_smallest_stack_that_is_not_refused_suffices_for_doctor(box):
    """What it finds does not matter."""
    run = box.run(*limited(resource.RLIMIT_STACK, 256 << 10, ctrun.program("ctrunctl"), "doctor"))
    assert run.code in (0, 1) and "libcurl" in run.out, run


@pytest.mark.plain("under a sanitizer functions need more of it")
def test_the_smallest_stack_that_is_not_refused_suffices_for_a_report(box):
    run = box.run(*limited(resource.RLIMIT_STACK, 256 << 10, ctrun.program("ctrun"), "--nproc-per-node=2", "--no-python",
                           "sh", "-c", "echo last words >&2; exit 3"))
    assert run.code == 3 and "exited with 3" in run.err and "last words" in run.err, run


def test_a_worker_that_finds_no_open_file_is_told_with_the_remedy(box):
    run = box.run(*limited(resource.RLIMIT_NOFILE, 48, ctrun.program("ctrun"), "--nproc-per-node=30", "--no-python",
                           "true"))
    assert run.code == 1 and "error[E_RESOURCES]: rank" in run.err and "do         : raise the limit of open" in run.err, run


@pytest.mark.skipif(os.geteuid() != 0, reason="only root acts as another user; root has no such limit")
@pytest.mark.plain("a sanitizer needs a process of its own to look for leaks")
@pytest.mark.parametrize("processes", [1, 2, 3])
def test_too_few_processes_are_told(box, processes):
    """A run needs four: guard, second guard, agent, and the agent's thread of the rendezvous
    server."""
    as_user = ["setpriv", "--reuid=54321", "--regid=54321", "--clear-groups"]
    if box.run(*as_user, "test", "-x", ctrun.program("ctrun"), cwd="/").code:
        pytest.skip("the build is in a folder that is closed to other users")
    run = box.run(*as_user, "prlimit", f"--nproc={processes}", ctrun.program("ctrun"), "--no-python", "true", cwd="/",
                  env={"CTRUN_EVENTS": "", "CTRUN_CONTROL_DIR": "", "TMPDIR": "/tmp"})
    one_line(run, 1, "E_RESOURCES", f"fork: Resource temporarily unavailable: this user may have {processes} processes and threads (ulimit -u)"
             if processes < 3 else "start a thread: Resource temporarily unavailable; see ulimit -u and -v, ")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root acts as another user; root has no such limit")
@pytest.mark.plain("a sanitizer needs a process of its own to look for leaks")
def test_the_limit_that_leaves_no_process_for_a_worker_is_named(box):
    user = 20000 + os.getpid() % 30000  # whose processes are those of this test only
    as_user = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
    if box.run(*as_user, "test", "-x", ctrun.program("ctrun"), cwd="/").code:
        pytest.skip("the build is in a folder that is closed to other users")
    run = box.run(*as_user, "prlimit", "--nproc=12", ctrun.program("ctrun"), "--nproc-per-node=30", "--no-python", "sleep", "600",
                  cwd="/", env={"CTRUN_EVENTS": "", "CTRUN_CONTROL_DIR": "", "TMPDIR": "/tmp"})
    assert run.code == 1 and "could not be started: sleep: fork: Resource temporarily unavailable" in run.err, run
    assert ": this user may have 12 processes and threads (ulimit -u)\n" in run.err, run
    assert "  do         : raise the limit of processes (named above) on " in run.err, run


def test_loopback_that_is_down_is_told(box):
    """With one node, and with several nodes at a loopback endpoint, which would wait for ever."""
    if box.run("unshare", "--net", "true").code:
        pytest.skip("no network namespace can be made here")
    for words in ([], ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:29500"]):
        run = box.run("unshare", "--net", ctrun.program("ctrun"), *words, "--no-python", "true")
        one_line(run, 1, "E_RESOURCES", "127.0.0.1", "ip link set lo up")


def test_a_grace_of_centuries_is_refused_for_what_it_is(box):
    one_line(box.ctrun("--shutdown-timeout=99999999999", "true"), 1, "E_USAGE", "at most")


def test_files_that_may_not_grow_cost_the_log_and_not_the_run(box):
    """SIGXFSZ would end the agent, so the agent ignores it. Workers do not."""
    box.write("w.sh", "#!/bin/sh\nhead -c 200000 /dev/zero | tr '\\0' '\\n'\ngrep SigIgn /proc/self/status >&2\nexit 3\n",
              0o755)
    run = box.run(*limited(resource.RLIMIT_FSIZE, 65536, ctrun.program("ctrun"), "--log-dir=L", "-r1", "./w.sh"))
    assert run.code == 3 and "exited with 3" in run.err and "File too large" in run.err, run
    ignored = int(run.err.split("SigIgn:")[1].split()[0], 16)
    assert not ignored & 1 << (signal.SIGXFSZ - 1), run


def test_a_log_directory_that_cannot_be_made_has_the_code_of_the_reason(box):
    box.write("train.py", SCRIPT)
    run = box.ctrun("--log-dir=/proc/nosuch", "-r3", "train.py")
    assert run.code == 1 and "error[E_NOT_FOUND]: rank 0" in run.err and "--log-dir" in run.err, run
