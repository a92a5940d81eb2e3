# SPDX-License-Identifier: Apache-2.0
"""Another user of the same machine can do nothing to a run."""
import json
import os
import shutil
import signal
import socket
import sys

import ctrun
import launch
import pytest
import other_user

sys.path.append(str(ctrun.ROOT / "tests" / "server"))
import fake_agent

pytestmark = other_user.needed


def c10d(port, *more):
    return ["--nnodes=1", "--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{port}",
            "--rdzv-conf=is_host=1", *more]


TRY_AGAIN = """
while [ $TORCHELASTIC_RESTART_COUNT = 0 ]; do [ -e "$GO" ] && exit 1; sleep 0.05; done
ulimit -Sn
"""


@pytest.mark.parametrize("text", ["", "GET /status HTTP/1.1\r\n\r\n"])
def test_idle_connections_do_not_keep_workers_from_starting_again(box, text):
    """Each uses a descriptor, and the limit is low: ulimit -n 200."""
    port = launch.free_port()
    run = box.start("prlimit", "--nofile=150:200", ctrun.program("ctrun"),
                    *c10d(port, "--nproc-per-node=4", "--max-restarts=1", "--open-files=keep",
                          "sh", "-c", TRY_AGAIN),
                    env={"GO": str(box.path("go")), "CTRUN_TOKEN": "a token of 32 letters, for tests"})
    box.wait_workers(4)
    others = other_user.hold(box, port, 400, text)
    box.write("go", "")
    assert run.wait() == 0, run
    assert run.out.split().count("150") == 4, "workers have the user's own limit"
    others.signal(9)
    others.wait()


KNOCK = """
import socket, sys
refused = 0
for _ in range(1000):
    with socket.socket(socket.AF_UNIX) as s:
        try:
            s.connect(sys.argv[1])
        except PermissionError:
            refused += 1
print(refused)
"""


def test_other_users_do_not_reach_the_worker_socket(box):
    box.dir.chmod(0o755)
    run = box.start_ctrun("--standalone", "sleep", "600", env={"LOGLEVEL": "DEBUG"})
    [pid] = box.wait_workers(1).values()
    name = ctrun.environment(pid)["CTRUN_AGENT_SOCKET"]
    assert os.stat(name).st_mode & 0o777 == 0o600
    assert other_user.run(box, KNOCK, name) == "1000\n"
    assert "worker socket" not in run.err, run
    run.signal(15)
    run.wait()
    assert not os.path.exists(name)


ASK = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1])), 10) as sock:
    sock.sendall(bytes.fromhex(sys.argv[2]))
    if sys.argv[3:]:
        sock.shutdown(socket.SHUT_WR)
    print(ascii(sock.recv(1000)))
