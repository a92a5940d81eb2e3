/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "tests/lib/test.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/buf.h"

TEST(bytes_come_out_in_order)
{
    struct ct_buf buf;

    ct_buf_init(&buf, 1000);
    for (int i = 0; i < 100; i++) { /* wraps in the first allocation many times */
        assert_int_equal(ct_buf_append(&buf, "abcdefg", 7), 0);
        assert_memory_equal(ct_buf_data(&buf), "abcdefg", 7);
        ct_buf_consume(&buf, 7);
    }
    assert_int_equal(ct_buf_length(&buf), 0);
    assert_int_equal(ct_buf_printf(&buf, "%s=%d", "rank", 3), 0);
    assert_int_equal(ct_buf_length(&buf), 6);
    ct_buf_deinit(&buf);
}

TEST(maximum_is_never_exceeded)
{
    struct ct_buf buf;

    ct_buf_init(&buf, 300);
    for (int i = 0; i < 300; i++)
        assert_int_equal(ct_buf_append(&buf, "x", 1), 0);
    assert_int_equal(ct_buf_append(&buf, "x", 1), -ENOBUFS);
    ct_buf_consume(&buf, 1);
    assert_int_equal(ct_buf_append(&buf, "x", 1), 0);
    assert_true(buf.capacity <= 600);
    ct_buf_deinit(&buf);
}

TEST(failed_allocation_leaves_the_bytes)
{
    struct ct_buf buf;
    uint8_t *at;

    ct_buf_init(&buf, 100000);
    assert_int_equal(ct_buf_append(&buf, "keep", 4), 0);
    ct_alloc_fail_at(1);
    assert_int_equal(ct_buf_reserve(&buf, 5000, &at), -ENOMEM);
    assert_int_equal(ct_buf_length(&buf), 4);
    assert_memory_equal(ct_buf_data(&buf), "keep", 4);
    ct_buf_deinit(&buf);
}

TEST(growth_is_by_doubling)
{
    static const uint8_t piece[1000];
    struct ct_buf buf;
    size_t capacity = 0;
    int moves = 0;

    ct_buf_init(&buf, 1 << 20);
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(ct_buf_append(&buf, piece, sizeof piece), 0);
        moves += buf.capacity != capacity;
        capacity = buf.capacity;
    }
    assert_true(moves <= 12);
    assert_true(buf.capacity <= 1 << 20);
    ct_buf_deinit(&buf);
}
