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
    assert_int_equal(own_gpu_select(&all, each, "0000:3b:0"), 0); /* hidden from us */
    assert_int_equal(own_gpu_select(&all, second, "0000:99:00"), 0);
    assert_int_equal(own_gpu_select(&all, wrong, "0000:86:00"), -ENODEV);
    assert_int_equal(own_gpu_select(&none, each, "0000:86:00"), -ENODEV);
}

TEST(a_gpu_that_the_driver_has_lost_is_still_whose_it_was)
{
    const struct gpus left = {.count = 1, .pci = {"0000:86:00.0"}};
    struct gpus kept = {0};
    char one[] = "CUDA_VISIBLE_DEVICES=1", zero[] = "CUDA_VISIBLE_DEVICES=0";
    char *first[] = {zero, NULL}, *second[] = {one, NULL};

    own_gpu_keep(&kept,
                 &(struct gpus){.count = 2, .pci = {"0000:3b:00.0", "0000:86:00.0"}});
    own_gpu_keep(&kept, &left);
    assert_int_equal(own_gpu_select(&kept, first, "0000:3b:00"), 1);
    assert_int_equal(own_gpu_select(&kept, first, "0000:86:00"), 0);
    assert_int_equal(own_gpu_select(&kept, second, "0000:86:00"), 1);
    own_gpu_keep(&kept,
                 &(struct gpus){.count = 2, .pci = {"0000:86:00.0", "0000:99:00.0"}});
    assert_int_equal(own_gpu_select(&kept, second, "0000:99:00"), 1);
}

TEST(without_memory_it_is_not_known)
{
    char *each[] = {NULL};

    ct_alloc_fail_at(1);
    assert_int_equal(own_gpu_is(each, "0000:86:00"), -ENODEV);
    ct_alloc_fail_at(0);
}
