/* SPDX-License-Identifier: Apache-2.0 */
/* Byte streams of a store: dialects, limits, back-pressure, budgets, lack of memory. */
#include <errno.h>
#include <stdlib.h>

#include "tests/lib/store_rig.h"
#include "worker_sdk/base/alloc.h"

static size_t data_bytes(const struct rig *rig)
{
    struct store_stats stats;

    store_get_stats(rig->store, &stats);
    return stats.data_bytes;
}

/* ---- Dialects --------------------------------------------------------------------------- */

TEST(validate_may_come_in_any_pieces)
{
    static const uint8_t bytes[] = {0x00, 0xce, 0xf7, 0x85, 0x3c, 0x07};

    for (size_t split = 1; split < 6; split++) {
        struct rig rig;

        rig_init(&rig, 0);
        assert_int_equal(rig_send(&rig, 'a', bytes, split), 0);
        rig_expect_nothing(&rig, 'a');
        assert_int_equal(rig_send(&rig, 'a', bytes + split, 6 - split), 0);
        rig_expect_i64(&rig, 'a', 0);
        rig_deinit(&rig);
    }
}

TEST(unknown_clients_are_refused_at_their_first_bytes)
{
    static const struct {
        const char *bytes;
        size_t length;
    } rejects[] = {
        {"\x00\x3c\x85\xf7\xce", 5}, /* big-endian magic */
        {"\x00\xff\xff\xff\xff", 5}, /* neither the magic nor the length of a key */
        {"GET / HTTP/1.1\r\n", 16},
        {"\xce\xf7\x85\x3c", 4},
        {"\xc7\x52", 2},
        {"\x0d", 1},                     /* D2 without VALIDATE */
        {"\x00\xce\xf7\x85\x3c\x00", 6}, /* a second VALIDATE */
    };

    for (size_t i = 0; i < sizeof rejects / sizeof *rejects; i++) {
        struct rig rig;

        rig_init(&rig, 0);
        assert_int_equal(rig_send(&rig, 'a', rejects[i].bytes, rejects[i].length),
                         -EPROTO);
        rig_expect_nothing(&rig, 'a');
        rig_expect_value(&rig, "others are served", "");
        rig_deinit(&rig);
    }
}

TEST(every_unknown_query_closes_only_its_connection)
{
    for (int byte = 0x13; byte <= 0xff; byte++) {
        uint8_t bytes[] = {0x00, 0xce, 0xf7, 0x85, 0x3c, (uint8_t)byte};
        struct rig rig;

        rig_init(&rig, 0);
        assert_int_equal(rig_send(&rig, 'a', bytes, sizeof bytes), -EPROTO);
        rig_expect_value(&rig, "k", "");
        rig_deinit(&rig);
    }
}

RIG_TEST(hundred_requests_in_one_segment_are_answered_in_order)
{
    struct ct_tcpstore_request add = {
        .query = CT_TCPSTORE_ADD, .key = {(const uint8_t *)"n", 1}, .number = 1};
    struct ct_buf buf;
    struct rig *rig = *state;

    rig_expect_value(rig, "n", "");
    ct_buf_init(&buf, 10000);
    for (int i = 0; i < 100; i++)
        assert_int_equal(ct_tcpstore_encode_request(&buf, CT_TCPSTORE_D2, &add, NULL),
                         0);
    assert_int_equal(rig_send(rig, 'h', ct_buf_data(&buf), ct_buf_length(&buf)), 0);
    assert_int_equal(ct_buf_length(store_output(rig_client(rig, 'h'))), 800);
    for (int i = 1; i <= 100; i++) {
        assert_int_equal(*ct_buf_data(store_output(rig_client(rig, 'h'))), i);
        ct_buf_consume(store_output(rig_client(rig, 'h')), 8);
    }
    ct_buf_deinit(&buf);
}

/* ---- Caps ------------------------------------------------------------------------------- */

