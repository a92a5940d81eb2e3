# SPDX-License-Identifier: Apache-2.0
"""A job with --ha whose nodes are launchers on this machine."""
import os
import pathlib
import shutil

import ctrun
import etcd_job
import launch
import pytest

ENDPOINT_HOST = "127.0.0.1"


class Job(etcd_job.Job):
    """Nodes of one job; the first one that is started serves."""

    def __init__(self, box, nnodes, *options, ha="--ha", program=etcd_job.WORK, env=None):
        self.box = box
        self.env = {"TMPDIR": str(box.dir), **(env or {})}
        port = launch.free_port()
        self.words = [ha, "--rdzv-backend=c10d", f"--rdzv-endpoint={ENDPOINT_HOST}:{port}",
                      "--rdzv-id=job", f"--nnodes={nnodes}", *options, *program]
        self.nodes = []

    def start(self, count):
        for _ in range(count):
            self.nodes.append(self.box.start_ctrun(*self.words, env=self.env))

    def wait_survives(self, loss=1, count=1, seconds=40):
        """Waits until the node that serves has emitted for the count-th time that the run survives
        this."""
        return self.box.wait_event("ha_state", count=count, seconds=seconds, to="active",
                                   survives=loss)

    def kill(self, node):
        """Kills agent and guards at once; the keeper then ends etcd, as when a machine is lost."""
        ctrun.kill_at_once(node.pid, *ctrun.below(node.pid))
        node.wait()
        self.nodes.remove(node)

    def status(self, node):
        run = self.box.run(ctrun.program("ctrunctl"), "status", env=self.env)
        return next(text for text in run.out.split("run job: ")[1:] if f"pid {node.pid}," in text)


def children_of(pid):
    """{name: pid} of the guard's children."""
    text = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return {pathlib.Path(f"/proc/{word}/comm").read_text().strip(): int(word)
            for word in text.split()}


def etcds(box):
    """Processes of etcd whose folder is the box's."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and entry.joinpath("comm").read_text() == "etcd\n" and \
                    os.readlink(entry / "cwd").startswith(str(box.dir)):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def folders(box):
    return sorted(box.dir.glob("ctrun-ha-*"))


def assert_nothing_is_left(box):
    ctrun.wait_until(lambda: not etcds(box) and not folders(box),
                     lambda: f"all gone: {etcds(box)} {folders(box)}", 10)


@pytest.fixture
def ha_job(box):
    """ha_job(NNODES, nodes) starts that many nodes and waits for their first world."""
    if not shutil.which("etcd") or not shutil.which("openssl"):
        pytest.skip("no etcd (Debian: etcd-server) or no openssl")

    def begin(nnodes, nodes, *options, **how):
        made = Job(box, nnodes, *options, **how)
        made.start(nodes)
        made.wait_world(nodes)
        return made

    yield begin
    assert_nothing_is_left(box)
