# SPDX-License-Identifier: Apache-2.0
"""--hosts over a stand-in ssh that stays on this machine: one command, many nodes."""
import json
import os
import re
import signal

import ctrun
import fake_ssh
import pytest
import schema
from clock import Clock

SHOW = 'echo "$FAKE_HOST $RANK/$WORLD_SIZE $GROUP_RANK $PWD"'


def start(box, *words, env=None, **how):
    names = {"CTRUN_HOSTS_ENV": "TMPDIR,EXTRA*", "CTRUN_SSH": fake_ssh.local(box), **(env or {})}
    return box.start_ctrun(*words, env=names, **how)


def run(box, *words, **how):
    started = start(box, *words, **how)
    started.wait()
    return started


def shell(script):
    return ["--no-python", "sh", "-c", script]


def host_lines(text, host):
    return [line for line in text.splitlines() if line.startswith(f"{host}: ")]


def test_all_hosts_of_the_list_make_one_world_in_its_order(box):
    done = run(box, "--hosts", "b,a,n[1-2]", "--nproc-per-node=2", *shell(SHOW))
    assert done.code == 0, done
    assert sorted(done.out.splitlines()) == sorted(
        f"{host}: {host} {2 * node + local}/8 {node} {box.dir}"
        for node, host in enumerate(["b", "a", "n1", "n2"]) for local in (0, 1)), done


def test_long_lines_of_hosts_that_write_at_once_are_whole(box):
    box.write("long.py", "import os\nfor i in range(5): print(os.environ['RANK'] * 500000)\nprint('end', end='')\n")
    done = run(box, "--hosts=a,b", "-t1", "long.py")
    assert done.code == 0, done
    assert sorted(done.out.splitlines()) == [f"{host}: [default0]:{text}" for host, rank in ("a0", "b1")
                                             for text in [rank * 500000] * 5 + ["end"]]


def test_prefixes_of_hosts_have_a_colour_where_that_is_asked_for(box):
    words = ["--hosts=a,b", "--tee=3", *shell("echo hi")]
    done = run(box, "--color=always", *words)
    assert sorted(done.out.splitlines()) == [f"{host}: \033[36m[default0]:\033[0mhi"
                                             for host in "ab"], done
    done = run(box, *words)
    assert sorted(done.out.splitlines()) == [f"{host}: [default0]:hi" for host in "ab"], done


def test_a_file_of_hosts_and_a_user_name(box):
    path = box.write("hosts", "# my cluster\na  # fast\n\njoe@b,n[1-2]\n")
    done = run(box, f"--hosts-file={path}", *shell(SHOW))
    assert done.code == 0, done
    assert sorted(line.split()[1] for line in done.out.splitlines()) == ["a", "joe@b", "n1", "n2"]
    assert len(host_lines(done.out, "b")) == 1, done


@pytest.mark.parametrize("name", ["CTRUN_HOSTS", "CTRUN_HOSTS_FILE", "CTRUN_CONFIG", "CTRUN_STAGE"])
def test_a_run_that_a_worker_starts_does_not_go_to_all_hosts_again(box, name):
    hosts = ["--hosts=a,localhost"] if name == "CTRUN_STAGE" else []
    value = {"CTRUN_HOSTS": "a,localhost", "CTRUN_HOSTS_FILE": box.write("hosts", "a\nlocalhost\n"),
             "CTRUN_CONFIG": box.write("job.conf", "hosts = a,localhost\n"),
             "CTRUN_STAGE": box.write("data", "")}[name]
    inner = f"{ctrun.program('ctrun')} --no-python sh -c 'echo $RANK/$WORLD_SIZE ${name}'"
    env = {name: value, "TMPDIR": str(box.dir)}
    done = run(box, *hosts, *shell(inner), env=env)
    assert done.code == 0 and sorted(done.out.splitlines()) == ["a: 0/1", "localhost: 0/1"], done
    assert fake_ssh.calls(box) == ["a"]


