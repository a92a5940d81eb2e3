# SPDX-License-Identifier: Apache-2.0
"""--stage: files are sent along the tree of a --hosts run to a disk of each host. Every "host" of
the stand-in ssh has its own TMPDIR here."""
import contextlib
import hashlib
import os
import signal
import stat
import sys

import ctrun
import fake_ssh
import pytest
import other_user

MEGABYTE = 1 << 20
# Not dd(1), which counts a short read as a whole block.
PASS = """import os
left = 20 << 20
while left and (data := os.read(0, min(left, 65536))):
    os.write(1, data)
    left -= len(data)
"""


def disk(box, host):
    return box.path("disk") / host


@pytest.fixture
def ssh(box):
    """A stand-in ssh whose hosts have their own folders: disk/HOST, made beforehand. The
    connections to hosts named slow... pass 20 MB, and then nothing more."""
    path = fake_ssh.local(box)
    text = open(path, encoding="utf-8").read()
    own = f"TMPDIR={box.path('disk')}/$host FAKE_HOST="
    text = text.replace("FAKE_HOST=", own)
    line = text[text.index("exec env"):].strip()
    slow = line.replace("exec env", f"({sys.executable} {box.write('pass.py', PASS)}; exec sleep 600) | env")
    text = text.replace(line, f"case $host in slow*) {slow}; exit ;; esac\n{line}")
    box.write("ssh", text, 0o755)
    for host in ["a", "b", "c", "slow1", *(f"n{i}" for i in range(1, 8))]:
        disk(box, host).mkdir(parents=True)
    return path


def start(box, ssh, *words, env=None, **how):
    names = {"CTRUN_SSH": ssh, "TMPDIR": str(disk(box, "a")), **(env or {})}
    return box.start_ctrun(*words, env=names, **how)


def run(box, ssh, *words, **how):
    started = start(box, ssh, *words, **how)
    started.wait()
    return started


def staged_events(box):
    return box.events("staged")


def fill(folder, files):
    """files: path -> bytes, or text of a symbolic link."""
    for path, content in files.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            place.write_bytes(content)
        else:
            place.symlink_to(content)


def seen(folder):
    """What lies below a folder: path -> type, rights, time, content."""
    found = {}
    for top, folders, files in os.walk(folder):
        for name in folders + files:
            path = os.path.join(top, name)
            info = os.lstat(path)
            if stat.S_ISLNK(info.st_mode):
                what = os.readlink(path)
            elif stat.S_ISDIR(info.st_mode):
                what = (oct(info.st_mode), info.st_mtime_ns)
            else:
                with open(path, "rb") as file:
                    what = (oct(info.st_mode), info.st_mtime_ns, file.read())
            found[os.path.relpath(path, folder)] = what
    return found


def copies(box, host, name="data"):
    """The folders of that name on a host's disk."""
    return sorted(disk(box, host).glob(f"ctrun-stage-*/*/{name}"))


def copy(box, host, name="data"):
    (found,) = copies(box, host, name)
    return found


def tree(box):
    source = box.path("data")
    fill(source, {"big": os.urandom(9 * MEGABYTE + 17), "empty": b"", "a/b/c/deep": b"deep",
                  "a.txt": b"text", "a/link": "b/c", "out": "/etc/hostname", "up": "../../x",
                  "bin/run": b"#!/bin/sh\n"})
    (source / "bin/run").chmod(0o755)
    (source / "a.txt").chmod(0o440)
    (source / "none").mkdir()
    (source / "none").chmod(0o750)
    os.utime(source / "a/b", ns=(1, 1234567890123456789))
    return source


SHOW = ["--no-python", "sh", "-c", 'echo "$FAKE_HOST $CTRUN_STAGE_DIR"']


def test_a_folder_arrives_on_every_host_as_it_is(box, ssh):
    source = tree(box)
    done = run(box, ssh, "--hosts=a,b,c", f"--stage={source}", *SHOW)
    assert done.code == 0, done
    for host in "abc":
        there = copy(box, host)
        assert seen(there) == seen(source), host
        assert f"{host}: {host} {there.parent}" in done.out.splitlines(), done
        assert not list(there.parent.parent.glob("*.parts"))
        assert stat.S_IMODE(there.parent.parent.stat().st_mode) == 0o700
    (event,) = staged_events(box)
    assert event["needed_bytes"] == 9 * MEGABYTE + 17 + 4 + 4 + 10
    assert event["sent_bytes"] == 3 * event["needed_bytes"] and event["hosts"] == 3


