/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/wire/text_code.h"

#include <errno.h>
#include <string.h>

#include "tests/lib/test.h"

/* Vectors of RFC 4648. */
static const struct {
    const char *plain;
    const char *base64;
    const char *hex;
} vectors[] = {
    {"", "", ""},
    {"f", "Zg==", "66"},
    {"fo", "Zm8=", "666f"},
    {"foo", "Zm9v", "666f6f"},
    {"foob", "Zm9vYg==", "666f6f62"},
    {"fooba", "Zm9vYmE=", "666f6f6261"},
    {"foobar", "Zm9vYmFy", "666f6f626172"},
    {"/c", "L2M=", "2f63"},
};

TEST(base64_is_that_of_rfc_4648)
{
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        const size_t plain = strlen(vectors[i].plain);
        const size_t length = strlen(vectors[i].base64);
        struct ct_buf out;
        char back[16];

        ct_buf_init(&out, 64);
        assert_int_equal(ct_base64_encode(&out, vectors[i].plain, plain), 0);
        assert_int_equal(ct_buf_length(&out), length);
        assert_memory_equal(ct_buf_data(&out), vectors[i].base64, length);
        assert_int_equal(ct_base64_decode(back, sizeof back, vectors[i].base64, length),
                         plain);
        assert_memory_equal(back, vectors[i].plain, plain);
        if (plain > 0)
            assert_int_equal(
                ct_base64_decode(back, plain - 1, vectors[i].base64, length), -EBADMSG);
        ct_buf_deinit(&out);
    }
}

TEST(what_is_no_base64_is_refused)
{
    static const char *const bad[] = {
        "Z", "Zg", "Zg=", "Z===", "====", "Zg==Zg==", "Zm 9", "Zm9-", "=m9v", "Zm=v"};

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char out[16];

        if (ct_base64_decode(out, sizeof out, bad[i], strlen(bad[i])) != -EBADMSG)
            fail_msg("'%s' was taken for base64", bad[i]);
    }
}

TEST(hexadecimal_digits_there_and_back)
{
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        const size_t plain = strlen(vectors[i].plain);
        char text[16];
        uint8_t back[16];

        ct_hex_encode(text, vectors[i].plain, plain);
        assert_string_equal(text, vectors[i].hex);
        assert_int_equal(ct_hex_decode(back, text, 2 * plain), 0);
        assert_memory_equal(back, vectors[i].plain, plain);
    }
}

TEST(what_is_no_hexadecimal_is_refused)
{
    static const char *const bad[] = {"0", "0g", "00 0", "000", " 00 ", "zz", "00-0"};

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        uint8_t out[8];

        if (ct_hex_decode(out, bad[i], strlen(bad[i])) != -EBADMSG)
            fail_msg("'%s' was taken for hexadecimal digits", bad[i]);
    }
}
