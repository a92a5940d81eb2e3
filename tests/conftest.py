# SPDX-License-Identifier: Apache-2.0
"""Fixtures of all system tests, and how their skips become visible to ctest."""
import os
import pathlib
import signal
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))

import ctrun  # noqa: E402
import etcd as etcd_server  # noqa: E402
import lab as hosts  # noqa: E402

SKIPPED = 77  # tests/CMakeLists.txt: SKIP_RETURN_CODE
MARKS = {"plain": "plain(reason): sanitizers get in its way", "both": "both: it shows more without sanitizers"}

# What nohup and a shell's & ignore would be ignored by all that a test starts.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config):
    for text in MARKS.values():
        config.addinivalue_line("markers", text)


def pytest_collection_modifyitems(config, items):
    """With CTRUN_TEST_REST, the build without sanitizers runs only what the other one cannot show."""
    marked = [item for item in items if any(item.get_closest_marker(mark) for mark in MARKS)]
    if ctrun.SLOW > 1:
        for item in marked:
            for mark in item.iter_markers("plain"):
                item.add_marker(pytest.mark.skip(reason=mark.args[0]))
    elif "CTRUN_TEST_REST" in os.environ and "CTRUN_TEST_SANITIZED" in os.environ:
        config.hook.pytest_deselected(items=[item for item in items if item not in marked])
        items[:] = marked


@pytest.fixture
def box():
    """A ctrun.Box; the test fails when it leaves a process or shared memory behind."""
    box = ctrun.Box()
    yield box
    complaints = box.close()
    if complaints:
        pytest.fail("\n".join(complaints))


def booted(make, box, reason):
    """boot(...) is make(box, ...); what was booted ends with the test. Skips for a reason."""
    if reason:
        pytest.skip(reason)
    there = []

    def boot(*how, **options):
        there.append(make(box, *how, **options))
        return there[0]

    yield boot
    for each in there:
        each.down()


@pytest.fixture
def lab(box):
    """lab(N) boots N hosts that end with the test; skips aloud where that is impossible."""
    yield from booted(hosts.Lab, box, hosts.why_not())


@pytest.fixture
def slurm(box):
    """slurm(N, OPTION...) boots N hosts and a real Slurm on them, with options of `slurm-lab up`;
    skips aloud as `lab` does."""
    yield from booted(hosts.Slurm, box, hosts.why_not())


@pytest.fixture
def etcd_lab(box):
    """etcd_lab(6, ["node4", ...], "--tls") boots N hosts and an etcd on some; skips aloud as `lab`
    and `etcd` do."""
    yield from booted(hosts.EtcdLab, box, hosts.why_not() or etcd_server.why_not())


@pytest.fixture
def etcd(box):
    """etcd(members=3, tls=True, auth=True) starts an etcd that ends with the test; skips aloud
    where there is none."""
    yield from booted(etcd_server.Etcd, box, etcd_server.why_not())


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    """A failed test shows what each of its programs printed and which events there were."""
    report = (yield).get_result()
    box = getattr(item, "funcargs", {}).get("box")
    if report.failed and call_is_done(report) and box:
        for run in box.runs:
            report.sections.append((" ".join(run.argv), str(run)))
        events = "\n".join(str(event) for event in box.events())
        report.sections.append(("events", events))


def call_is_done(report):
    return report.when in ("setup", "call")


def pytest_sessionfinish(session, exitstatus):
    """A file whose tests were all skipped is skipped for ctest too; each reason is kept, so that
    scripts/test can print it."""
    stats = session.config.pluginmanager.get_plugin("terminalreporter").stats
    reasons = sorted({f"{report.nodeid}: {report.longrepr[2]}"
                      for report in stats.get("skipped", [])})
    if reasons and "CTRUN_TEST_SKIPS" in os.environ:
        with open(os.environ["CTRUN_TEST_SKIPS"], "a", encoding="utf-8") as file:
            file.write("".join(f"{reason}\n" for reason in reasons))
    if reasons and exitstatus == 0 and not stats.get("passed"):
        session.exitstatus = SKIPPED
