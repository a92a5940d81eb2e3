/* SPDX-License-Identifier: Apache-2.0 */
/* Which GPUs of the machine a worker may use, from its environment. */
#include "tests/lib/test.h"

#include <errno.h>

#include "launcher/hardware/own_gpu.h"
#include "worker_sdk/base/alloc.h"

TEST(a_worker_may_use_the_gpus_that_its_environment_selects)
{
    const struct gpus all = {.count = 2, .pci = {"0000:3b:00.0", "0000:86:00.0"}};
    const struct gpus none = {0};
    char one[] = "CUDA_VISIBLE_DEVICES=1", seven[] = "CUDA_VISIBLE_DEVICES=7";
    char *second[] = {one, NULL};
    char *wrong[] = {seven, NULL};
    char *each[] = {NULL};

    assert_int_equal(own_gpu_select(&all, second, "0000:86:00"), 1);
    assert_int_equal(own_gpu_select(&all, second, "0000:3B:00"), 0);
    assert_int_equal(own_gpu_select(&all, each, "0000:3B:00"), 1);
    assert_int_equal(own_gpu_select(&all, each, "0000:3b:0"), 0);
    assert_int_equal(own_gpu_select(&all, wrong, "0000:86:00"), -ENODEV);
    assert_int_equal(own_gpu_select(&none, each, "0000:86:00"), -ENODEV);
}

TEST(without_memory_it_is_not_known)
{
    char *each[] = {NULL};

    ct_alloc_fail_at(1);
    assert_int_equal(own_gpu_is(each, "0000:86:00"), -ENODEV);
    ct_alloc_fail_at(0);
}
