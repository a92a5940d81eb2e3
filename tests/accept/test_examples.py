# SPDX-License-Identifier: Apache-2.0
"""Each example does what its first lines say, with one worker and with several."""
import os
import re
import signal
import sys

import ctrun
import elastic
import fake_ssh
import pytest

sys.path.insert(0, str(ctrun.ROOT / "tests" / "cli"))
import launch  # noqa: E402

SAYS = {
    "01_hello": "hello from rank {last} of {n} (local {last} of {n}, node 0, restart 0)",
    "02_send_recv": "sum of all ranks: {sum}",
    "03_all_reduce": "1 + ... + {n} = {sum_plus}, on every rank",
    "04_average_gradients": "y = 3.0",
    "05_ddp": "y = 3.0",
    "06_zero": "y = 3.0",
    "07_elastic": "y = 3.0",
    "08_pipeline": "f(0) = -1.0, f(0.5) = 0.5",
    "09_spawn": "{n} workers",
    "11_data_parallel": "y = 3.0 x - 1.0, by 4 replicas",
    "12_elastic_data": "epoch 2: each of 1000 samples once, sum 499500, {n} ranks\n",
}


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("name", SAYS)
def test_the_example_runs(box, name, n):
    run = box.ctrun("--standalone", f"--nproc-per-node={n}", ctrun.program(name))
    assert run.code == 0, run
    wanted = SAYS[name].format(n=n, last=n - 1, sum=n * (n - 1) // 2, sum_plus=n * (n + 1) // 2)
    assert wanted in run.out and "worker socket" not in run.err, run


def test_a_limit_of_open_files_that_is_too_low_is_told(box):
    for limit in range(10, 24):
        run = box.ctrun("--standalone", "--nproc-per-node=3", "--no-python", "sh", "-c",
                        f'ulimit -n {limit}; exec "$0"', ctrun.program("03_all_reduce"))
        if run.code == 0:
            return
        assert run.code == 1 and "raise it (ulimit -n)" in run.err and "shm = 0" not in run.err, run
    raise AssertionError("24 descriptors are too few")


def test_a_checkpoint_of_one_world_is_gone_on_with_by_others(box):
    folder = box.path("checkpoints")
    for run, n in enumerate((3, 1, 2), 1):
        said = box.ctrun("--standalone", f"--nproc-per-node={n}", ctrun.program("10_checkpoint"), folder)
        assert said.code == 0 and f"step {20 * run}: the sum is {20000 * run}" in said.out, said
    assert len(list(folder.iterdir())) == 3


def test_ranks_that_are_lost_leave_no_sample_out_and_none_twice(box):
    run = box.start_ctrun("--standalone", "--nproc-per-node=4", "--survive=sdk",
                          ctrun.program("12_elastic_data"), 10**9)
    for left in (4, 3, 2):
        ctrun.wait_until(lambda n=left: f", {n} ranks\n" in run.out or run.process.poll() is not None,
                         lambda n=left: f"{n} ranks\n{run}", 60)
        assert run.process.poll() is None, run
        if left > 2:
            os.kill(elastic.pids(box)[left - 2], signal.SIGKILL)
    assert box.run(ctrun.program("ctrunctl"), "stop").code == 0
    assert run.wait(60) == 128 + signal.SIGTERM, run
    ends = run.out.splitlines()
    assert [line.split(":")[0] for line in ends] == [f"epoch {i}" for i in range(len(ends))], run
    assert {line.split(": ")[1].rpartition(",")[0] for line in ends} == \
        {"each of 1000 samples once, sum 499500"}, run


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


@pytest.mark.parametrize("words, key", [(("10_checkpoint",), "next_step"),
                                        (("train_llm", ctrun.ROOT / "man" / "ctrun.1", 1), "step")])
def test_metadata_that_is_no_number_is_told_in_one_line(box, words, key):
    folder = box.path("checkpoints")
    start = ["--standalone", "--nproc-per-node=1", ctrun.program(words[0]), *words[1:], folder]
    assert box.ctrun(*start).code == 0
    manifest = max(folder.iterdir()) / "manifest.json"
    written = manifest.read_text()
    for text in ('"5x"', '"-5"', '""', '"9007199254740993"', '"99999999999999999999"', None):
        body = re.sub(f'"{key}":"[0-9]+"', f'"{key}":{text}' if text else '"other":"1"', written)
        body = body[:body.rindex(',"crc32c"')]
        manifest.write_text(f'{body},"crc32c":"{crc32c(body.encode()):08x}"}}\n')
        run = box.ctrun(*start)
        said = f"E_BAD_CHECKPOINT: checkpoint: {key} '{(text or '').strip(chr(34))}': a number up to 2^53 is needed\n"
        assert run.code == 1 and said in run.err, run


@pytest.mark.parametrize("words", [("abc",), ("-3",), ("",), ("9007199254740993",), ("0", "folder", "bf16")])
def test_words_that_the_language_model_does_not_know_are_refused(box, words):
    run = box.run(ctrun.program("train_llm"), ctrun.ROOT / "man" / "ctrun.1", *words)
    assert run.code == 2 and run.err.endswith(" TEXT STEPS [FOLDER [f32]]\n") and not run.out, run
    assert not box.path("folder").exists()


def test_what_the_language_model_cannot_read_is_told_without_a_launcher_too(box):
    run = box.run(ctrun.program("train_llm"), "nofile", 1)
    assert run.code == 1 and run.err == "train_llm: error[E_BAD_DATA]: nofile: No such file or directory\n", run


def test_an_example_prints_why_it_failed_without_a_launcher_too(box):
    run = box.run(ctrun.program("01_hello"), env={"RANK": "3", "WORLD_SIZE": "2"})
    assert run.code == 1 and run.err.startswith("01_hello: error[E_BAD_ENVIRONMENT]: environment: RANK=3: "), run


@pytest.mark.parametrize("words", [("-5",), ("abc",), ("5", "-1"), ("5", "1", "2")])
def test_words_that_the_elastic_example_does_not_know_are_refused(box, words):
    run = box.run(ctrun.program("07_elastic"), *words)
    assert run.code == 2 and run.err.endswith("07_elastic [STEPS [PACE]]\n") and not run.out, run


@pytest.mark.parametrize("n", [1, 3])
def test_a_program_that_is_run_plainly_starts_its_own_workers(box, n):
    run = box.run(ctrun.program("09_spawn"), n, env={"PATH": f"{ctrun.BUILD / 'bin'}:/usr/bin:/bin"})
    assert run.code == 0 and run.out.splitlines() == [f"{n} workers"], run


PRINT = '#!/bin/sh\necho "rank $RANK of $WORLD_SIZE, local $LOCAL_RANK, node $GROUP_RANK: $*"\n'
SAID = sorted(f"rank {rank} of 4, local {rank % 2}, node {rank // 2}: --lr 0.1"
              for rank in range(4))


def start_printing(box, *words, **env):
    names = {"CTRUN_SSH": fake_ssh.local(box), "SSH": fake_ssh.local(box), **env}
    return box.run(*words, env=names)


def test_a_for_loop_over_hosts_written_for_launch_py_runs(box):
    program = box.write("print.sh", PRINT, 0o755)
    path = f"PATH={ctrun.BUILD / 'bin'}:/usr/bin:/bin"
    run = start_printing(box, ctrun.ROOT / "examples/hosts/for_loop.sh", "a", "b", "--", program,
                         "--lr", "0.1", MASTER_ADDR="127.0.0.1", FAKE_SSH_ENV=path,
                         MASTER_PORT=str(launch.free_port()))
    assert run.code == 0 and fake_ssh.calls(box) in (["a", "b"], ["b", "a"]), run
    assert sorted(run.out.splitlines()) == SAID, run


def test_one_command_takes_its_place(box):
    program = box.write("print.sh", PRINT, 0o755)
    run = start_printing(box, ctrun.ROOT / "examples/hosts/hosts.sh",
                         box.write("hosts", "a\nb  # the other one\n"), program, "--lr", "0.1")
    assert run.code == 0, run
    assert sorted(line.split(": ", 1)[1] for line in run.out.splitlines()) == SAID, run
    assert {line[0] for line in run.out.splitlines()} == {"a", "b"}, run