def test_words_and_folder_arrive_as_they_were_typed(box):
    folder = box.path("it's a \"folder\" $HOME `x`")
    folder.mkdir()
    word = "a'b\"c$d`e\\f\ng  h*"
    done = run(box, "--hosts=a,b", "--no-python", "printf", "<%s>\n", word, cwd=folder)
    assert done.code == 0, done
    for host in "ab":
        assert [line[3:] for line in host_lines(done.out, host)] == ["<a'b\"c$d`e\\f", "g  h*>"]
    where = run(box, "--hosts=a", *shell("pwd"), cwd=folder)
    assert where.out == f"{folder}\n", where


def test_a_folder_that_a_host_does_not_have_is_named(box):
    folder = box.path("work")
    folder.mkdir()
    script = fake_ssh.local(box)
    text = open(script, encoding="utf-8").read()
    box.write("ssh", text.replace("cd /\n", f"cd /; rmdir {folder}\n"), 0o755)
    done = box.ctrun("--hosts=a", f"--ssh={script}", *shell("true"), cwd=folder)
    assert "error[E_BAD_ENVIRONMENT]: a: cannot change to " \
           f"{folder}, the folder where ctrun was started: No such file or directory" in done.err, done


def test_the_chosen_environment_goes_along_and_nothing_else(box):
    env = {"NCCL_DEBUG": "it's \"x\"", "EXTRA_1": "two\nlines", "MY_SECRET": "no",
           "SSH_AUTH_SOCK": "no", "HOME": "/nonexistent"}
    done = run(box, "--hosts=a,b", *shell('[ $RANK = 0 ] || env -0 | tr "\\0\\n" "\\n|"'), env=env)
    assert done.code == 0, done
    seen = dict(line[3:].split("=", 1) for line in host_lines(done.out, "b"))
    assert seen["NCCL_DEBUG"] == "it's \"x\"" and seen["EXTRA_1"] == "two|lines"
    assert seen["HOME"] == "/" and not {"MY_SECRET", "SSH_AUTH_SOCK", "CTRUN_HOST_SLOT",
                                       "CTRUN_TOKEN"} & set(seen), seen


def test_no_secret_is_on_a_command_line_or_in_an_environment(box):
    token = "0123456789abcdef0123456789abcdef"
    path = box.write("token", token, 0o600)
    started = start(box, "--hosts=a,b", f"--rdzv-token-file={path}", *shell("exec sleep 600"))
    box.wait_workers(2)
    for pid in box.pids():
        for name in ("cmdline", "environ"):
            with open(f"/proc/{pid}/{name}", "rb") as file:
                assert token.encode() not in file.read(), (pid, name)
    started.signal(signal.SIGTERM)
    assert started.wait() == 143


@pytest.mark.parametrize("words", [["--encrypt"], ["--auth=none"], ["--auth=token"],
                                   ["--net=127.0.0.0/8"], ["--port-range=28700-28799"]])
def test_the_rendezvous_is_as_the_command_line_wants_it(box, words):
    done = run(box, "--hosts=a,b", *words, *shell("echo $RANK"))
    assert done.code == 0, done
    assert sorted(done.out.splitlines()) == ["a: 0", "b: 1"], done


def test_a_token_file_is_only_needed_where_hosts_is_typed(box):
    path = box.write("token", "0123456789abcdef", 0o600)
    script = fake_ssh.local(box)
    text = open(script, encoding="utf-8").read()
    box.write("ssh", text.replace("cd /\n", f"cd /; rm -f {path}\n"), 0o755)
    done = box.ctrun("--hosts=a,b", f"--rdzv-token-file={path}", f"--ssh={script}",
                     *shell("echo $RANK"))
    assert done.code == 0, done


