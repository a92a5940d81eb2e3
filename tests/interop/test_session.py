# SPDX-License-Identifier: Apache-2.0
"""Workers in C meet through our store and through PyTorch's, as under ctrun and torchrun."""
import contextlib
import json

import ctrun
import pytest
from store_peers import interpreter, our_server, torch_server

RANKS = 3


@pytest.fixture(params=["ours", "debian", "newer"])
def port(box, request):
    with contextlib.ExitStack() as stack:
        if request.param == "ours":
            server = our_server(box)
        else:
            server = torch_server(box, interpreter(request.param), "0")
        yield stack.enter_context(server)


def start(box, port, rank, **more):
    env = {"RANK": rank, "WORLD_SIZE": RANKS, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": RANKS,
           "MASTER_ADDR": "localhost", "MASTER_PORT": port,
           "TORCHELASTIC_USE_AGENT_STORE": "True", **more}
    return box.start(ctrun.program("sdk_rank"), env={k: str(v) for k, v in env.items()})


def test_ranks_share_a_store_and_form_groups(box, port):
    ranks = [start(box, port, rank) for rank in range(RANKS)]
    for rank, run in enumerate(ranks):
        run.wait()
        assert run.code == 0, run
        lines = run.out.splitlines()
        assert lines[0] == "word 11 world deleted 0", run
        assert lines[1] == f"world {rank} of 3 sum 6", run
        # again, in a session beside the first one, and in a later one
        assert lines[-3:] == [f"{name} {rank} of 3 sum 6" for name in ("again", "beside", "later")], run
        if rank != 1:  # the group of ranks 0 and 2
            assert lines[2] == f"outer {rank // 2} of 2 sum 4", run
        assert len(lines) == (5 if rank == 1 else 6), run


def test_a_wrong_variable_is_in_the_error_file(box):
    path = box.path("error.json")
    run = start(box, 1, 0, WORLD_SIZE="many", TORCHELASTIC_ERROR_FILE=path)
    run.wait()
    assert run.code == 1, run
    message = json.loads(path.read_text())["message"]
    assert message["message"].startswith("E_BAD_ENVIRONMENT: environment: WORLD_SIZE=many: ")
    assert message["extraInfo"]["py_callstack"] == message["message"]
    assert message["extraInfo"]["timestamp"].isdigit()
