/* SPDX-License-Identifier: Apache-2.0 */
/* nccl_api.h declares the same as NVIDIA's headers. */
#include <string.h>

#include "tests/lib/test.h"
#include "tests/unit/worker_sdk/comm/nccl/nccl_values.h"
#include "worker_sdk/comm/nccl/nccl_api.h"

TEST(numbers_and_layouts_are_nvidias)
{
    const struct nccl_value ours[] = {NCCL_VALUES};
    struct nccl_value theirs[NCCL_VALUES_MAX];

    assert_true(sizeof ours <= sizeof theirs);
    assert_int_equal(nccl_values_theirs(theirs), sizeof ours / sizeof *ours);
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        if (ours[i].value != theirs[i].value)
            fail_msg("%s: %lld, NVIDIA's is %lld", ours[i].name, ours[i].value,
                     theirs[i].value);
}
