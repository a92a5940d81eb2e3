# SPDX-License-Identifier: Apache-2.0
"""Thousands of agents and store clients against one ctrund. tests/bench/agents.py measures them."""
import json
import pathlib
import re

import ctrun
import pytest

pytestmark = pytest.mark.both
AGENTS = 4096 if ctrun.SLOW <= 1 else 512
CLIENTS = 10000 if ctrun.SLOW <= 1 else 1000


def program(box, name, *arguments):
    run = box.run(ctrun.program(name), *arguments, seconds=60)
    assert run.code == 0, run
    return json.loads(run.out)


def peak_mib(daemon):
    status = pathlib.Path(f"/proc/{daemon.run.pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", status).group(1)) / 1024


def test_thousands_of_agents_get_ranks_with_a_few_messages_each(box, daemon):
    met = program(box, "agents", daemon.port, AGENTS, "job")
    assert met["ranks"] == AGENTS
    # WELCOME, TICKET and START, STOP and the decision, START again
    assert met["messages"] <= 7 * AGENTS
    assert daemon.run.code is None


def test_a_node_that_is_lost_costs_the_others_one_round(box, daemon):
    met = program(box, "agents", daemon.port, 64, "job", "lose")
    assert met["ranks"] == 64  # the program fails unless all 63 others received START


def test_t28_ten_thousand_store_clients_meet_in_less_than_300_mib(box, daemon):
    assert program(box, "store_clients", daemon.port, CLIENTS)["clients"] == CLIENTS
    if ctrun.SLOW <= 1:  # a sanitizer uses more memory
        assert peak_mib(daemon) < 300
