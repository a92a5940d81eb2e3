/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <unistd.h>

#include "agent/watch/own_ranks.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/alloc.h"

TEST(no_memory_is_told_and_nobody_is_blamed)
{
    const pid_t self = getpid();
    int rc = -ENOMEM;
    size_t n;

    for (n = 1; rc == -ENOMEM; n++) {
        struct own_ranks found = {0};

        ct_alloc_fail_at(n);
        rc = own_ranks_look(&found, &self, 1);
        assert_true(rc == 0 || rc == -ENOMEM);
        assert_int_equal(found.worker, 0);
    }
    ct_alloc_fail_at(0);
    assert_true(n > 2); /* at least one allocation has failed */
}