def test_the_first_cause_is_told_once_and_its_code_is_the_runs(box):
    script = '[ $RANK = 1 ] || exec sleep 600; echo boom >&2; exit 7'
    done = run(box, "--hosts=a,b,c", "--max-restarts=1", *shell(script))
    assert done.code == 7, done
    own = [line for line in done.err.splitlines() if line.startswith("ctrun: ")
           and "cgroup=" not in line]  # what tests that kill all processes have left
    # Two nodes print these: the line of a may come after that of b.
    assert any(line.startswith("ctrun: error[E_EXIT]: rank 1 (") for line in own), done
    assert any("3 nodes, 1+1+1 = 3 workers" in line for line in own), done
    assert any(line.startswith("ctrun: restart 1/1: rank 1 on ") for line in own), done
    assert any(line.startswith("ctrun: restart took ") for line in own), done
    assert len(own) == 4 and done.err.count("Root Cause") == 1, done
    assert done.err.count("b: boom\n") == 2, done


@pytest.mark.parametrize("words, code, text", [
    (["--hosts=a,bad1,b"], 75, "bad1: ssh ended with 255: ssh: Could not resolve hostname bad1"),
    (["--hosts=a,evil1", "--verbose"], 75, "evil1: ssh ended with 255: ?]0;owned?"),
    (["--hosts=a,mute1", "--hosts-timeout=15"], 75, "mute1: no answer over ssh within 15 s"),
    (["--hosts=a,shut1", "--hosts-timeout=60"], 75,
     "shut1: ssh did not end within 5 s after its input or output was closed"),
    (["--hosts=a,bare1"], 127, "bare1: no ctrun can be started there: "),
])
def test_a_host_that_cannot_be_reached_is_one_line_with_sshs_last_words(box, words, code, text):
    done = run(box, *words, *shell("echo started"))
    assert done.code == code, done
    errors = [line for line in done.err.splitlines() if "error[" in line]
    assert len(errors) == 1 and text in errors[0], done
    assert "started" not in done.out and "MIN:MAX" in done.err and "\x1b" not in done.err, done
    box.wait_gone()


def test_with_a_range_of_nodes_the_others_go_on(box):
    done = run(box, "--hosts=a,bad1,b", "--nnodes=2:3", "--rdzv-conf=last_call_timeout=1",
               *shell(SHOW))
    assert done.code == 0 and "bad1: ssh ended with 255" in done.err, done
    assert sorted(line.split()[2] for line in done.out.splitlines()) == ["0/2", "1/2"], done


def test_a_host_that_has_left_does_not_decide_how_the_run_ends(box):
    run = start(box, "--hosts=a,b", "--nnodes=1:2", *shell("[ $CTRUN_GENERATION = 1 ] || exit 9; exec sleep 600"))
    box.wait_event("worker_started", count=2)
    [left] = box.wait_event("round_started", group_rank=1)
    guard = ctrun.guards_of(left["pid"])[1]
    assert box.run(ctrun.program("ctrunctl"), "stop", f"--run={guard}").code == 0
    assert run.wait() == 9, run


LIAR = """#!/usr/bin/python3
import os, struct, sys
if sys.argv[1] != "liar":
    os.execv({ssh!r}, [{ssh!r}, *sys.argv[1:]])
JOB, GO, READY, WORDS, ENDED = 64, 66, 80, 84, 86
def send(kind, code, data=b"", host=1):
    body = struct.pack("<IiI", host, code, len(data)) + data
    sys.stdout.buffer.write(b"\\xc7\\x52\\x08" + struct.pack("<BI", kind, len(body)) + body)
    sys.stdout.buffer.flush()
def wait_for(kind):
    seen = None
    while seen != kind:
        seen, length = struct.unpack("<BI", sys.stdin.buffer.read(8)[3:])
        sys.stdin.buffer.read(length)
print("CTRUN-RELAY 4", flush=True)
{script}
sys.stdin.buffer.read()
"""


