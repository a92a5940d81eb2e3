# SPDX-License-Identifier: Apache-2.0
"""PyTorch's unmodified clients with our store, by itself and in ctrund: Debian's torch 1.13
always, and the torch of the interpreter that CTRUN_TEST_TORCH names."""
import store_peers
import pytest


@pytest.fixture(params=["debian", "newer"])
def torch(request):
    return store_peers.interpreter(request.param)


@pytest.fixture(params=[store_peers.our_server, store_peers.ctrund])
def port(box, request):
    with request.param(box) as port:
        yield port


def test_every_operation_of_its_client_works(box, torch, port):
    run = box.run(torch, store_peers.TORCH, "operations", port, seconds=120)
    assert run.code == 0 and "ok" in run.out, run


def test_gloo_meets_and_reduces_through_it(box, torch, port):
    runs = [box.start(torch, store_peers.TORCH, "gloo", port, rank, 3) for rank in range(3)]
    for run in runs:
        assert run.wait(120) == 0 and "ok" in run.out, run