/* How the store answers `op` followed by these little-endian numbers. */
static int say(uint8_t op, const uint64_t *numbers, size_t count, size_t *memory)
{
    uint8_t bytes[64] = {0x00, 0xce, 0xf7, 0x85, 0x3c, op};
    struct rig rig;
    int rc;

    for (size_t i = 0; i < 8 * count; i++)
        bytes[6 + i] = (uint8_t)(numbers[i / 8] >> 8 * (i % 8));
    rig_init(&rig, 0);
    rc = rig_send(&rig, 'a', bytes, 6 + 8 * count);
    *memory = data_bytes(&rig);
    rig_deinit(&rig);
    return rc;
}

TEST(lengths_are_refused_before_their_bytes_come)
{
    static const struct {
        uint8_t op;
        uint64_t numbers[2];
        size_t count;
        int rc;
    } cases[] = {
        {CT_TCPSTORE_GET, {8192}, 1, 0},
        {CT_TCPSTORE_GET, {8193}, 1, -EMSGSIZE},
        {CT_TCPSTORE_GET, {UINT64_MAX}, 1, -EMSGSIZE},
        {CT_TCPSTORE_GET, {1ull << 63}, 1, -EMSGSIZE},
        {CT_TCPSTORE_SET, {0, 8 << 20}, 2, 0},
        {CT_TCPSTORE_SET, {0, (8 << 20) + 1}, 2, -EMSGSIZE},
        {CT_TCPSTORE_SET, {0, UINT64_MAX - 20}, 2, -EMSGSIZE},
        {CT_TCPSTORE_QUEUE_PUSH, {0, (8 << 20) + 1}, 2, -EMSGSIZE},
        {CT_TCPSTORE_APPEND, {0, (8 << 20) + 1}, 2, -EMSGSIZE},
        {CT_TCPSTORE_WAIT, {131072}, 1, 0},
        {CT_TCPSTORE_WAIT, {131073}, 1, -EMSGSIZE},
        {CT_TCPSTORE_CHECK, {UINT64_MAX / 8}, 1, -EMSGSIZE},
        {CT_TCPSTORE_MULTI_GET, {131073}, 1, -EMSGSIZE},
        {CT_TCPSTORE_MULTI_SET, {131073}, 1, -EMSGSIZE},
        {CT_TCPSTORE_WAIT, {1, 8193}, 2, -EMSGSIZE},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t memory;

        assert_int_equal(say(cases[i].op, cases[i].numbers, cases[i].count, &memory),
                         cases[i].rc);
        assert_true(memory < 1024); /* an announced length uses no memory */
    }
}

TEST(the_largest_request_that_is_allowed_is_served)
{
    enum {
        COUNT = 131072
    };
    struct ct_tcpstore_request check = {.query = CT_TCPSTORE_CHECK, .count = COUNT};
    struct ct_tcpstore_blob *keys = calloc(COUNT, sizeof *keys);
    uint8_t *value = calloc(1, 8 << 20);
    struct ct_tcpstore_blob pairs[16];
    struct ct_tcpstore_request set = {.query = CT_TCPSTORE_MULTI_SET, .count = 8};
    struct rig rig;

    assert_non_null(keys);
    assert_non_null(value);
    for (size_t i = 0; i < COUNT; i++)
        keys[i] = rig_blob("k");
    for (size_t i = 0; i < 16; i++)
        pairs[i] = i % 2 ? (struct ct_tcpstore_blob){value, 8 << 20}
                         : (struct ct_tcpstore_blob){
                               (const uint8_t *)"abcdefgh" + i / 2, 1};
    rig_init(&rig, 64 << 10);
    assert_int_equal(rig_ask(&rig, 'a', &check, keys), 0);
    rig_expect_u8(&rig, 'a', CT_TCPSTORE_NOT_READY);
    assert_int_equal(rig_ask(&rig, 'a', &set, pairs), 0);
    (void)rig_query(&rig, 'a', CT_TCPSTORE_GETNUMKEYS, "", "");
    rig_expect_i64(&rig, 'a', 8);
    rig_deinit(&rig);
    free(keys);
    free(value);
}