def run_with_liar(box, script, *words):
    """The second host runs no ctrun: its ssh sends what `script` says."""
    text = LIAR.format(ssh=fake_ssh.local(box), script=script)
    return box.ctrun("--hosts=a,liar", f"--ssh={box.write('liar-ssh', text, 0o755)}", *words)


@pytest.mark.parametrize("script, words, code, error", [
    ("send(READY, 0); wait_for(JOB); send(ENDED, 0)", [], 1,
     "E_PROTOCOL]: liar says that its ctrun has ended (0), but none was started there"),
    ("send(READY, 0); wait_for(GO); send(ENDED, 0)", ["--shutdown-timeout=1"],
     75, "E_TIMEOUT]: a did not report its end in time"),
    ("send(READY, 0); wait_for(GO); send(ENDED, 0)", ["--rdzv-conf=join_timeout=1"], 75, "E_JOIN_TIMEOUT]: 1 of 2 nodes"),
])
def test_a_host_whose_end_comes_before_any_round_makes_no_run_a_success(box, script, words, code, error):
    done = run_with_liar(box, script, *words, *shell("echo started"))
    assert done.code == code and "started" not in done.out and error in done.err, done
    box.wait_gone()


def test_a_message_of_a_host_cannot_steer_the_terminal(box):
    done = run_with_liar(box, "send(READY, 0); send(WORDS, 1, b'ctrun: \\x1b[31mred\\x9b\\r\\n\\tnext: \\xc3\\xa4\\n'); sys.exit()",
                         *shell("exit 0"))
    assert "ctrun: ?[31mred??\n\tnext: \u00e4\n" in done.err, done


def test_a_long_list_is_a_tree_and_the_rest_of_a_dead_branch_is_called_from_above(box):
    done = run(box, "--hosts=n[1-4],bad,n[5-7]", "--nnodes=7:8", "--rdzv-conf=last_call_timeout=1",
               *shell('echo "$RANK/$WORLD_SIZE"'), env={"CTRUN_HOSTS_FANOUT": "2"})
    assert done.code == 0, done
    # The halves begin with n1 and bad. The hosts after bad are then called in two halves.
    assert sorted(fake_ssh.calls(box)) == sorted(["bad"] + [f"n{i}" for i in range(1, 8)])
    assert sorted(line.split()[1] for line in done.out.splitlines()) == [
        f"{rank}/7" for rank in range(7)], done


def test_a_login_script_that_talks_does_no_harm(box):
    done = run(box, "--hosts=noisy1,noisy2", *shell("echo $RANK"))
    assert done.code == 0 and "Welcome" not in done.out and "mail" not in done.err, done


def test_this_machine_needs_no_ssh(box):
    done = run(box, "--hosts=localhost,b", *shell('echo "$RANK on $FAKE_HOST."'))
    assert done.code == 0 and fake_ssh.calls(box) == ["b"], done
    assert sorted(done.out.splitlines()) == ["b: 1 on b.", "localhost: 0 on ."], done


def test_a_program_that_is_missing_stops_the_others_before_they_wait(box):
    done = run(box, "--hosts=a,b", "--no-python", "/nonexistent/program")
    assert done.code == 127, done
    assert done.err.count("error[E_EXEC]") == 1, done
    assert re.search(r"(a|b) ended with 127 before the run began", done.err), done


def test_hosts_that_have_not_answered_are_not_counted_as_missing(box):
    done = box.ctrun("--hosts=a,b,c", f"--ssh={box.write('no.sh', '#!/bin/sh' + chr(10) + 'exit 1', 0o755)}", "true")
    assert done.code == 75, done
    assert "ctrun: 1 of 3 hosts is missing, 2 have not answered yet; --nnodes=MIN:MAX would" in done.err, done


TRAP = """#!/bin/sh
for name in TERM INT USR1; do trap "echo $RANK got $name; [ $name = USR1 ] || exit 0" $name; done
echo up
while :; do sleep 0.05; done
"""


