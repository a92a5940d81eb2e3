/* SPDX-License-Identifier: Apache-2.0 */
/* CRC-32C: the values of RFC 3720, appendix B.4, and the same sum by each implementation. */
#include <string.h>

#include "tests/lib/test.h"
#include "worker_sdk/base/crc32c.h"

TEST(sums_are_those_of_the_standard)
{
    uint8_t bytes[32] = {0};

    assert_int_equal(ct_crc32c(0, "", 0), 0);
    assert_int_equal(ct_crc32c(0, "123456789", 9), 0xe3069283);
    assert_int_equal(ct_crc32c(0, bytes, 32), 0x8a9136aa);
    for (int i = 0; i < 32; i++)
        bytes[i] = 0xff;
    assert_int_equal(ct_crc32c(0, bytes, 32), 0x62a8ab43);
    for (int i = 0; i < 32; i++)
        bytes[i] = (uint8_t)i;
    assert_int_equal(ct_crc32c(0, bytes, 32), 0x46dd794e);
}

TEST(the_instruction_and_the_table_agree_wherever_it_is_cut)
{
    uint8_t bytes[70];

    for (unsigned i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 37 + 11);
    for (size_t begin = 0; begin < 9; begin++)
        for (size_t cut = begin; cut <= sizeof bytes; cut++) {
            const uint32_t first = ct_crc32c(0, bytes + begin, cut - begin);
            assert_int_equal(first, ct_crc32c_plain(0, bytes + begin, cut - begin));
            assert_int_equal(ct_crc32c(first, bytes + cut, sizeof bytes - cut),
                             ct_crc32c_plain(0, bytes + begin, sizeof bytes - begin));
        }
}

TEST(long_ones_agree_too)
{
    static const size_t lengths[] = {24575, 24576, 24577, 49152, 49161, 100003};
    static uint8_t bytes[100003];

    for (unsigned i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * i >> 3 ^ i >> 7);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (uint32_t from = 0; from < 3; from++)
            assert_int_equal(ct_crc32c(from * 0x12345679, bytes, lengths[i]),
                             ct_crc32c_plain(from * 0x12345679, bytes, lengths[i]));
}

TEST(a_copy_has_the_bytes_and_their_sum_and_no_others)
{
    static const size_t lengths[] = {0, 1, 7, 8, 9, 63, 64, 24576, 24585, 50001};
    static uint8_t from[50010], to[50030];

    for (unsigned i = 0; i < sizeof from; i++)
        from[i] = (uint8_t)(i * i >> 3 ^ i >> 7);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (size_t out = 1; out < 10; out++)
            for (size_t in = 0; in < 9; in += 4) {
                const size_t length = lengths[i];

                memset(to, 0xee, sizeof to);
                assert_int_equal(ct_crc32c_copy(7, to + out, from + in, length),
                                 ct_crc32c_plain(7, from + in, length));
                assert_memory_equal(to + out, from + in, length);
                assert_int_equal(to[out - 1], 0xee);
                assert_int_equal(to[out + length], 0xee);
            }
}
