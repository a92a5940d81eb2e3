/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "tests/lib/test.h"
#include "worker_sdk/base/bytes.h"

TEST(numbers_are_little_endian_on_the_wire)
{
    static const uint8_t golden[] = {0x01, 0x03, 0x02, 0x07, 0x06, 0x05, 0x04, 0xff,
                                     0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    uint8_t data[64];
    struct ct_writer out;

    ct_writer_init(&out, data, sizeof data);
    ct_write_u8(&out, 1);
    ct_write_u16(&out, 0x0203);
    ct_write_u32(&out, 0x04050607);
    ct_write_i64(&out, -1);
    assert_int_equal(ct_write_end(&out), sizeof golden);
    assert_memory_equal(data, golden, sizeof golden);
}

TEST(what_was_written_is_read_back)
{
    uint8_t data[64];
    char text[8];
    size_t length;
    struct ct_writer out;
    struct ct_reader in;

    ct_writer_init(&out, data, sizeof data);
    ct_write_u64(&out, UINT64_MAX - 1);
    ct_write_str(&out, "node-1");
    ct_write_blob(&out, "\0x", 2);
    ct_reader_init(&in, data, out.length);
    assert_true(ct_read_u64(&in) == UINT64_MAX - 1);
    ct_read_str(&in, text, sizeof text);
    assert_string_equal(text, "node-1");
    assert_memory_equal(ct_read_blob(&in, 2, &length), "\0x", 2);
    assert_int_equal(ct_read_end(&in), 0);
}

TEST(reader_goes_bad_and_stays_bad)
{
    static const uint8_t data[] = {9, 0, 0, 0, 'a', 'b', 'c', 1};
    char text[4] = "old";
    struct ct_reader in;

    ct_reader_init(&in, data, sizeof data);
    ct_read_str(&in, text, sizeof text); /* says 9 bytes, but 4 are left */
    assert_string_equal(text, "");
    assert_int_equal(ct_read_u8(&in), 0);
    assert_int_equal(ct_read_end(&in), -EBADMSG);
}

TEST(text_must_fit_and_hold_no_nul)
{
    static const uint8_t too_long[] = {4, 0, 0, 0, 'a', 'b', 'c', 'd'};
    static const uint8_t with_nul[] = {2, 0, 0, 0, 'a', 0};
    char text[4];
    struct ct_reader in;

    ct_reader_init(&in, too_long, sizeof too_long);
    ct_read_str(&in, text, sizeof text);
    assert_int_equal(ct_read_end(&in), -EBADMSG);
    ct_reader_init(&in, with_nul, sizeof with_nul);
    ct_read_str(&in, text, sizeof text);
    assert_int_equal(ct_read_end(&in), -EBADMSG);
}

TEST(trailing_bytes_are_an_error)
{
    struct ct_reader in;

    ct_reader_init(&in, "ab", 2);
    ct_read_u8(&in);
    assert_int_equal(ct_read_end(&in), -EBADMSG);
}

TEST(writer_stores_nothing_after_the_end)
{
    uint8_t data[4] = {0};
    struct ct_writer out;

    ct_writer_init(&out, data, 3);
    ct_write_u32(&out, UINT32_MAX);
    ct_write_u8(&out, 1);
    assert_int_equal(ct_write_end(&out), -EMSGSIZE);
    assert_int_equal(data[0], 0);
}

/* How `foreign` is read: as a line, as lines, and as a name, which is not changed. */
static void assert_plain(const char *foreign, const char *line, const char *lines)
{
    typedef void read_fn(struct ct_reader *, char *, size_t);
    static read_fn *const readers[] = {ct_read_str, ct_read_text, ct_read_name};
    const char *expected[] = {line, lines, foreign};

    for (size_t i = 0; i < 3; i++) {
        uint8_t data[256];
        char text[200];
        struct ct_writer out;
        struct ct_reader in;

        ct_writer_init(&out, data, sizeof data);
        ct_write_str(&out, foreign);
        ct_reader_init(&in, data, 4 + strlen(foreign));
        readers[i](&in, text, sizeof text);
        assert_int_equal(ct_read_end(&in), 0);
        assert_string_equal(text, expected[i]);
    }
}

TEST(text_of_a_peer_is_made_plain)
{
    assert_plain("node-1.example", "node-1.example", "node-1.example");
    assert_plain("K\xc3\xb6ln \xe4\xba\xac \xf0\x9f\x98\x80",
                 "K\xc3\xb6ln \xe4\xba\xac \xf0\x9f\x98\x80",
                 "K\xc3\xb6ln \xe4\xba\xac \xf0\x9f\x98\x80");
    assert_plain("n\x1b]0;owned\x07", "n?]0;owned?", "n?]0;owned?");
    assert_plain("a\nctrun: error: b\r\tc\x7f", "a?ctrun: error: b??c?",
                 "a\nctrun: error: b?\tc?");
    assert_plain("\xc2\x9b"
                 /* CSI of C1. */
                 "31m",
                 "??31m", "??31m");
    assert_plain("\xe2\x80\xae"
                 /* Characters that set the direction of text. */
                 "x\xe2\x81\xa6",
                 "???x???", "???x???");
    /* Not UTF-8. */
    assert_plain("\xff\xc0\xaf\xed\xa0\x80\xe4\xba", "????????", "????????");
}