def test_a_second_run_sends_nothing_and_a_change_is_all_that_is_sent(box, ssh):
    source = tree(box)
    words = ["--hosts=a,b", f"--stage={source}", *SHOW]
    assert run(box, ssh, *words).code == 0
    inode = os.stat(copy(box, "b") / "big").st_ino
    assert run(box, ssh, *words).code == 0
    with open(source / "a/b/c/deep", "wb") as file:
        file.write(b"other")
    (source / "a.txt").unlink()
    (source / "empty").unlink()
    fill(source, {"empty/now": b"a folder"})
    done = run(box, ssh, *words)
    assert done.code == 0, done
    assert [event["sent_bytes"] // 2 for event in staged_events(box)] == [
        9 * MEGABYTE + 35, 0, len("other") + len("a folder")]
    assert seen(copy(box, "b")) == seen(source)
    assert os.stat(copy(box, "b") / "big").st_ino == inode


def test_a_copy_that_was_damaged_is_mended(box, ssh):
    source = tree(box)
    words = ["--hosts=a,b", f"--stage={source}", *SHOW]
    assert run(box, ssh, *words).code == 0
    place = copy(box, "b")
    with open(place / "big", "r+b") as file:  # same size
        file.seek(5 * MEGABYTE)
        file.write(b"damage")
    os.utime(place / "big", ns=(1, os.stat(source / "big").st_mtime_ns))
    (place / "a/link").unlink()
    (place / "a/link").symlink_to("/etc")
    (place / "more").write_bytes(b"left over")
    assert run(box, ssh, *words).code == 0
    assert seen(place) == seen(source) and os.listdir("/etc")
    assert staged_events(box)[1]["sent_bytes"] == 9 * MEGABYTE + 17


def test_a_host_may_need_more_than_one_message_can_name(box, ssh):
    """One message holds 4096 runs of chunks."""
    source = box.path("data")
    fill(source, {"0000": b"x"})
    words = ["--hosts=a", f"--stage={source}", *SHOW]
    assert run(box, ssh, *words).code == 0
    place = copy(box, "a")
    for i in range(1, 8200):  # links to one file: new files take longer
        os.link(source / "0000", source / f"{i:04}")
        if i % 2:
            os.link(place / "0000", place / f"{i:04}")
    done = run(box, ssh, *words)
    assert done.code == 0, done
    assert staged_events(box)[1]["needed_bytes"] == 4099
    assert seen(place) == seen(source)


def test_a_file_that_came_half_over_goes_on_where_it_stopped(box, ssh):
    source = tree(box)
    words = ["--hosts=a,b", f"--stage={source}", *SHOW]
    assert run(box, ssh, *words).code == 0
    place = copy(box, "b")
    parts = place.parent.with_name(place.parent.name + ".parts")
    parts.mkdir(0o700)
    # As an interrupted copy leaves it: the first chunk of three exists, the file does not.
    whole = (place / "big").read_bytes()
    name = ctrun_part_name("data/big")
    (parts / name).write_bytes(whole[:4 * MEGABYTE] + bytes(len(whole) - 4 * MEGABYTE))
    (place / "big").unlink()
    assert run(box, ssh, *words).code == 0
    assert seen(place) == seen(source)
    assert staged_events(box)[1]["sent_bytes"] == 5 * MEGABYTE + 17


def ctrun_part_name(path):
    return hashlib.blake2b(path.encode(), digest_size=32).hexdigest()[:32]


def test_links_in_the_way_lead_nowhere(box, ssh):
    source = tree(box)
    words = ["--hosts=b", f"--stage={source}", *SHOW]
    assert run(box, ssh, *words).code == 0
    place = copy(box, "b")
    victim = box.path("victim")
    fill(victim, {"c/deep": b"mine", "note": b"mine"})
    before = seen(victim)
    os.rename(place / "a/b", place / "a/gone")
    (place / "a/b").symlink_to(victim)
    (place / "a.txt").unlink()
    (place / "a.txt").symlink_to(victim / "note")
    assert run(box, ssh, *words).code == 0
    assert seen(place) == seen(source) and seen(victim) == before


def test_a_tree_of_hosts_carries_it_on_and_the_root_sends_to_its_own_only(box, ssh):
    source = tree(box)
    done = run(box, ssh, "--hosts=n[1-7]", f"--stage={source}", *SHOW,
               env={"CTRUN_HOSTS_FANOUT": "2"})
    assert done.code == 0, done
    for i in range(1, 8):
        assert seen(copy(box, f"n{i}")) == seen(source), i
    (event,) = staged_events(box)
    assert event["sent_bytes"] == 2 * event["needed_bytes"] and event["hosts"] == 7


