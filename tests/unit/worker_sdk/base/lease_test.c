/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/test.h"
#include "worker_sdk/base/lease.h"

TEST(the_first_to_expire_is_the_one_not_renewed)
{
    struct ct_lease a, b;
    struct ct_lease_queue queue;

    ct_lease_queue_init(&queue, 5000);
    assert_true(ct_lease_next_ms(&queue) == UINT64_MAX);
    ct_lease_start(&queue, &a, 100);
    ct_lease_start(&queue, &b, 200);
    assert_int_equal(ct_lease_next_ms(&queue), 5100);
    ct_lease_renew(&queue, &a, 300);
    assert_int_equal(ct_lease_next_ms(&queue), 5200);
    assert_null(ct_lease_find_expired(&queue, 5199));
    assert_ptr_equal(ct_lease_find_expired(&queue, 5200), &b);
    ct_lease_end(&b);
    assert_null(ct_lease_find_expired(&queue, 5200));
    assert_ptr_equal(ct_lease_find_expired(&queue, 5300), &a);
    ct_lease_end(&a);
    ct_lease_end(&a);
    assert_null(ct_lease_find_expired(&queue, 100000));
}