"""


@pytest.mark.parametrize("auth, is_let_in", [("auto", False), ("none", True)])
def test_without_a_token_no_other_user_of_this_machine_joins_a_run(box, auth, is_let_in):
    port = launch.free_port()
    run = box.start_ctrun("--nnodes=1:2", f"--rdzv-endpoint=localhost:{port}", "--rdzv-id=r", f"--auth={auth}",
                          "--rdzv-conf=last_call_timeout=60", "sleep", "600")
    box.wait_event("agent_state", to="joining")
    hello = fake_agent.hello_frame(run="r", min_nodes=1)
    answer = other_user.run(box, ASK, str(port), hello.hex())
    assert ("you are another user of its machine" in answer) != is_let_in, answer
    if not is_let_in:  # who has closed his end has no user that the kernel tells
        for _ in range(20):
            answer = other_user.run(box, ASK, str(port), hello.hex(), "close")
            assert "you are another user of its machine" in answer, answer
    with socket.create_connection(("127.0.0.1", port), 10) as ours:  # root's
        ours.sendall(hello)
        assert ours.recv(1000)[3] == fake_agent.WELCOME
    ctrun.stop(run)


# The programs, $2, may lie below /tmp.
IN_A_SQUATTED_TMP = """
mount --bind "$2" /mnt
mount -t tmpfs -o mode=1777 none /tmp
setpriv --reuid=$1 --regid=65534 --clear-groups mkdir /tmp/ctrun-$(id -u)
cd /mnt
TMPDIR="$3" ./ctrun --standalone sh -c 'echo "$CTRUN_AGENT_SOCKET"; touch /tmp/up; sleep 600' &
until [ -e /tmp/up ] && ./ctrunctl status 2>&1; do kill -0 $! || exit 1; sleep 0.1; done
ls -d /tmp/*
kill $!; wait
"""


def test_a_squatter_of_the_folder_below_tmp_costs_another_folder(box):
    """In a /tmp of its own. ctrunctl still finds the run, and the worker its agent."""
    ctrun.needs_mounts()
    run = box.run("unshare", "-m", "sh", "-c", IN_A_SQUATTED_TMP, "sh", str(other_user.UID),
                  os.path.dirname(ctrun.program("ctrun")), "/var/tmp",
                  env={"CTRUN_CONTROL_DIR": "", "XDG_RUNTIME_DIR": "", "CTRUN_EVENTS": ""})
    ours = f"/tmp/ctrun-{os.geteuid()}-"
    assert "\nrun " in run.out and run.out.count(ours) >= 2, run
    assert "belongs to" not in run.out.partition("\nrun ")[2], run
    assert "control socket" not in run.err, run


PING = """
import socket, struct, sys
for source in ["127.0.0.1", "127.0.0.9"]:
    try:
        with socket.create_connection(("127.0.0.1", int(sys.argv[1])), 10, (source, 0)) as sock:
            sock.sendall(b"\\x00\\xce\\xf7\\x85\\x3c\\x0d" + struct.pack("<I", 7))
            print("pong" if sock.recv(4) == struct.pack("<I", 7) else "refused")
    except ConnectionError:
        print("refused")
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as sock:  # and goes at once
    sock.sendall(b"\\x00\\xce\\xf7\\x85\\x3c\\x01" + struct.pack("<Q1sQ1s", 1, b"k", 1, b"v"))
"""
COUNT_KEYS = """
import socket, struct, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1])), 10) as sock:
    sock.sendall(b"\\x00\\xce\\xf7\\x85\\x3c\\x07")
    print(struct.unpack("<Q", sock.recv(8))[0])
"""


@pytest.mark.parametrize("is_static", [False, True])
@pytest.mark.parametrize("access, answer, keys", [("members", "refused", 0), ("any", "pong", 1)])
def test_the_workers_store_takes_no_other_user_of_this_machine(box, is_static, access, answer, keys):
    where = f"--master-port={launch.free_port()}" if is_static else "--standalone"
    run = box.start_ctrun(where, f"--store-access={access}", "--nproc-per-node=2", "sleep", "600")
    port = ctrun.environment(next(iter(box.wait_workers(2).values())))["MASTER_PORT"]
    assert other_user.run(box, PING, port).split() == [answer] * 2, run
    ours = box.run(sys.executable, "-c", COUNT_KEYS, port)
    assert ours.out == f"{keys}\n", ours
    run.signal(15)
    run.wait()  # now all that it printed is here
    assert run.err.count("it is another user's process on this machine") == (access == "members"), run


def test_who_looks_whether_the_store_is_open_is_called_no_other_user(box):
    """When a connection is closed before it is accepted, its user is not known."""
    run = box.start_ctrun("--standalone", "--nproc-per-node=2", "sleep", "600")
    worker = next(iter(box.wait_workers(2).values()))
    port = int(ctrun.environment(worker)["MASTER_PORT"])
    agent = ctrun.parent_of(worker)
    os.kill(agent, signal.SIGSTOP)
    for _ in range(20):
        socket.create_connection(("127.0.0.1", port)).close()
    os.kill(agent, signal.SIGCONT)
    assert box.run(sys.executable, "-c", COUNT_KEYS, str(port)).out == "0\n"
    assert "refused" not in run.err, run
    run.signal(15)
    run.wait()


LIAR = """
import os, socket, struct, sys
code, text = int(sys.argv[2]), sys.argv[3].encode()
with socket.socket(socket.AF_UNIX) as listener:
    listener.bind(sys.argv[1] + ".new")
    listener.listen()
    os.rename(sys.argv[1] + ".new", sys.argv[1])
    while True:
        client = listener.accept()[0]
        client.recv(1000)
        body = struct.pack("<iBI", code, 1, len(text)) + text
        client.sendall(bytes([0xC7, 0x52, 8, 49]) + struct.pack("<I", len(body)) + body)
        client.close()
"""
AS_ROOT = """
set -e
mount -t tmpfs none /run
mkdir -p /run/user/$1
chown $1 /run/user/$1
as="setpriv --reuid=$1 --regid=65534 --clear-groups"
cd /run/user/$1
$as mkdir -m 700 ctrun
if [ "$2" = link ]; then
    $as ln -s "$3" ctrun/job-1.sock
else
    $as "$4" -I -c "$5" ctrun/job-1.sock "$2" "$3" &
    until [ -S ctrun/job-1.sock ]; do kill -0 $!; sleep 0.05; done
fi
shift 5
set +e
"$@"
code=$?
[ -z "$!" ] || kill $!
exit $code
"""


def ask_as_root(box, what, text, *verb):
    """Runs ctrunctl as root for another user, whose socket answers with this code and text, or is a
    link."""
    ctrun.needs_mounts()
    return box.run("unshare", "-m", "sh", "-c", AS_ROOT, "sh", str(other_user.UID), what, text, sys.executable,
                   LIAR, ctrun.program("ctrunctl"), *verb, f"--user={other_user.UID}")


EVIL = "\x1b]0;owned\x07"
LIES = {"run_id": EVIL, "host": EVIL, "state": EVIL, "master_addr": EVIL, "pid": 1, "guard_pid": 1, "generation": 1,
        "why": f"1\n{EVIL}\u009b2J\n", "stacks": EVIL,
        "workers": [{"rank": 0, "state": EVIL, "cause": EVIL, "role": EVIL, "stdout": f"/dev/null/{EVIL}"}]}


@pytest.mark.parametrize("verb", [["status"], ["status", "--json"], ["why"], ["why", "--json"], ["stacks"], ["logs"],
                                  ["stop"]])
@pytest.mark.parametrize("is_raw", [False, True])
def test_root_is_shown_no_escape_of_another_users_agent(box, verb, is_raw):
    text = json.dumps(LIES, ensure_ascii=not is_raw)
    for escape in ("\\u001b", "\\u0007") if is_raw else ():
        text = text.replace(escape, json.loads(f'"{escape}"'))
    answer = ask_as_root(box, "0", text, *verb)
    assert "owned" in answer.out + answer.err, answer
    assert not {"\x1b", "\x07", "\x9b"} & {*answer.out, *answer.err}, answer


def test_root_is_shown_no_escape_of_another_users_refusal(box):
    answer = ask_as_root(box, "-5", EVIL, "status")
    assert "?]0;owned?" in answer.err and answer.code == 1, answer


def test_root_is_shown_no_file_of_his_own_as_the_log_of_another_user(box):
    box.write("secret", "of root alone\n")
    lies = {"run_id": "job", "workers": [{"rank": 0, "stdout": str(box.path("secret"))}]}
    answer = ask_as_root(box, "0", json.dumps(lies), "logs")
    assert answer.code == 1 and "Operation not permitted" in answer.err and not answer.out, answer


def test_root_stops_no_run_of_his_own_by_another_users_link(box):
    ctrun.needs_mounts()
    run = box.start_ctrun("--standalone", "sleep", "600")
    box.wait_workers(1)
    [path] = box.path("ctl").glob("*.sock")
    answer = ask_as_root(box, "link", str(path), "stop")
    assert answer.code == 1 and "a process of user 0 answers there" in answer.err, answer
    assert not box.events("control_request"), run
    run.signal(15)
    run.wait()


@pytest.mark.parametrize("verb", [["list"], ["set", "k", "v"]])
def test_root_is_sent_to_no_store_of_his_own_by_another_users_agent(box, verb):
    ctrun.needs_mounts()
    run = box.start_ctrun("--standalone", "--store-access=any", "sleep", "600")
    port = int(ctrun.environment(box.wait_workers(1)[0])["MASTER_PORT"])
    lies = {"run_id": "job", "state": "running", "generation": 1, "master_addr": "127.0.0.1", "master_port": port}
    answer = ask_as_root(box, "0", json.dumps(lies), "kv", *verb)
    assert answer.code == 1 and not answer.out, answer
    assert f"user 0 serves the store, not user {other_user.UID}" in answer.err, answer
    assert box.run(sys.executable, "-c", COUNT_KEYS, str(port)).out == "0\n"
    run.signal(15)
    run.wait()


SERVE = """
import socket
with socket.socket() as listener:
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    print(listener.getsockname()[1], flush=True)
    client = listener.accept()[0]
    client.settimeout(60)
    seen = b""
    while True:
        seen += client.recv(1000)
        if seen[:6].endswith(b"\\x0d") and len(seen) >= 10:
            client.sendall(seen[6:10])
            seen = seen[:5] + seen[10:]
        if seen[5:6] == b"\\x11":
            client.sendall(bytes(8))
            break
    client.recv(1000)
"""


def test_root_uses_the_store_that_the_named_user_serves(box):
    ctrun.needs_mounts()
    store = other_user.start(box, SERVE)
    ctrun.wait_until(lambda: store.out.endswith("\n"), lambda: str(store))
    status = {"run_id": "job", "state": "running", "generation": 1, "master_addr": "127.0.0.1",
              "master_port": int(store.out)}
    answer = ask_as_root(box, "0", json.dumps(status), "kv", "list")
    assert answer.code == 0 and not answer.out + answer.err, answer
    assert store.wait() == 0, store


LOOK = """
import os, sys
for path in sys.argv[1:]:
    try:
        os.listdir(path) if os.path.isdir(path) else open(path).read()
        print("read", path)
    except PermissionError:
        print("refused")
"""


def test_other_users_read_neither_logs_nor_events(box):
    """With umask 0 too."""
    box.dir.chmod(0o755)
    logs = box.path("logs")
    run = box.run("sh", "-c", 'umask 0; exec "$@"', "sh", ctrun.program("ctrun"), "--standalone",
                  f"--log-dir={logs}", "--redirects=3", "sh", "-c", "echo secret")
    assert run.code == 0, run
    made = [path for path in logs.rglob("*")] + [logs, box.events_path]
    assert any(path.name == "stdout.log" for path in made)
    assert {oct(path.stat().st_mode & 0o777) for path in made} <= {"0o700", "0o600"}
    seen = other_user.run(box, LOOK, str(box.events_path), str(logs))
    assert seen == "refused\nrefused\n"


TOKEN = "0f3a-a-token-that-must-not-be-in-a-core-file-77b1"


def cores(box, pids):
    """Their core files, written by gdb with the same content as the kernel's."""
    for pid in pids:
        made = box.run("gcore", "-o", str(box.path("core")), str(pid), seconds=120)
        assert made.code == 0, made
        yield box.path(f"core.{pid}").read_bytes()


@pytest.mark.skipif(not shutil.which("gcore"), reason="gdb is not installed")
@pytest.mark.plain("a core file with the shadow memory of a sanitizer fills the disk")
def test_core_files_do_not_have_the_token(box):
    """The core files of guard, agent and a ctrund, during a run."""
    secret = {"CTRUN_TOKEN": TOKEN}
    daemon = box.start(ctrun.program("ctrund"), "--listen=127.0.0.1:0", env=secret)
    line = ctrun.wait_until(lambda: daemon.out if "\n" in daemon.out else None, f"a port: {daemon}")
    run = box.start_ctrun("--nnodes=1:2", f"--rdzv-endpoint={line.split()[-1]}", "--encrypt",
                          "--rdzv-conf=last_call_timeout=1,is_host=0",
                          "sleep", "600", env=secret)
    box.wait_workers(1)
    agent = box.events("agent_state")[0]["pid"]
    found = [TOKEN.encode() in core for core in cores(box, [daemon.pid, run.pid, agent])]
    assert found == [False] * 3
    for it in (run, daemon):
        it.signal(15)
        it.wait()