def test_only_what_a_branch_needs_goes_into_it(box, ssh):
    source = tree(box)
    assert run(box, ssh, "--hosts=n1,n2", f"--stage={source}", *SHOW).code == 0
    done = run(box, ssh, "--hosts=n[1-4]", f"--stage={source}", *SHOW,
               env={"CTRUN_HOSTS_FANOUT": "2"})  # n1 > n2, n3 > n4
    assert done.code == 0, done
    first, second = staged_events(box)
    assert second["needed_bytes"] == first["needed_bytes"] == second["sent_bytes"]
    assert seen(copy(box, "n4")) == seen(source)


def test_this_machine_gets_its_copy_too(box, ssh):
    source = tree(box)
    done = run(box, ssh, "--hosts=localhost,b", f"--stage={source}", *SHOW)
    assert done.code == 0, done
    assert seen(copy(box, "a")) == seen(copy(box, "b")) == seen(source)


def test_the_program_runs_from_its_copy_and_the_usual_variables_name_it(box, ssh):
    source = tree(box)
    script = '#!/bin/sh\necho "$0 $PYTHONPATH $1"\n'
    (source / "bin/run").write_text(script)
    done = run(box, ssh, "--hosts=a,b", "--stage=data", "./data/bin/run", "data/bin",
               env={"PYTHONPATH": f"/x:{source}/lib"}, cwd=box.dir)
    assert done.code == 0, done
    assert sorted(done.out.splitlines()) == [
        f"{host}: {copy(box, host)}/bin/run /x:{copy(box, host)}/lib data/bin" for host in "ab"]
    box.path("other").symlink_to(source / "bin")  # a link into the folder
    done = run(box, ssh, "--hosts=a", "--stage=data", "other/run", "x", cwd=box.dir)
    assert done.out == f"{copy(box, 'a')}/bin/run  x\n", done


def test_options_of_a_file_do_not_move_the_program(box, ssh):
    (tree(box) / "bin/run").write_text('#!/bin/sh\necho "$0 $1"\n')
    box.write("job.conf", "hosts = a,b\nstage = data\nno-python = true\n")
    done = run(box, ssh, "--config=job.conf", "data/bin/run", "x", cwd=box.dir)
    assert done.code == 0, done
    assert sorted(done.out.splitlines()) == [f"{host}: {copy(box, host)}/bin/run x" for host in "ab"]


def test_commands_of_roles_find_the_copies_by_the_environment(box, ssh):
    source = tree(box)
    words = ["--role", "x=1:sh -c 'cat $CTRUN_STAGE_DIR/data/a.txt'", "--role", "y=1:true"]
    done = run(box, ssh, "--hosts=a,b", f"--stage={source}", *words)
    assert done.code == 0, done
    assert sorted(done.out.splitlines()) == ["a: text", "b: text"]


def test_a_single_file_and_a_folder_together(box, ssh):
    source = tree(box)
    box.write("train.py", "import os, sys; print(sys.argv[0], os.environ['CTRUN_STAGE_DIR'])\n")
    done = run(box, ssh, "--hosts=b", f"--stage={source},train.py", "train.py", cwd=box.dir)
    assert done.code == 0, done
    top = copy(box, "b").parent
    assert done.out == f"{top}/train.py {top}\n"
    assert sorted(os.listdir(top)) == ["data", "train.py"]


def test_what_is_above_a_link_is_above_what_it_leads_to(box, ssh):
    fill(box.path("other"), {"in/x": b"", "data/f": b"right"})
    fill(box.path("data"), {"f": b"wrong"})
    box.path("link").symlink_to("other/in")
    done = run(box, ssh, "--hosts=b", "--stage=link/../data", *SHOW, cwd=box.dir)
    assert done.code == 0 and (copy(box, "b") / "f").read_bytes() == b"right", done


def test_stage_dir_is_a_folder_of_each_host(box, ssh):
    source = tree(box)
    box.path("fast").mkdir()
    done = run(box, ssh, "--hosts=b", f"--stage={source}", f"--stage-dir={box.path('fast')}", *SHOW)
    assert done.code == 0 and not copies(box, "b"), done
    (place,) = box.path("fast").glob("ctrun-stage-*/*/data")
    assert seen(place) == seen(source)


def test_stage_remove_leaves_nothing(box, ssh):
    source = tree(box)
    done = run(box, ssh, "--hosts=localhost,b", f"--stage={source}", "--stage-remove",
               "--no-python", "sh", "-c", 'ls "$CTRUN_STAGE_DIR"')
    assert done.code == 0 and sorted(done.out.splitlines()) == ["b: data", "localhost: data"], done
    for host in "ab":
        assert not list(disk(box, host).glob("ctrun-stage-*/*")), host