TEST(a_value_in_single_bytes_costs_its_size)
{
    static uint8_t bytes[20000];
    static const uint8_t head[] = {0x00, 0xce, 0xf7, 0x85, 0x3c, 1, 0, 0, 0, 0, 0,
                                   0,    0,    0,    0x20, 0x4e, 0, 0, 0, 0, 0, 0};
    struct rig rig;

    rig_init(&rig, 1);
    (void)rig_send(&rig, 'a', head, sizeof head);
    for (size_t i = 0; i + 1 < sizeof bytes; i++) {
        assert_int_equal(rig_send(&rig, 'a', bytes + i, 1), 0);
        assert_true(data_bytes(&rig) < 64 << 10);
    }
    assert_true(store_is_mid_request(rig_client(&rig, 'a')));
    (void)rig_send(&rig, 'a', bytes, 1);
    assert_false(store_is_mid_request(rig_client(&rig, 'a')));
    rig_deinit(&rig);
}

/* ---- Back-pressure ----------------------------------------------------------------------- */

/* Sets "large" to a value of this many bytes. */
static void set_large(struct rig *rig, size_t length)
{
    uint8_t *value = calloc(1, length);
    struct ct_tcpstore_request set = {.query = CT_TCPSTORE_SET,
                                      .key = {(const uint8_t *)"large", 5},
                                      .value = {value, length}};

    assert_non_null(value);
    assert_int_equal(rig_ask(rig, 'a', &set, NULL), 0);
    free(value);
}

static void encode_gets(struct ct_buf *buf, int count)
{
    struct ct_tcpstore_request get = {.query = CT_TCPSTORE_GET,
                                      .key = {(const uint8_t *)"large", 5}};

    ct_buf_init(buf, 100000);
    for (int i = 0; i < count; i++)
        assert_int_equal(ct_tcpstore_encode_request(buf, CT_TCPSTORE_D2, &get, NULL),
                         0);
}

RIG_TEST(who_does_not_read_costs_one_reply_not_all)
{
    enum {
        GETS = 64,
        LARGE = 1 << 20
    };
    struct store_client *client;
    struct store_stats stats;
    struct ct_buf buf;
    struct rig *rig = *state;
    int replies = 0;
    int rc;

    set_large(rig, LARGE);
    (void)rig_query(rig, 'b', CT_TCPSTORE_CANCEL_WAIT, "", "");
    rig_expect_u8(rig, 'b', 1);
    client = rig_client(rig, 'b');
    encode_gets(&buf, GETS);
    rc = store_receive(client, ct_buf_data(&buf), ct_buf_length(&buf));
    ct_buf_deinit(&buf);
    for (; rc == STORE_PAUSED; replies++) {
        store_get_stats(rig->store, &stats);
        assert_true(stats.output_bytes < 2 * LARGE);
        assert_int_equal(ct_buf_length(store_output(client)), LARGE + 8);
        assert_false(store_is_mid_request(client));
        assert_int_equal(store_resume(client), STORE_PAUSED); /* nothing was consumed */
        ct_buf_consume(store_output(client), LARGE + 8);
        rc = store_resume(client);
    }
    assert_int_equal(rc, 0);
    assert_int_equal(replies, GETS);
    store_get_stats(rig->store, &stats);
    assert_true(stats.output_bytes < 4096); /* the buffer was freed */
}

