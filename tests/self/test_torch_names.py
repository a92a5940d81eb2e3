# SPDX-License-Identifier: Apache-2.0
"""torch's tests of DDP, by torch's names, and values that torch's DDP gave ("vector"): each has a
unit test, which is marked with TORCH_TEST(test, "name; name")."""
import re

import ctrun

BUCKETS = "single_limit_single_dtype single_limit_multi_dtype multi_limit_single_dtype multi_limit_multi_dtype " \
          "sparse_buckets"
REDUCER = "single_dtype_single_bucket multi_dtype_single_bucket multi_dtype_multi_bucket forward_backward " \
          "forward_backward_unused_parameters forward_backward_optimizer"
DDP = """find_unused_parameters_kwarg global_local_unused_params_grad global_local_unused_params_grad_with_grad_is_view
    global_local_unused_params_grad_with_static_graph accumulate_gradients_no_sync
    accumulate_gradients_no_sync_grad_is_view accumulate_gradients_no_sync_allreduce_hook no_grad
    multiple_outputs_multiple_backward multiple_outputs_multiple_backward_grad_is_view failure_recovery
    param_layout_mismatch_error sync_module_states save_load_checkpoint noop_comm_hook ddp_comm_hook_allreduce_hook
    ddp_comm_hook_allreduce_with_then_hook ddp_comm_hook_future_passing_cpu fp16_compress_wrapper bf16_compress_wrapper
    powersgd_ddp_comm_hook ddp_comm_hook_register_just_once ddp_invalid_comm_hook_init ddp_uneven_inputs
    ddp_uneven_inputs_buffers ddp_uneven_input_exception ddp_join_model_equivalence zero_join broadcast_coalesced
    ddp_logging_data ddp_ignore_params_arg gradient_parity parameter_digests"""
GROUP = "group_timeout group_abort_while_waiting group_peer_killed_during_all_reduce group_late_joiner " \
        "group_wrong_size_on_one_rank group_two_groups_interleaved"
# Not here: "device_ids on CPU". There is no such argument.
VECTORS = ["bucket_assignment", "sampler", "sampler_60000_world2_rank1_seed1_epoch3", "average",
           "no_sync then sync, grads accumulate", "find_unused_parameters",
           "find_unused_parameters, gradient_as_bucket_view", "unused without the flag: error at the next forward",
           "static_graph with an unused parameter", "static_graph, unused becomes used",
           "join, divide by initial world size", "join, divide by the ranks still active",
           "join, throw_on_early_termination", "broadcast_buffers", "constructor broadcasts rank 0",
           "parameter count differs", "nothing requires grad", "logging data of the MNIST network after 12 steps",
           "time keys in the logging data (nanoseconds)", "comm hooks", "parameter shape differs"]


def named():
    """Name -> the tests that are marked with it."""
    found = {}
    for path in sorted((ctrun.ROOT / "tests/unit/worker_sdk").rglob("*_test.c")):
        for test, names in re.findall(r'TORCH_\w*TEST\(\s*(\w+),(?:\s*\d+,)?((?:\s*"[^"]*")+)\)', path.read_text()):
            for name in "".join(re.findall(r'"([^"]*)"', names)).split("; "):
                found.setdefault(name, []).append(f"{path.name}: {test}")
    return found


def test_every_test_of_ddp_that_torch_has_is_one_of_ours():
    wanted = {*BUCKETS.split(), *REDUCER.split(), *DDP.split(), *GROUP.split(), *(f"vector {name}" for name in VECTORS)}
    found = named()
    assert set(found) == wanted, f"without a test: {sorted(wanted - set(found))}; unknown: {sorted(set(found) - wanted)}"
    twice = {name: tests for name, tests in found.items() if len(tests) > 1}
    assert not twice, f"by one test each: {twice}"