def start_trap(box, *words, script=TRAP, env=None):
    box.write("trap.sh", script, 0o755)
    started = start(box, "--hosts=a,b,c", *words, "./trap.sh", env=env)
    ctrun.wait_until(lambda: started.out.count("up") == 3, lambda: f"up\n{started}")
    return started


def test_t23_signals_reach_the_workers_of_all_hosts_and_are_told_once(box):
    started = start_trap(box)
    started.signal(signal.SIGUSR1)
    ctrun.wait_until(lambda: started.out.count("got USR1") == 3, lambda: str(started))
    started.signal(signal.SIGINT)
    assert started.wait() == 130
    for rank, host in enumerate("abc"):
        first, second = [line for line in host_lines(started.out, host) if "got" in line]
        assert first == f"{host}: {rank} got USR1", started
        # A host that learns first that another one leaves ends its workers with SIGTERM.
        assert second in (f"{host}: {rank} got INT", f"{host}: {rank} got TERM"), started
    own = [line for line in started.err.splitlines() if line.startswith("ctrun: SIG")]
    assert re.fullmatch(r"ctrun: SIGUSR1 from pid \d+ \(.*\): passed on to the workers", own[0])
    assert re.fullmatch(r"ctrun: SIGINT from pid \d+ \(.*\): stopping \(press again to kill\)",
                        own[1])
    assert len(own) == 2 and "Traceback" not in started.err, started
    box.wait_gone()


STUBBORN = TRAP.replace("trap ", "trap '' INT TERM; : ")


def test_t23_ctrl_c_three_times_leaves_nothing_on_any_host(box):
    clock = Clock(box)
    passed_on = "TMPDIR,LD_PRELOAD,CTRUN_TEST_CLOCK,ASAN_OPTIONS"
    started = start_trap(box, script=STUBBORN, env={**clock.env, "CTRUN_HOSTS_ENV": passed_on})
    clock.stand()  # the second press leaves seconds for the third
    for count in (1, 2, 3):
        started.signal(signal.SIGINT)
        if count < 3:  # each node handles it before the next one is sent
            box.wait_event("signal", count=3 * count, signal=signal.SIGINT)
            clock.advance(0.25)  # two within 0.2 s count as one
    ctrun.wait_until(lambda: started.err.count("ctrun: SIGINT") == 3, lambda: f"three are told\n{started}")
    clock.go_on()
    assert started.wait(20) == 130
    assert started.err.count("ctrun: SIGINT") == 3, started
    box.wait_gone()


HELD = """
import ctrun, signal, sys
rank = ctrun.run().rank
if str(rank) in sys.argv[1]:
    with ctrun.hold(f"disk/{rank}.ckpt") as f:
        f.write(b"new")
print("up", flush=True)
if sys.argv[2:]:
    signal.pause()
"""


def start_held(box, clock, *words):
    """Workers of two hosts, whose disk hangs; words[0] has the ranks that hold a checkpoint."""
    disk = box.path("disk")
    disk.mkdir()
    (disk / "hung").touch()
    preload = f"{ctrun.BUILD / 'tests' / 'lib' / 'libhung.so'}:{clock.env['LD_PRELOAD']}"
    return start(box, "--hosts=a,b", "--shutdown-timeout=0", box.write("train.py", HELD), *words,
                 env={**clock.env, "LD_PRELOAD": preload, "CTRUN_TEST_HUNG": str(disk), "PYTHON_EXEC": ctrun.DEBIAN_PYTHON,
                      "PYTHONPATH": str(ctrun.ROOT / "python"), "CTRUN_LIBRARY": str(ctrun.BUILD / "lib" / "libctrun.so"),
                      "CTRUN_HOSTS_ENV": "TMPDIR,ASAN_OPTIONS"})


