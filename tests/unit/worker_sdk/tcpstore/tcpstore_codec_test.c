/* SPDX-License-Identifier: Apache-2.0 */
/* A server reads what a client writes, in every dialect and with any division into pieces. */
#include <errno.h>
#include <string.h>

#include "tests/lib/test.h"
#include "worker_sdk/tcpstore/codec.h"

static const struct ct_tcpstore_blob list[] = {
    {(const uint8_t *)"/k", 2},
    {(const uint8_t *)"", 0},
    {(const uint8_t *)"/longer", 7},
    {(const uint8_t *)"v\0w", 3},
};

static bool is_same(struct ct_tcpstore_blob a, struct ct_tcpstore_blob b)
{
    return a.length == b.length && (!a.length || memcmp(a.data, b.data, a.length) == 0);
}

static bool is_counted(enum ct_tcpstore_query query)
{
    return query == CT_TCPSTORE_WAIT || query == CT_TCPSTORE_CHECK ||
           query == CT_TCPSTORE_MULTI_GET || query == CT_TCPSTORE_MULTI_SET;
}

/* Scans with one byte more each time, then decodes. */
static void read_back(enum ct_tcpstore_dialect dialect, const struct ct_buf *buf,
                      struct ct_tcpstore_request *out)
{
    const uint8_t *data = ct_buf_data(buf);
    struct ct_tcpstore_scan scan = {0};
    size_t length = ct_buf_length(buf);

    for (size_t n = 0; n < length; n++) {
        assert_int_equal(ct_tcpstore_scan_request(&scan, dialect, data, n), 0);
        /* It never asks for more bytes than there will be. */
        assert_in_range(scan.need, n + 1, length);
    }
    assert_int_equal(ct_tcpstore_scan_request(&scan, dialect, data, length), length);
    ct_tcpstore_decode_request(&scan, data, out);
}

static void expect_same(const struct ct_tcpstore_request *sent,
                        const struct ct_tcpstore_request *got)
{
    const uint8_t *cursor = got->list;

    assert_int_equal(got->query, sent->query);
    if (!is_counted(sent->query)) {
        assert_true(!got->key.data || is_same(got->key, sent->key));
        assert_true(!got->value.data || is_same(got->value, sent->value));
        assert_true(!got->desired.data || is_same(got->desired, sent->desired));
        assert_true(got->number == 0 || got->number == sent->number);
        assert_true(got->nonce == 0 || got->nonce == sent->nonce);
        return;
    }
    assert_int_equal(got->count, 2);
    for (int i = 0; i < (sent->query == CT_TCPSTORE_MULTI_SET ? 4 : 2); i++)
        assert_true(is_same(ct_tcpstore_next(&cursor), list[i]));
}

TEST(every_query_survives_the_wire)
{
    static const int queries[] = {[CT_TCPSTORE_D0] = 9, [CT_TCPSTORE_D2] = 18};
    struct ct_buf buf;

    ct_buf_init(&buf, 1000);
    for (int dialect = CT_TCPSTORE_D0; dialect <= CT_TCPSTORE_D2; dialect++) {
        int known = 0;

        for (int query = CT_TCPSTORE_SET; query < CT_TCPSTORE_QUERIES; query++) {
            struct ct_tcpstore_request sent = {.query = (enum ct_tcpstore_query)query,
                                               .key = list[0],
                                               .value = list[3],
                                               .desired = list[1],
                                               .number = -2,
                                               .nonce = 0xdeadbeef,
                                               .count = 2};
            struct ct_tcpstore_request got;
            int rc = ct_tcpstore_encode_request(&buf, (enum ct_tcpstore_dialect)dialect,
                                                &sent, list);

            if (rc == -ENOTSUP)
                continue;
            assert_int_equal(rc, 0);
            read_back((enum ct_tcpstore_dialect)dialect, &buf, &got);
            expect_same(&sent, &got);
            ct_buf_consume(&buf, ct_buf_length(&buf));
            known++;
        }
        assert_int_equal(known, queries[dialect]);
    }
    ct_buf_deinit(&buf);
}

TEST(golden_bytes_of_a_constructor)
{
    static const uint8_t golden[] = {0x00, 0xce, 0xf7, 0x85, 0x3c,
                                     0x0d, 0x47, 0x5c, 0x00, 0x00};
    const struct ct_tcpstore_request validate = {.query = CT_TCPSTORE_VALIDATE,
                                                 .nonce = CT_TCPSTORE_MAGIC};
    const struct ct_tcpstore_request ping = {.query = CT_TCPSTORE_PING, .nonce = 23623};
    struct ct_buf buf;

    ct_buf_init(&buf, 100);
    assert_int_equal(ct_tcpstore_encode_request(&buf, CT_TCPSTORE_D2, &validate, NULL),
                     0);
    assert_int_equal(ct_tcpstore_encode_request(&buf, CT_TCPSTORE_D2, &ping, NULL), 0);
    assert_int_equal(ct_buf_length(&buf), sizeof golden);
    assert_memory_equal(ct_buf_data(&buf), golden, sizeof golden);
    ct_buf_deinit(&buf);
}

