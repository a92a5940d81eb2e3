/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/net/sniff.h"
#include "tests/lib/test.h"

static enum sniff_kind sniff(const char *text, size_t length)
{
    return sniff_first_bytes((const uint8_t *)text, length);
}

TEST(the_first_byte_tells_the_protocols_apart)
{
    assert_int_equal(sniff("", 0), SNIFF_MORE);
    assert_int_equal(sniff("\xc7", 1), SNIFF_FRAME);
    assert_int_equal(sniff("GET / HTTP/1.1", 14), SNIFF_HTTP);
    assert_int_equal(sniff("HEAD", 4), SNIFF_HTTP);
    assert_int_equal(sniff("\x00\xce\xf7\x85\x3c", 5),
                     SNIFF_STORE);                             /* VALIDATE, torch 2 */
    assert_int_equal(sniff("\x03", 1), SNIFF_STORE);           /* ADD, torch 1.13 */
    assert_int_equal(sniff("\x12", 1), SNIFF_STORE);           /* BARRIER */
    assert_int_equal(sniff("\x16\x03\x01", 3), SNIFF_FOREIGN); /* TLS */
    assert_int_equal(sniff("\xff", 1), SNIFF_FOREIGN);
    assert_int_equal(sniff("hello", 5), SNIFF_FOREIGN);
}