def look_at_the_time(started):
    count = started.err.count("SIGUSR1")
    started.signal(signal.SIGUSR1)
    ctrun.wait_until(lambda: started.err.count("SIGUSR1") > count, lambda: f"it has looked at the time\n{started}")


def agents_of(box, host, is_relay):
    return [pid for pid in box.pids() if ctrun.environment(pid).get("FAKE_HOST") == host
            and ("--relay" in ctrun.cmdline(pid)) == is_relay
            and b"(ctrun-agent)" in ctrun._read(f"/proc/{pid}/stat")]


@pytest.mark.plain("the sanitizers' libraries come first")
def test_a_host_that_still_writes_a_held_checkpoint_is_awaited(box):
    """The others have ended, and so has the time that a host has for it: the grace time and ten seconds."""
    clock = Clock(box)
    started = start_held(box, clock, "1")
    box.wait_event("host_state", count=2, host="a", state="ended")  # of the relay, and of the first process
    box.wait_event("host_state", count=2, host="b", state="saving")
    clock.advance(15)
    look_at_the_time(started)
    box.path("disk/hung").unlink()
    assert started.wait() == 0 and box.path("disk/1.ckpt").read_text() == "new", started
    assert "did not report" not in started.err, started
    for event in box.events("host_state"):
        schema.check(event, "events")


@pytest.mark.plain("the sanitizers' libraries come first")
def test_a_run_that_lost_a_checkpoint_on_one_host_is_no_success(box):
    started = start_held(box, Clock(box), "1")
    box.wait_event("host_state", host="b", state="saving")
    box.path("disk/1.ckpt").mkdir()  # no file can take its place
    box.path("disk/hung").unlink()
    assert started.wait() == 1, started
    assert "the workers have succeeded, but rank 1's last checkpoint, disk/1.ckpt, is not on the disk: " in started.err, started


@pytest.mark.plain("the sanitizers' libraries come first")
@pytest.mark.parametrize("signals, seconds", [([], 75), ([signal.SIGTERM], 11), ([signal.SIGINT] * 2, 6)],
                         ids=["time", "SIGTERM", "Ctrl-C twice"])
def test_a_host_that_still_writes_is_not_awaited_for_ever(box, signals, seconds):
    clock = Clock(box)
    started = start_held(box, clock, "01")
    for host in "ab":
        box.wait_event("host_state", count=2, host=host, state="saving")
        [agent] = agents_of(box, host, is_relay=False)
        os.kill(agent, signal.SIGSTOP)
    look_at_the_time(started)  # all that it has received so far is handled
    if not signals:
        clock.advance(15)
        look_at_the_time(started)
        ctrun.wait_until(lambda: "held checkpoints of a,b are not on the disk yet: waiting for at most" in started.err,
                         lambda: str(started))
    for number in signals:
        count = started.err.count("ctrun: SIG")
        started.signal(number)
        ctrun.wait_until(lambda: started.err.count("ctrun: SIG") > count, lambda: str(started))
        clock.advance(0.25)  # two within 0.2 s count as one
    clock.advance(seconds)
    started.signal(signal.SIGUSR1)
    assert started.wait(20) == 75
    assert ("error[E_TIMEOUT]: a (writes held checkpoints),b (writes held checkpoints) did not report its end in time"
            in started.err), started
    box.wait_gone()


@pytest.mark.plain("the sanitizers' libraries come first")
def test_the_code_is_that_of_the_host_that_still_writes_when_another_one_is_lost(box):
    clock = Clock(box)
    started = start_held(box, clock, "01", "stay")
    ctrun.wait_until(lambda: started.out.count("up") == 2, lambda: f"up\n{started}")
    started.signal(signal.SIGTERM)
    for host in "ab":
        box.wait_event("host_state", count=2, host=host, state="saving")
    ctrun.kill_at_once(*agents_of(box, "b", is_relay=True))
    box.wait_event("host_state", host="b", state="lost")
    box.path("disk/hung").unlink()
    assert started.wait() == 143, started
    assert box.path("disk/0.ckpt").read_text() == "new", started
    box.wait_gone()