def start_user(box, ssh, source):
    """A run that uses the copy until the test writes to the FIFO `go`."""
    script = 'cd "$CTRUN_STAGE_DIR"; echo up; read x < "$0"; cat data/a/b/c/deep'
    os.mkfifo(box.path("go"))
    started = start(box, ssh, "--hosts=b", f"--stage={source}", "--no-python", "sh", "-c", script,
                    str(box.path("go")))
    ctrun.wait_until(lambda: "up" in started.out, lambda: str(started))
    return started


def test_a_copy_in_use_is_shared_when_it_is_the_same_and_never_changed(box, ssh):
    source = tree(box)
    first = start_user(box, ssh, source)
    words = ["--hosts=b", f"--stage={source}", *SHOW]
    same = run(box, ssh, *words)
    assert same.code == 0 and len(copies(box, "b")) == 1, same
    (source / "a/b/c/deep").write_bytes(b"other")
    other = run(box, ssh, *words)
    assert other.code == 0 and len(copies(box, "b")) == 2, other
    box.path("go").write_text("go\n")
    assert first.wait() == 0 and "deep" in first.out and "other" not in first.out, first
    old, new = copies(box, "b")
    assert (old / "a/b/c/deep").read_bytes() == b"deep"
    assert seen(new) == seen(source)


def large(box):
    source = box.path("data")
    fill(source, {"large": os.urandom(40 * MEGABYTE)})
    return source


def test_a_signal_while_staging_ends_it_and_the_next_run_goes_on(box, ssh):
    source = large(box)
    started = start(box, ssh, "--hosts=b,slow1", f"--stage={source}", "--hosts-timeout=60", *SHOW)

    def has_begun():
        parts = list(disk(box, "slow1").glob("ctrun-stage-*/*.parts/*"))
        return parts and parts[0].stat().st_blocks * 512 >= 9 * MEGABYTE

    ctrun.wait_until(has_begun, lambda: str(started))
    started.signal(signal.SIGINT)
    assert started.wait() == 130 and not copy(box, "slow1").joinpath("large").exists(), started
    box.wait_gone()
    # The same disk, and a connection that passes everything.
    disk(box, "slow1").rename(disk(box, "c2"))
    done = run(box, ssh, "--hosts=c2", f"--stage={source}", *SHOW)
    assert done.code == 0 and seen(copy(box, "c2")) == seen(source), done
    assert staged_events(box)[0]["sent_bytes"] <= 32 * MEGABYTE


def test_staging_that_does_not_move_ends_with_the_hosts_that_it_waits_for(box, ssh):
    done = run(box, ssh, "--hosts=b,slow1", f"--stage={large(box)}", "--hosts-timeout=6", *SHOW)
    assert done.code == 1, done
    (error,) = errors(done)
    assert "error[E_STAGE]: --stage: no progress for 6 s" in error, done
    assert error.endswith("files are still missing on: slow1") or error.endswith(": b,slow1"), done
    box.wait_gone()


def test_the_only_host_may_be_lost_when_it_has_almost_everything(box, ssh):
    source = box.path("data")
    fill(source, {"large": os.urandom(20 * MEGABYTE + 300_000)})
    started = start(box, ssh, "--hosts=slow1", f"--stage={source}", *SHOW)

    def has_much():
        parts = list(disk(box, "slow1").glob("ctrun-stage-*/*.parts/*"))
        return parts and parts[0].stat().st_blocks * 512 >= 19 * MEGABYTE

    ctrun.wait_until(has_much, lambda: str(started))

    def is_over():
        for pid in box.pids():  # all of that host, and what keeps its connection open
            if (ctrun.environment(pid).get("FAKE_HOST") == "slow1"
                    or ctrun.cmdline(pid) == ["sleep", "600"]):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        return started.code is not None

    ctrun.wait_until(is_over, lambda: str(started))
    assert started.wait() == 75 and "slow1 is lost" in started.err, started
    box.wait_gone()


def test_hosts_that_share_a_disk_have_a_copy_each(box, ssh):
    source = tree(box)
    box.path("one").mkdir()
    words = ["--hosts=a,b,c", f"--stage={source}", f"--stage-dir={box.path('one')}", *SHOW]
    for _ in range(2):
        done = run(box, ssh, *words)
        assert done.code == 0, done
        places = list(box.path("one").glob("ctrun-stage-*/*/data"))
        assert len(places) == 3, done
        for place in places:
            assert seen(place) == seen(source)


def errors(done):
    return [line for line in done.err.splitlines() if "error[" in line]


