/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/lease.h"
#include "tests/lib/test.h"

static void the_first_to_expire_is_the_one_not_renewed(void **state)
{
    struct lease a, b;
    struct lease_queue queue;

    (void)state;
    lease_queue_init(&queue, 5000);
    assert_true(lease_next_ms(&queue) == UINT64_MAX);
    lease_start(&queue, &a, 100);
    lease_start(&queue, &b, 200);
    assert_int_equal(lease_next_ms(&queue), 5100);
    lease_renew(&queue, &a, 300);
    assert_int_equal(lease_next_ms(&queue), 5200);
    assert_null(lease_find_expired(&queue, 5199));
    assert_ptr_equal(lease_find_expired(&queue, 5200), &b);
    lease_end(&b);
    assert_null(lease_find_expired(&queue, 5200));
    assert_ptr_equal(lease_find_expired(&queue, 5300), &a);
    lease_end(&a);
    lease_end(&a);
    assert_null(lease_find_expired(&queue, 100000));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_to_expire_is_the_one_not_renewed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