@pytest.mark.parametrize("whom", ["the first ctrun", "its session", "it, its second guard and its agent"])
def test_t23_kill_9_of_the_first_ctrun_leaves_nothing_on_any_host(box, whom):
    started = start_trap(box, script=STUBBORN)
    if whom == "the first ctrun":
        os.kill(started.pid, signal.SIGKILL)
    elif whom == "it, its second guard and its agent":  # stopped first: neither may end the other
        three = [started.pid, *ctrun.below(started.pid)]
        assert len(three) == 3
        ctrun.kill_at_once(*three)
    else:
        os.killpg(started.pid, signal.SIGKILL)
    assert started.wait() == 137
    box.wait_gone()


def test_a_connection_that_breaks_ends_what_is_behind_it(box):
    started = start_trap(box, "--nnodes=2:3", "--rdzv-conf=last_call_timeout=60")
    victims = [pid for pid in box.pids()
               if ctrun.environment(pid).get("FAKE_HOST") == "c"
               and "--relay" in ctrun.cmdline(pid)]
    assert victims
    ctrun.kill_at_once(*victims)  # one ends when its guard is gone
    ctrun.wait_until(lambda: started.out.count("up") == 5, lambda: f"a world of two\n{started}")
    ctrun.wait_until(lambda: "c is lost: ssh" in started.err, lambda: str(started))
    started.signal(signal.SIGTERM)
    assert started.wait() == 143
    assert "stopped by SIGTERM (15); the connection to c was lost: something may still run there" in started.err
    box.wait_gone()


def test_the_first_line_of_the_error_that_ended_a_host_is_quoted(box):
    started = start_trap(box, "--nnodes=2:3", "--rdzv-conf=last_call_timeout=60")
    [relay] = [pid for pid in box.pids() if ctrun.environment(pid).get("FAKE_HOST") == "c"
               and "--relay" in ctrun.cmdline(pid)
               and b"(ctrun-agent)" in ctrun._read(f"/proc/{pid}/stat")]
    os.kill(relay, signal.SIGQUIT)
    lost = "c is lost: ssh ended with 131: ctrun: error[E_SIGNAL]: the agent died of SIGQUIT (3)"
    ctrun.wait_until(lambda: lost in started.err, lambda: str(started))
    started.signal(signal.SIGTERM)
    assert started.wait() == 143


def test_much_output_of_all_hosts_comes_through_in_whole_lines(box):
    script = 'i=0; while [ $i -lt 3000 ]; do printf "$RANK:$i:%0100d\\n" $i; i=$((i+1)); done'
    done = run(box, "--hosts=a,b,c", *shell(script))
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert len(lines) == 9000
    for rank, host in enumerate("abc"):
        mine = [line for line in lines if line.startswith(f"{host}: ")]
        assert mine == [f"{host}: {rank}:{i}:{i:0100d}" for i in range(3000)]


@pytest.mark.parametrize("words, text", [
    (["--hosts=a,a"], "a is given twice"),
    (["--hosts=a slots=4"], "is not a host name"),
    (["--hosts=a,-vvv"], "is not a host name"),
    (["--hosts=n[1-"], "--hosts"),
    (["--hosts-file=/nonexistent"], "No such file"),
    (["--hosts=a,b", "--nnodes=3"], "--hosts names 2 hosts"),
    (["--hosts=a,b", "--node-rank=1"], "--node-rank: not with --hosts"),
    (["--hosts=a,b", "--standalone"], "--standalone: not with --hosts"),
    (["--hosts=a,b", "--rdzv-backend=static"], "uses c10d"),
    (["--hosts=a,b", "--hosts-timeout=0"], "must be 1 to"),
])
def test_what_cannot_be_meant_is_refused_before_anything_starts(box, words, text):
    done = run(box, *words, *shell("true"))
    assert done.code == 2 and text in done.err, done
    assert not box.path("calls").exists()