TEST(the_first_bytes_tell_the_dialect)
{
    static const struct {
        const char *bytes;
        size_t length;
        int rc;
        enum ct_tcpstore_dialect dialect;
    } cases[] = {
        {"", 0, 0, CT_TCPSTORE_UNKNOWN},
        {"\x00", 1, 0, CT_TCPSTORE_UNKNOWN},
        {"\x00\xce\xf7\x85", 4, 0, CT_TCPSTORE_UNKNOWN},
        {"\x00\xce\xf7\x85\x3c", 5, 5, CT_TCPSTORE_D2},
        {"\x00\x02\x00\x00\x00", 5, 0, CT_TCPSTORE_D0},
        {"\x03", 1, 0, CT_TCPSTORE_D0},
        {"\x0c", 1, 0, CT_TCPSTORE_D0},
        {"\x0d", 1, -EPROTO, CT_TCPSTORE_UNKNOWN},
        {"\xce", 1, -EPROTO, CT_TCPSTORE_UNKNOWN},
        {"\x00\x01\x20\x00\x00", 5, -EPROTO, CT_TCPSTORE_UNKNOWN},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        enum ct_tcpstore_dialect dialect;

        assert_int_equal(ct_tcpstore_sniff((const uint8_t *)cases[i].bytes,
                                           cases[i].length, &dialect),
                         cases[i].rc);
        assert_int_equal(dialect, cases[i].dialect);
    }
}

TEST(replies_end_where_they_should)
{
    static const struct {
        enum ct_tcpstore_query query;
        size_t count;
        const char *bytes;
        size_t length;
    } cases[] = {
        {CT_TCPSTORE_WAIT, 0, "\0", 1},
        {CT_TCPSTORE_PING, 0, "abcd", 4},
        {CT_TCPSTORE_ADD, 0, "\1\0\0\0\0\0\0\0", 8},
        {CT_TCPSTORE_GET, 0, "\0\0\0\0\0\0\0\0", 8},
        {CT_TCPSTORE_GET, 0, "\2\0\0\0\0\0\0\0hi", 10},
        {CT_TCPSTORE_MULTI_GET, 2, "\1\0\0\0\0\0\0\0a\0\0\0\0\0\0\0\0", 17},
        {CT_TCPSTORE_QUEUE_POP, 0, "\0\0\0\0\0\0\0\0", 8},
        {CT_TCPSTORE_QUEUE_POP, 0, "\5\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0x", 17},
        {CT_TCPSTORE_LIST_KEYS, 0, "\0\0\0\0\0\0\0\0", 8},
        {CT_TCPSTORE_LIST_KEYS, 0, "\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0k", 17},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const uint8_t *bytes = (const uint8_t *)cases[i].bytes;
        struct ct_tcpstore_scan scan = {0};

        for (size_t n = 0; n < cases[i].length; n++)
            assert_int_equal(ct_tcpstore_scan_reply(&scan, cases[i].query,
                                                    cases[i].count, 100, bytes, n),
                             0);
        assert_int_equal(ct_tcpstore_scan_reply(&scan, cases[i].query, cases[i].count,
                                                100, bytes, cases[i].length),
                         cases[i].length);
    }
}

TEST(lying_replies_are_refused)
{
    static const uint8_t huge[16] = {0, 0, 0, 0, 0, 0, 0, 0x40, 1};
    static const uint8_t pop[16] = {1, 0, 0, 0, 0, 0, 0, 0, 101};
    struct ct_tcpstore_scan get = {0};
    struct ct_tcpstore_scan keys = {0};
    struct ct_tcpstore_scan element = {0};

    assert_int_equal(ct_tcpstore_scan_reply(&get, CT_TCPSTORE_GET, 0, 100, huge, 8),
                     -EMSGSIZE);
    assert_int_equal(
        ct_tcpstore_scan_reply(&keys, CT_TCPSTORE_LIST_KEYS, 0, 100, huge, 8),
        -EMSGSIZE);
    assert_int_equal(
        ct_tcpstore_scan_reply(&element, CT_TCPSTORE_QUEUE_POP, 0, 100, pop, 16),
        -EMSGSIZE);
}

TEST(what_is_too_large_is_not_sent)
{
    static uint8_t bytes[CT_TCPSTORE_VALUE_MAX_BYTES + 1];
    struct ct_tcpstore_request set = {.query = CT_TCPSTORE_SET,
                                      .key = {bytes, CT_TCPSTORE_KEY_MAX_BYTES},
                                      .value = {bytes, CT_TCPSTORE_VALUE_MAX_BYTES}};
    struct ct_tcpstore_request wait = {.query = CT_TCPSTORE_WAIT,
                                       .count = CT_TCPSTORE_KEYS_MAX + 1};
    struct ct_buf buf;

    ct_buf_init(&buf, CT_TCPSTORE_REQUEST_MAX_BYTES);
    assert_int_equal(ct_tcpstore_encode_request(&buf, CT_TCPSTORE_D2, &set, NULL), 0);
    ct_buf_consume(&buf, ct_buf_length(&buf));
    set.key.length++;
    assert_int_equal(ct_tcpstore_encode_request(&buf, CT_TCPSTORE_D2, &set, NULL),
                     -EMSGSIZE);
    set.key.length--;
    set.value.length++;
    assert_int_equal(ct_tcpstore_encode_request(&buf, CT_TCPSTORE_D2, &set, NULL),
                     -EMSGSIZE);
    assert_int_equal(ct_tcpstore_encode_request(&buf, CT_TCPSTORE_D2, &wait, list),
                     -EMSGSIZE);
    assert_int_equal(ct_buf_length(&buf), 0); /* nothing was written */
    ct_buf_deinit(&buf);
}