@pytest.mark.parametrize("words, code, text", [
    (["--stage=nothing"], 1, "error[E_STAGE]: --stage=nothing: No such file or directory"),
    (["--stage=data,,x"], 2, "an empty path"),
    (["--stage=/"], 2, "is the root folder"),
    (["--stage=root"], 2, "is the root folder"),
    (["--stage=data,./data"], 2, "would both become 'data'"),
    (["--stage=data", "--stage-dir=here"], 2, "--stage-dir=here: must be an absolute path"),
])
def test_what_cannot_be_staged_is_one_line_before_anything_starts(box, ssh, words, code, text):
    tree(box)
    box.path("root").symlink_to("/")
    done = run(box, ssh, "--hosts=a,b", *words, *SHOW, cwd=box.dir)
    assert done.code == code, done
    assert len(errors(done)) == 1 and text in errors(done)[0], done
    assert not box.path("calls").exists()


@pytest.mark.parametrize("env", [{}, {"CTRUN_STAGE": "data"}])
def test_without_hosts_it_says_what_does_it(box, env):
    words = [] if env else ["--stage=data"]
    done = box.ctrun(*words, "--no-python", "true", env=env)
    assert done.code == 2 and "needs --hosts" in done.err and "sbcast" in done.err, done


def test_a_socket_in_the_folder_is_named(box, ssh):
    source = tree(box)
    os.mkfifo(source / "a/pipe")
    done = run(box, ssh, "--hosts=a,b", f"--stage={source}", *SHOW)
    assert done.code == 1, done
    assert errors(done) == ["ctrun: error[E_STAGE]: --stage: data/a/pipe: is neither a file nor a "
                            "folder nor a symbolic link"]
    box.wait_gone()


def test_a_host_without_a_disk_is_named_and_with_a_range_the_others_go_on(box, ssh):
    source = tree(box)
    words = ["--hosts=b,nodisk,c", f"--stage={source}"]
    done = run(box, ssh, *words, *SHOW)
    assert done.code == 1, done
    (error,) = errors(done)
    assert error.startswith("ctrun: error[E_STAGE]: nodisk: ") and "disk/nodisk" in error, done
    box.wait_gone()
    done = run(box, ssh, *words, "--nnodes=2:3", "--rdzv-conf=last_call_timeout=1", *SHOW)
    assert done.code == 0, done
    assert seen(copy(box, "c")) == seen(source)


def is_ours(folder):
    info = folder.stat()
    return info.st_uid == os.getuid() and stat.S_IMODE(info.st_mode) == 0o700


@pytest.mark.parametrize("squat", ["mkdir -m 777 %s; touch %s/mine", "mkdir -m 700 %s",
                                   "touch %s", "ln -s /etc %s"])
@other_user.needed
def test_a_squatter_of_the_folder_costs_another_folder(box, ssh, squat):
    """Its name can be guessed. The second run finds the other folder again and sends nothing;
    folders of other users with such a name are not used."""
    source, place = tree(box), disk(box, "b")
    name = place / f"ctrun-stage-{os.getuid()}"
    box.dir.chmod(0o755)
    place.chmod(0o1777)
    code = "import os, sys; sys.exit(os.system(sys.argv[1]))"
    other_user.run(box, code, squat.replace("%s", str(name)))
    other_user.run(box, code, squat.replace("%s", f"{name}-abcdef"))
    for _ in range(2):
        done = run(box, ssh, "--hosts=b", f"--stage={source}", *SHOW)
        assert done.code == 0, done
        [there] = [path for path in place.glob("ctrun-stage-*-*") if not path.name.endswith("-abcdef")]
        assert is_ours(there) and seen(copy(box, "b")) == seen(source), list(place.glob("*"))
        assert str(there) in done.out, done
    assert [event["sent_bytes"] > 0 for event in staged_events(box)] == [True, False]


def test_a_host_that_falls_silent_is_named(box, ssh):
    source = tree(box)
    started = start(box, ssh, "--hosts=b,c,mute1", "--nnodes=2:3", f"--stage={source}",
                    "--hosts-timeout=15", *SHOW)
    box.wait_event("host_state", state="ready", host="c")
    for pid in box.pids():
        if ctrun.environment(pid).get("FAKE_HOST") == "c":
            os.kill(pid, signal.SIGSTOP)
    assert started.wait() == 1, started
    assert errors(started)[-1].endswith("error[E_STAGE]: --stage: nothing received from c for 15 s"), started
    for pid in box.pids():
        with contextlib.suppress(ProcessLookupError):  # some are about to end
            os.kill(pid, signal.SIGCONT)
    box.wait_gone()