def test_a_network_that_the_serving_host_lacks_is_named_in_the_words_of_a_run_without_hosts(box):
    done = run(box, "--hosts=a,b", "--net=203.0.113.0/24", *shell("true"))
    assert done.code == 2 and "--net=203.0.113.0/24: a has no such interface or address" in done.err, done


@pytest.mark.parametrize("names, text", [("a\na\n", "a is given twice"), ("# none\n", "no host is named")])
def test_a_bad_file_of_hosts_is_named_by_its_own_option(box, names, text):
    done = run(box, f"--hosts-file={box.write('hosts', names)}", *shell("true"))
    assert done.code == 2 and f"error[E_USAGE]: --hosts-file: {text}" in done.err, done


def test_an_endpoint_of_ones_own_is_used(box):
    server = box.start(ctrun.program("ctrund"), "--listen", "127.0.0.1:0")
    port = ctrun.wait_until(lambda: re.search(r"127\.0\.0\.1:(\d+)", server.out + server.err),
                            lambda: str(server)).group(1)
    done = run(box, "--hosts=a,b", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=mine",
               *shell('echo "$TORCHELASTIC_RUN_ID $RANK $GROUP_RANK"'))
    assert done.code == 0, done
    assert sorted(done.out.splitlines()) == ["a: mine 0 0", "b: mine 1 1"], done
    server.signal(signal.SIGTERM)
    server.wait()


def test_a_dry_run_calls_nobody(box):
    done = run(box, "--hosts=a,n1,n2", "--dry-run", "--nproc-per-node=2", *shell("true"))
    assert done.code == 0 and "nodes      : 3:3" in done.out, done
    assert "hosts      : a,n[1-2]" in done.out and "endpoint   : a, a free port" in done.out, done
    done = run(box, "--hosts=a,n1,n2", "--dry-run", "--json", *shell("true"))
    assert json.loads(done.out)["hosts"] == "a,n[1-2]", done
    for first, endpoint in ("joe@b", "b"), ("fe80::1", "fe80::1"), ("joe@fe80::1%lo", "fe80::1%lo"):
        done = run(box, f"--hosts={first},c", "--dry-run", *shell("true"))
        assert done.code == 0 and f"endpoint   : {endpoint}, a free port" in done.out, done
    assert not box.path("calls").exists()


def test_ssh_is_asked_for_no_password_and_told_to_notice_a_dead_host(box):
    stand_in = fake_ssh.local(box)
    box.path("bin").mkdir()
    box.write("bin/ssh", "#!/bin/sh\nprintf '%s\\n' \"$@\" >> words\n"
              f"while [ \"$1\" != -- ]; do shift; done; shift; exec {stand_in} \"$@\"\n", 0o755)
    done = box.ctrun("--hosts=joe@a,b", *shell("true"),
                     env={"PATH": f"{box.path('bin')}:{box.env['PATH']}"})
    assert done.code == 0, done
    words = box.path("words").read_text().splitlines()
    assert words.count("BatchMode=yes") == 2 and words.count("-T") == 2, words
    assert "ConnectTimeout=31" in words and "ServerAliveInterval=15" in words, words
    after = [words[i + 1] for i, word in enumerate(words) if word == "--"]
    assert sorted(after) == ["b", "joe@a"], words


def test_a_command_for_ssh_may_have_options_and_quotes(box):
    stand_in = fake_ssh.local(box)
    box.write("my ssh", f"#!/bin/sh\n[ \"$1\" = '-p 2' ] && shift && exec {stand_in} \"$@\"\n", 0o755)
    done = box.ctrun("--hosts=a,b", f"--ssh='{box.path('my ssh')}' '-p 2'", *shell("echo $RANK"))
    assert done.code == 0 and sorted(done.out.splitlines()) == ["a: 0", "b: 1"], done
