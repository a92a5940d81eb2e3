# SPDX-License-Identifier: Apache-2.0
"""--rdzv-backend=etcd, several launchers of one job and a real etcd on this machine."""
import http.server
import itertools
import json
import re
import threading

import ctrun
import etcd_job
import pytest
from etcd import USER, make_ca
from etcd_job import job  # noqa: F401
from proxy import Proxy

AUTH, RETRY, USAGE = 77, 75, 2  # exit codes


def only_line(run):
    lines = run.err.splitlines()
    assert len(lines) == 1, run
    return lines[0]


# ---- What can not work is an error of one line


def test_an_etcd_that_nobody_serves_is_one_line_and_a_retry(box):
    run = box.ctrun("--rdzv-backend=etcd", "--rdzv-endpoint=127.0.0.1:1,127.0.0.1:2",
                    "--rdzv-id=job", "--rdzv-conf=read_timeout=1", "true")
    assert run.code == RETRY, run
    line = only_line(run)
    assert line.startswith("ctrun: error[E_UNREACHABLE]: no etcd answers at "
                           "127.0.0.1:1, 127.0.0.1:2: "), run
    assert not box.events("worker_started")


def test_a_wrong_password_is_one_line_that_names_the_user(box, etcd):
    server = etcd(auth=True)
    wrong = box.write("wrong", "guess\n")
    run = box.ctrun(*server.options(password_file=wrong), "true")
    assert run.code == AUTH, run
    assert only_line(run) == ("ctrun: error[E_AUTH]: etcd refuses user 'ctrun': etcdserver: "
                              "authentication failed, invalid user ID or password"), run
    assert "guess" not in run.err


