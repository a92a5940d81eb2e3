/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "tests/lib/test.h"
#include "worker_sdk/wire/frame.h"

TEST(golden_bytes)
{
    static const uint8_t golden[] = {0xc7, 0x52, 8, 10, 2, 0, 0, 0, 'h', 'i'};
    struct ct_buf buf;

    ct_buf_init(&buf, 100);
    assert_int_equal(ct_frame_encode(&buf, 10, "hi", 2), 0);
    assert_int_equal(ct_buf_length(&buf), sizeof golden);
    assert_memory_equal(ct_buf_data(&buf), golden, sizeof golden);
    ct_buf_deinit(&buf);
}

TEST(any_split_waits_for_the_rest)
{
    static const uint8_t data[] = {0xc7, 0x52, 8, 10, 2, 0, 0, 0, 'h', 'i', 0xc7};
    struct ct_frame frame;

    for (size_t n = 0; n < 10; n++)
        assert_int_equal(ct_frame_decode(data, n, &frame), 0);
    assert_int_equal(ct_frame_decode(data, sizeof data, &frame), 10);
    assert_int_equal(frame.kind, 10);
    assert_int_equal(frame.length, 2);
    assert_memory_equal(frame.body, "hi", 2);
}

TEST(foreign_and_oversized_are_refused_from_the_header)
{
    static const uint8_t too_long[] = {0xc7, 0x52, 8, 10, 1, 0, 1, 0};
    struct ct_frame frame;

    assert_int_equal(ct_frame_decode((const uint8_t *)"GET /", 5, &frame), -EPROTO);
    assert_int_equal(ct_frame_decode((const uint8_t *)"\xc7G", 2, &frame), -EPROTO);
    assert_int_equal(ct_frame_decode(too_long, sizeof too_long, &frame), -EMSGSIZE);
}

TEST(another_version_is_reported_not_hidden)
{
    static const uint8_t data[] = {0xc7, 0x52, 9, 1, 0, 0, 0, 0};
    struct ct_frame frame;

    assert_int_equal(ct_frame_decode(data, sizeof data, &frame), 8);
    assert_int_equal(frame.version, 9);
}