RIG_TEST(what_comes_while_paused_is_kept_and_executed_later)
{
    struct store_client *client;
    struct ct_buf buf;
    struct rig *rig = *state;

    set_large(rig, 100000);
    client = rig_client(rig, 'a');
    encode_gets(&buf, 1);
    assert_int_equal(rig_send(rig, 'a', ct_buf_data(&buf), ct_buf_length(&buf)),
                     STORE_PAUSED);
    assert_int_equal(rig_send(rig, 'a', "\x07\x04\1\0", 4), STORE_PAUSED);
    ct_buf_consume(store_output(client), 100008);
    assert_int_equal(store_resume(client), 0);
    rig_expect_i64(rig, 'a', 1);
    assert_true(store_is_mid_request(client)); /* the ADD */
    (void)rig_send(rig, 'a', "\0\0\0\0\0\0n\1\0\0\0\0\0\0\0", 15);
    rig_expect_i64(rig, 'a', 1);
    ct_buf_deinit(&buf);
}

RIG_TEST(a_release_comes_even_to_a_paused_client)
{
    struct store_client *client;
    struct ct_buf buf;
    struct rig *rig = *state;

    set_large(rig, 100000);
    (void)rig_wait(rig, 'b', "k");
    client = rig_client(rig, 'b');
    encode_gets(&buf, 1);
    assert_int_equal(store_receive(client, ct_buf_data(&buf), ct_buf_length(&buf)),
                     STORE_PAUSED);
    (void)rig_set(rig, 'a', "k", "x");
    assert_int_equal(ct_buf_length(store_output(client)), 100008 + 1);
    assert_int_equal(rig->notices[1], 1);
    ct_buf_deinit(&buf);
}

/* ---- Budgets and lack of memory ---------------------------------------------------------- */

RIG_TEST(a_full_store_refuses_writers_and_serves_readers)
{
    struct rig *rig = *state;
    char key[16];
    int count = 0;

    store_set_limits(rig->store, 1 << 20, 1 << 20);
    (void)rig_set(rig, 'h', "first", "value");
    do
        (void)snprintf(key, sizeof key, "%d", count);
    while (rig_set(rig, 'a', key, "0123456789012345678901234567890123456789") == 0 &&
           ++count < 100000);
    assert_true(count > 1000 && count < 10000);
    assert_int_equal(rig->results[0], -ENOBUFS);
    assert_true(data_bytes(rig) <= (1 << 20) + 16384);
    assert_int_equal(rig_query(rig, 'c', CT_TCPSTORE_QUEUE_PUSH, "q", "x"), -ENOBUFS);
    assert_int_equal(rig_wait(rig, 'd', "none"), -ENOBUFS);
    rig_expect_value(rig, "first", "value");
    (void)rig_query(rig, 'h', CT_TCPSTORE_DELETE_KEY, "0", "");
    rig_expect_i64(rig, 'h', 1);
    assert_int_equal(rig_set(rig, 'b', "0", "again"), 0);
}

RIG_TEST(large_replies_share_a_budget)
{
    struct ct_buf buf;
    struct rig *rig = *state;

    store_set_limits(rig->store, 64 << 20, 3 << 20);
    set_large(rig, 1 << 20);
    encode_gets(&buf, 1);
    for (char name = 'b'; name <= 'e'; name++) {
        (void)rig_query(rig, name, CT_TCPSTORE_GETNUMKEYS, "", "");
        rig_expect_i64(rig, name, 1);
        assert_int_equal(rig_send(rig, name, ct_buf_data(&buf), ct_buf_length(&buf)),
                         name < 'd' ? STORE_PAUSED : -ENOBUFS);
    }
    rig_close(rig, 'b');
    (void)rig_query(rig, 'f', CT_TCPSTORE_GETNUMKEYS, "", "");
    rig_expect_i64(rig, 'f', 1);
    assert_int_equal(rig_send(rig, 'f', ct_buf_data(&buf), ct_buf_length(&buf)),
                     STORE_PAUSED);
    ct_buf_deinit(&buf);
}

/* Each request is tried with each of its allocations failing. This closes the connection, and the
 * same request succeeds on the next one. */