def run_with(box, answer, conf):
    """Runs ctrun with a server that sends answer(n, over) for its n-th request; `over` is set when
    ctrun has ended. Returns run and address."""
    numbers, over = itertools.count(1), threading.Event()

    class Server(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            body = answer(next(numbers), over).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            at = f"127.0.0.1:{server.server_port}"
            return box.ctrun("--rdzv-backend=etcd", f"--rdzv-endpoint={at}", "--rdzv-id=job",
                             f"--rdzv-conf={conf}", "true"), at
        finally:
            over.set()
            server.shutdown()
            thread.join()


def test_a_last_try_without_time_does_not_hide_why_the_one_before_failed(box):
    def answer(number, over):
        if number > 1:
            over.wait(60)
        return "no etcd"

    run, at = run_with(box, answer, "read_timeout=1")
    assert only_line(run) == (f"ctrun: error[E_UNREACHABLE]: no etcd answers at {at}: "
                              "an answer that is not etcd's: it has another form"), run


def test_a_token_that_is_too_long_is_one_line_that_names_the_etcd(box):
    password = box.write("password", "secret\n")
    run, at = run_with(box, lambda *_: json.dumps({"token": "t" * 2000}),
                       f"user=u,password_file={password}")
    assert run.code == AUTH, run
    assert only_line(run) == f"ctrun: error[E_AUTH]: etcd at {at}: its token is longer than 1999 bytes", run


def test_no_user_where_etcd_wants_one_is_one_line(box, etcd):
    server = etcd(auth=True)
    run = box.ctrun("--rdzv-backend=etcd", f"--rdzv-endpoint={server.endpoint}", "--rdzv-id=job",
                    "true")
    assert run.code == AUTH, run
    assert only_line(run).startswith("ctrun: error[E_AUTH]: etcd refuses requests without a user: "), run


def test_a_key_that_the_user_may_not_touch_is_one_line(box, etcd):
    server = etcd(auth=True)
    run = box.ctrun(*server.options(etcd_prefix="/elsewhere"), "true")
    assert run.code == AUTH, run
    assert "etcdserver: permission denied" in only_line(run)


def test_the_journal_of_another_version_is_left_alone_and_said(box, etcd):
    server = etcd()
    before = "cwhat a newer ctrun wrote there, and needs"
    server.put("/ctrun/job/journal", before)
    run = box.ctrun(*server.options(), "true")
    assert run.code == AUTH, run
    assert "etcd: another version of ctrun wrote the journal of run 'job': install the same" in run.err, run
    assert not box.events("worker_started")
    assert server.keys()["/ctrun/job/journal"] == before.encode()


def test_a_damaged_journal_is_the_reason_why_nobody_serves(box, etcd):
    server = etcd()
    server.put("/ctrun/job/journal", "\x01\x00no frame")
    run = box.ctrun(*server.options(join_timeout=2), "true")
    assert run.code == RETRY, run
    assert run.err.count("etcd: no rendezvous server is found or elected: the journal of the previous server cannot be "
                         "restored: it is damaged, or another version of ctrun wrote it") == 1, run
    assert not box.events("worker_started")


def test_a_wrong_ca_is_one_line_that_says_which_keys_to_check(box, etcd):
    server = etcd(tls=True)
    run = box.ctrun(*server.options(cacert="/etc/ssl/certs/ca-certificates.crt"), "true")
    assert run.code == AUTH, run
    line = only_line(run)
    assert line.startswith("ctrun: error[E_AUTH]: etcd at https://127.0.0.1:"), run
    assert "cacert" in line


def test_a_certificate_that_etcd_refuses_or_misses_is_one_line_and_no_retry(box, etcd):
    server = etcd(tls=True)
    foreign = box.path("foreign")
    foreign.mkdir()
    make_ca(foreign)
    *words, conf = server.options(cert=foreign / "client.pem", key=foreign / "client.key")
    for conf, says in ((conf, "in which this node showed its certificate: "),
                       (re.sub(",(cert|key)=[^,]*", "", conf), "in which this node showed no certificate: ")):
        run = box.ctrun(*words, conf, "true")
        assert run.code == AUTH and says in only_line(run), run
        assert only_line(run).endswith("; check cert and key in --rdzv-conf"), run


def test_an_etcd_with_tls_that_is_asked_without_names_the_key(box, etcd):
    *words, _ = etcd(tls=True).options()
    run = box.ctrun(*words, "--rdzv-conf=read_timeout=1", "true")
    assert run.code == RETRY and "protocol=https" in only_line(run), run


def test_a_file_that_is_no_certificate_is_one_line(box, etcd):
    server = etcd(tls=True)
    run = box.ctrun(*server.options(cacert=box.write("junk", "no certificate\n")), "true")
    assert run.code == USAGE, run
    assert "certificate files for etcd" in run.err


@pytest.mark.parametrize("words, says", [
    (["--rdzv-conf=password=x", "--rdzv-id=job"], "password_file"),
    ([], "--rdzv-id"),
    (["--rdzv-id=a/b"], "without slashes"),
])
def test_what_is_missing_or_dangerous_is_refused(box, words, says):
    run = box.ctrun("--rdzv-backend=etcd", "--rdzv-endpoint=127.0.0.1:1", *words, "true")
    assert run.code == USAGE and says in run.err, run


# ---- Nodes that form a world


def start_nodes(box, server, count, *words, program, nnodes=None, run_id="job", **how):
    conf = how.pop("conf", {})
    return [box.start_ctrun(*server.options(run_id, **conf), f"--nnodes={nnodes or count}",
                            *words, *program, **how) for _ in range(count)]


def test_nodes_meet_through_etcd_with_tls_and_a_user_and_leave_nothing_there(box, etcd, dump):
    server = etcd(tls=True, auth=True)
    runs = start_nodes(box, server, 3, "--nproc-per-node=2", program=[dump.program], env=dump.env)
    assert [run.wait() for run in runs] == [0, 0, 0], runs
    assert sorted(dump.environments()) == [0, 1, 2, 3, 4, 5]
    [ended, *_] = box.events("agent_state", to="ended")  # after this the server may resign before other nodes have left
    assert len([e for e in box.events("election", to="leading") if e["time_ns"] < ended["time_ns"]]) == 1
    ctrun.wait_until(lambda: server.keys() == {}, lambda: f"no key is left: {server.keys()}")


def test_an_etcd_that_answers_late_is_given_more_time(box, etcd):
    """Each connection answers later than the first limit for a member."""
    server = etcd()
    wire = Proxy(server.ports[0])
    wire.mute_s = 1.5
    words = server.options()
    words[1] = f"--rdzv-endpoint=127.0.0.1:{wire.port}"
    run = box.ctrun(*words, "--nnodes=1", "sh", "-c", "echo trained")
    wire.close()
    assert run.code == 0 and run.out == "trained\n", run


def test_etcd_v2_is_another_name_for_the_same(box, etcd, dump):
    server = etcd()
    words = server.options()
    words[0] = "--rdzv-backend=etcd-v2"
    runs = [box.start_ctrun(*words, "--nnodes=2", dump.program, env=dump.env) for _ in (0, 1)]
    assert [run.wait() for run in runs] == [0, 0], runs


def test_torchruns_events_name_etcd(box, etcd):
    run = box.ctrun(*etcd().options(), "--event-log-handler=console", "--nnodes=1", "true")
    assert run.code == 0 and '"rdzv_backend":"etcd"' in run.err, run


def test_two_jobs_share_an_etcd(box, etcd):
    server = etcd()
    runs = [run for job in ("a", "b") for run in start_nodes(
        box, server, 2, run_id=job, program=["sh", "-c", f"echo $RANK of {job}"])]
    assert [run.wait() for run in runs] == [0] * 4, runs
    assert "".join(run.out for run in runs).count("of a") == 2


# ---- An etcd that does not answer for a while


def test_an_etcd_that_is_away_for_long_stops_the_workers_until_it_is_back(box, job):
    run = job("2", 2)
    run.etcd.freeze(0)
    box.wait_event("worker_ended", count=2, cause="stopped")
    run.etcd.thaw(0)
    run.wait_world(2, after=1, seconds=30)
    for node in run.nodes:
        assert node.err.count("no etcd answers") <= 2, node
        assert "nothing was lost" not in node.err, node
    run.finish()


def test_workers_that_end_while_etcd_is_away_have_succeeded(box, job):
    """Without etcd the server may not report the end; nodes that lose their link meanwhile get it
    later."""
    run = job("2", 2)
    run.etcd.freeze(0)
    box.write("done", "")
    box.wait_event("agent_state", count=2, to="succeeded")
    box.wait_event("link_state", count=2, to="down")
    run.etcd.thaw(0)
    assert [node.wait() for node in run.nodes] == [0, 0], run.nodes


def test_users_that_are_added_during_a_run_cost_it_nothing(box, etcd):
    """The tokens are those that a change of the users makes invalid."""
    server = etcd(jwt=True)
    run = etcd_job.Job(box, server, "2", "--max-restarts=2", program=etcd_job.FAILS,
                       user=USER, password_file=server.dir / "password", lease_ttl=60)
    run.start(2)
    generation = run.wait_world(2)
    for change in (server.enable_users, lambda: server.add_user("other")):
        change()
        box.write("fail", "")
        generation = run.wait_world(2, after=generation)  # the restart was written to etcd
    assert len(box.events("election", to="leading")) == 1
    run.finish()
