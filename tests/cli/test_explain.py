# SPDX-License-Identifier: Apache-2.0
"""ctrunctl explain, and the user's own rules (--failure-rules)."""
import json
import re

import ctrun
import pytest

RULES = '''words = "GPFS: Stale NFS"   # the site's
likely = "the shared file system lost its server"
do = "mmlsmount; tell the site"

words = "odd thing"
likely = 'an odd thing happened'
'''
LOG = """step 1 loss 2.3
[rank3]: recv: Connection reset by peer
NVRM: Xid (PCI:0000:3b:00): 79, pid=812, GPU has fallen off the bus.
step 2
gpu3: RuntimeError: CUDA error: out of memory
[rank4]: recv: Connection reset by peer
gpu3: RuntimeError: CUDA error: out of memory
gpu3: RuntimeError: CUDA error: out of memory
"""


def explain(box, *words, **how):
    return box.run(ctrun.program("ctrunctl"), "explain", *words, **how)


def test_each_rule_tells_the_first_line_that_fits_and_consequences_come_last(box):
    run = explain(box, box.write("log", LOG))
    assert run.code == 0, run
    assert run.out.splitlines() == [
        f"{box.path('log')}:3: NVRM: Xid (PCI:0000:3b:00): 79, pid=812, GPU has fallen off the bus.",
        "  likely     : the GPU does not answer on PCIe any more (Xid 79)",
        "  do         : take the node out and power cycle it; check the GPU's power, cooling and slot",
        f"{box.path('log')}:5: gpu3: RuntimeError: CUDA error: out of memory",
        "  likely     : GPU memory is full, not host memory",
        "  do         : smaller batches; is another process on the GPU (nvidia-smi)?",
        "  again      : 2 more lines, the last is 8",
        f"{box.path('log')}:2: [rank3]: recv: Connection reset by peer",
        "  likely     : the other side closed a connection, perhaps because it ended",
        "  do         : look at the rank that ended first",
        "  again      : 1 more line, the last is 6"]


def test_programs_are_told_the_same(box):
    told = json.loads(explain(box, "--json", box.write("log", LOG)).out)
    assert told["lines"] == 8 and [f["line"] for f in told["findings"]] == [3, 5, 2]
    assert told["findings"][1]["count"] == 3 and told["findings"][1]["last_line"] == 8
    assert told["findings"][0]["likely"].startswith("the GPU does not answer") and told["findings"][0]["do"]


def test_a_log_that_says_nothing_known_is_said_to(box):
    run = explain(box, box.write("log", "all is well\n"))
    assert (run.code, run.out) == (1, f"{box.path('log')}: no known error in 1 line\n"), run
    assert json.loads(explain(box, "--json", box.path("log")).out) == {"file": str(box.path("log")), "lines": 1, "findings": []}


def test_standard_input_is_a_log(box):
    log = box.write("log", LOG)
    with open(log, "rb") as file:
        run = explain(box, "-", stdin=file)
    assert run.code == 0 and run.out.startswith("stdin:3: NVRM"), run


def test_a_device_without_an_end_is_no_log(box):
    run = explain(box, "/dev/zero")
    assert run.code == 2 and run.err.endswith("/dev/zero: a device, not a log\n"), run


def test_a_hostile_log_is_shown_as_plain_text(box):
    box.path("log").write_bytes(b"\x1b]0;title\x07\xff CUDA error: out of memory\0hidden\n" + b"x" * 100000 + b"\nodd\n" * 3)
    run = explain(box, box.path("log"))
    assert run.code == 0 and "\x1b" not in run.out and ":1: ?]0;title?? CUDA error: out of memory hidden\n" in run.out, run
    assert json.loads(explain(box, "--json", box.path("log")).out)["lines"] == 7


@pytest.mark.parametrize("how", [["--failure-rules={}"], []])
def test_rules_of_a_file_come_first(box, how):
    rules, log = box.write("rules", RULES), box.write("log", "1\nGPFS: Stale NFS file handle: Connection reset by peer\nodd thing\n")
    run = explain(box, *[word.format(rules) for word in how], log, env={} if how else {"CTRUN_FAILURE_RULES": rules})
    assert run.code == 0 and run.out.splitlines()[1:3] == [
        "  likely     : the shared file system lost its server", "  do         : mmlsmount; tell the site"], run
    assert run.out.splitlines()[3:] == [f"{log}:3: odd thing", "  likely     : an odd thing happened"], run


def test_a_failed_worker_is_explained_by_rules_of_a_file(box):
    run = box.ctrun("--nproc-per-node=2", f"--failure-rules={box.write('rules', RULES)}", "sh", "-c",
                    "echo 'open: GPFS: Stale NFS file handle' >&2; exit 3")
    assert run.code == 3, run
    assert "  likely     : the shared file system lost its server\n" in run.err, run
    assert "  do         : mmlsmount; tell the site\n" in run.err, run


@pytest.mark.parametrize("text, why", [
    ("words = boom!\n", ":1: the rule before has no `likely`"), ("likely = x\n", ":1: `likely` comes before the first `words`"),
    ("words = boom!\nlikely = a\nlikely = b\n", ":3: `likely` is given twice in a rule"),
    ("words = boom!\nwhat = a\n", ":2: `what` is not a name here: want words, likely, do or kind"),
    ("words = boom!\nkind = soft\n", ':2: kind = "soft": want hardware'),
    ("words = boom!\nkind = hardware\nkind = hardware\n", ":3: `kind` is given twice in a rule"),
    ("words = abc\n", ":1: words has 3 bytes; 4 to 300 are possible"), ("words\n", ":1: "),
    ("words = boom!\nlikely = a\n" * 257, ":513: more than 256 rules"),
    ("words = boom!\nlikely = a\n\0\nwords = bang!\nlikely = b\n", ":3: a NUL byte; this is not a text file")])
def test_a_file_of_rules_that_is_wrong_is_refused_with_its_line(box, text, why):
    rules = box.write("rules", text)
    for run in (box.ctrun(f"--failure-rules={rules}", "true"), explain(box, f"--failure-rules={rules}", rules)):
        assert run.code == 2 and "error[E_USAGE]: " in run.err and f"{rules}{why}" in run.err, run


def test_a_file_of_rules_that_cannot_be_read_is_named(box):
    for run in (box.ctrun("--failure-rules=none", "true"), explain(box, "--failure-rules=none", "log")):
        assert run.code == 2 and "--failure-rules=none: No such file or directory" in run.err, run
    run = explain(box, "none")
    assert run.code == 1 and "none: No such file or directory" in run.err, run


def test_a_code_is_explained_where_no_file_has_its_name(box):
    run = explain(box, "E_HANG")
    assert (run.code, run.out) == (0, "E_HANG: a rank is stuck\n  read       : man ctrun-errors, under E_HANG\n"), run
    codes = re.findall(r"^\.It Sy (E_[A-Z_]+)", (ctrun.ROOT / "man/ctrun-errors.7").read_text(), re.M)
    for code in codes:
        run = explain(box, code)
        assert run.code == 0 and run.out.startswith(f"{code}: ") and "unknown error" not in run.out, run
    assert len(codes) > 30 and explain(box, "E_NONE").code == 1
    box.write("E_HANG", LOG)
    assert "Xid 79" in explain(box, "E_HANG", cwd=box.dir).out