RIG_TEST(a_multi_set_that_finds_no_memory_changes_nothing)
{
    const struct ct_tcpstore_blob pairs[] = {
        rig_blob("a"), rig_blob("1"), rig_blob("b"),
        rig_blob("a value that is longer than a counter")};
    struct ct_tcpstore_request set = {.query = CT_TCPSTORE_MULTI_SET, .count = 2};
    int rc = -ENOMEM;
    struct ct_buf buf;
    struct rig *rig = *state;
    size_t n;

    ct_buf_init(&buf, 1000);
    assert_int_equal(ct_tcpstore_encode_request(&buf, CT_TCPSTORE_D2, &set, pairs), 0);
    for (n = 1; rc == -ENOMEM; n++) {
        rig_expect_value(rig, "a", "");
        rig_expect_value(rig, "b", "");
        rc = rig_send_d2(rig, 'a', &buf, n);
        rig_close(rig, 'a');
    }
    assert_true(rc == 0 && n > 4);
    rig_expect_value(rig, "a", "1");
    ct_buf_deinit(&buf);
}

TEST(lack_of_memory_ends_one_connection_and_nothing_else)
{
    const struct ct_tcpstore_blob pairs[] = {rig_blob("a"), rig_blob("1"),
                                             rig_blob("b"), rig_blob("2"),
                                             rig_blob("a"), rig_blob("3")};
    struct ct_tcpstore_request set = {.query = CT_TCPSTORE_MULTI_SET, .count = 3};
    struct rig rig;
    char key[16];

    rig_init(&rig, 0);
    rig.is_starved = true;
    assert_int_equal(rig_wait(&rig, 'b', "a"), 0);
    assert_int_equal(rig_list(&rig, 'c', CT_TCPSTORE_WAIT, "a", "never"), 0);
    assert_int_equal(rig_ask(&rig, 'd', &set, pairs), 0);
    rig_expect_u8(&rig, 'b', 0);
    assert_int_equal(rig_set(&rig, 'd', "e", "a value that is longer than a counter"),
                     0);
    assert_int_equal(rig_query(&rig, 'd', CT_TCPSTORE_APPEND, "f", "x"), 0);
    assert_int_equal(
        rig_query(&rig, 'd', CT_TCPSTORE_APPEND, "f", "and many more bytes"), 0);
    assert_int_equal(rig_compare_set(&rig, 'e', "g", "", "x"), 0);
    assert_int_equal(rig_number(&rig, 'e', CT_TCPSTORE_ADD, "h", 1), 0);
    assert_int_equal(rig_query(&rig, 'd', CT_TCPSTORE_QUEUE_PUSH, "q", "x"), 0);
    assert_int_equal(rig_query(&rig, 'e', CT_TCPSTORE_QUEUE_POP, "q", ""), 0);
    assert_int_equal(rig_number(&rig, 'f', CT_TCPSTORE_BARRIER, "bar", 100), 0);
    assert_int_equal(rig_query(&rig, 'e', CT_TCPSTORE_LIST_KEYS, "", ""), 0);
    for (int i = 0; i < 100; i++) { /* the table grows twice */
        (void)snprintf(key, sizeof key, "%d", i);
        assert_int_equal(rig_set(&rig, 'd', key, key), 0);
    }
    assert_true(rig.starved > 200);
    rig_expect_value(&rig, "a", "3");
    rig_expect_value(&rig, "b", "2");
    rig_expect_value(&rig, "f", "xand many more bytes");
    rig_expect_value(&rig, "99", "99");
    rig_expect_nothing(&rig, 'c');
    rig_deinit(&rig); /* asserts that all memory was given back */
}

TEST(a_store_that_cannot_be_made_says_so)
{
    struct store *store;

    for (size_t n = 1; n <= 2; n++) {
        ct_alloc_fail_at(n);
        assert_int_equal(store_create(&store), -ENOMEM);
    }
    assert_int_equal(store_create(&store), 0);
    ct_alloc_fail_at(1);
    assert_null(store_add_client(store, NULL, NULL));
    store_destroy(store);
    store_destroy(NULL);
    store_remove_client(NULL);
}
