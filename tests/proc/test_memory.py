# SPDX-License-Identifier: Apache-2.0
"""The real OOM killer of the kernel: needs permission to make a memory cgroup."""
import pathlib
import uuid

import pytest

import ctrun
import rendezvous

LIMIT_BYTES = 64 << 20


def parent_group():
    """Our memory cgroup's folder and the name of its limit file."""
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return pathlib.Path("/sys/fs/cgroup/memory" + path), "memory.limit_in_bytes"
    return pathlib.Path("/sys/fs/cgroup" + path), "memory.max"


@pytest.fixture
def small_group():
    parent, limit = parent_group()
    group = parent / f"ctrun-test-{uuid.uuid4().hex[:8]}"
    try:
        group.mkdir()
        (group / limit).write_text(str(LIMIT_BYTES))
    except OSError as error:
        if group.exists():
            group.rmdir()
        pytest.skip(f"no memory cgroup can be made here: {error}")
    yield group
    ctrun.wait_removed(group)


def test_a_worker_that_the_kernel_kills_for_memory_is_told_as_such(node, small_group):
    server = node.serve()
    run = node.box.run(
        "sh", "-c", f'echo $$ > {small_group}/cgroup.procs; exec "$@"', "sh",
        ctrun.program("agent_harness"), "--server", server.address, "--workers", "2", "--",
        ctrun.program("victim"), "@1", "eat", str(LIMIT_BYTES * 2), "@all", "hang")
    assert run.code == 137, run
    failure = server.received("FAILURE")[0]
    assert (failure["rank"], failure["cause"]) == (1, rendezvous.OOM)
    facts = {fact["key"]: fact["text"] for fact in failure["facts"]}
    assert facts[rendezvous.FACT_PROOF].startswith("oom_kill 0 -> 1 in ")
    assert facts[rendezvous.FACT_LIMIT].startswith("64 MiB of cgroup ")
    assert "; rank 1 held " in facts[rendezvous.FACT_LIMIT]


def test_one_that_was_killed_for_memory_and_started_again_proves_nothing_for_others(box, small_group):
    data = box.write("data", "#!/bin/sh\n[ $CTRUN_ROLE_RESTART_COUNT = 0 ] && exec "
                     f"{ctrun.program('victim')} eat {LIMIT_BYTES * 2}\n"
                     "touch again; exec sleep 1000\n", 0o755)
    trainer = box.write("trainer", "#!/bin/sh\nuntil [ -e again ]; do sleep 0.05; done\n"
                        "kill -KILL $$\n", 0o755)
    run = box.run("sh", "-c", f'echo $$ > {small_group}/cgroup.procs; exec "$@"', "sh",
                  ctrun.program("ctrun"), "--standalone", "--role", f"data=1:{data}",
                  "--role", f"trainer=1:{trainer}", "--role-restarts=data=1")
    assert run.code == 137, run
    assert [e["cause"] for e in box.events("worker_ended")][:2] == ["oom", "signal"], run
