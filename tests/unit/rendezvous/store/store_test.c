/* SPDX-License-Identifier: Apache-2.0 */
/* What each query does to the store. Which query releases which waiter: store_wait_test.c. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "tests/lib/store_rig.h"

RIG_TEST(set_and_get_take_any_bytes)
{
    static const uint8_t bytes[] = {0x00, 0xff, 0x80, '\n'};
    struct ct_tcpstore_request set = {.query = CT_TCPSTORE_SET,
                                      .key = {bytes, sizeof bytes},
                                      .value = {bytes, sizeof bytes}};
    struct ct_tcpstore_request get = {.query = CT_TCPSTORE_GET,
                                      .key = {bytes, sizeof bytes}};
    static const uint8_t reply[] = {4, 0, 0, 0, 0, 0, 0, 0, 0x00, 0xff, 0x80, '\n'};
    struct rig *rig = *state;

    assert_int_equal(rig_ask(rig, 'a', &set, NULL), 0);
    assert_int_equal(rig_ask(rig, 'a', &get, NULL), 0);
    rig_expect(rig, 'a', reply, sizeof reply);
    assert_int_equal(rig_set(rig, 'a', "", ""), 0);
    rig_expect_value(rig, "", "");
}

RIG_TEST(a_missing_key_reads_empty_and_the_connection_stays)
{
    struct rig *rig = *state;

    rig_expect_value(rig, "none", "");
    rig_expect_value(rig, "none", "");
}

RIG_TEST(values_of_all_sizes_replace_each_other)
{
    static char text[200];
    struct rig *rig = *state;

    for (int i = 0; i < 600; i++) {
        size_t length = (size_t)(i * 67 % 199);

        memset(text, 'a' + i % 26, length);
        text[length] = '\0';
        assert_int_equal(rig_set(rig, 'a', "k", text), 0);
        rig_expect_value(rig, "k", text);
    }
}

RIG_TEST(add_reads_numbers_as_strtoll_does)
{
    static const struct {
        const char *text;
        int64_t sum; /* after adding 1 */
    } good[] = {
        {"12abc", 13},
        {" 7", 8},
        {"\t\n\v\f\r 7", 8},
        {"+7", 8},
        {"0x10", 1},
        {"-1", 0},
        {"-0", 1},
        {"007", 8},
        {"5 6", 6},
        {"-9x", -8},
        {"9223372036854775807", INT64_MIN},
        {"-9223372036854775808", INT64_MIN + 1},
    };
    static const char *const bad[] = {
        "",
        "abc",
        " ",
        "+",
        "-",
        "--1",
        "+-1",
        "99999999999999999999",
        "9223372036854775808",
        "-9223372036854775809",
    };
    struct rig *rig = *state;
    char text[32];

    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        (void)rig_set(rig, 'a', "n", good[i].text);
        assert_int_equal(rig_number(rig, 'a', CT_TCPSTORE_ADD, "n", 1), 0);
        rig_expect_i64(rig, 'a', good[i].sum);
        (void)snprintf(text, sizeof text, "%" PRId64, good[i].sum);
        rig_expect_value(rig, "n", text);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        (void)rig_set(rig, 'a', "n", bad[i]);
        assert_int_equal(rig_number(rig, 'b', CT_TCPSTORE_ADD, "n", 1), -EINVAL);
        rig_expect_nothing(rig, 'b');
        rig_expect_value(rig, "n", bad[i]);
        rig_close(rig, 'b');
    }
}

RIG_TEST(add_starts_from_nothing_and_stores_text)
{
    struct rig *rig = *state;

    (void)rig_number(rig, 'a', CT_TCPSTORE_ADD, "zero", 0);
    rig_expect_i64(rig, 'a', 0);
    rig_expect_value(rig, "zero", "0");
    (void)rig_number(rig, 'a', CT_TCPSTORE_ADD, "n", INT64_MIN);
    rig_expect_i64(rig, 'a', INT64_MIN);
    rig_expect_value(rig, "n", "-9223372036854775808");
    (void)rig_number(rig, 'a', CT_TCPSTORE_ADD, "n", -1);
    rig_expect_i64(rig, 'a', INT64_MAX);
}

RIG_TEST(compare_set_follows_its_four_rows)
{
    struct rig *rig = *state;

    (void)rig_compare_set(rig, 'a', "k", "wrong", "x");
    rig_expect_blob(rig, 'a', "wrong");
    (void)rig_list(rig, 'a', CT_TCPSTORE_CHECK, "k", NULL);
    rig_expect_u8(rig, 'a', CT_TCPSTORE_NOT_READY);
    (void)rig_compare_set(rig, 'a', "k", "", "one");
    rig_expect_blob(rig, 'a', "one");
    (void)rig_compare_set(rig, 'a', "k", "one", "");
    rig_expect_blob(rig, 'a', "");
    (void)rig_compare_set(rig, 'a', "k", "", "two"); /* an empty value equals it */
    rig_expect_blob(rig, 'a', "two");
    (void)rig_compare_set(rig, 'a', "k", "", "three");
    rig_expect_blob(rig, 'a', "two");
    (void)rig_compare_set(rig, 'a', "k", "other", "three");
    rig_expect_blob(rig, 'a', "two");
    rig_expect_value(rig, "k", "two");
}

RIG_TEST(delete_tells_whether_it_was_there)
{
    struct rig *rig = *state;

    (void)rig_set(rig, 'a', "init/", "1");
    (void)rig_query(rig, 'a', CT_TCPSTORE_QUEUE_PUSH, "q", "x");
    (void)rig_query(rig, 'a', CT_TCPSTORE_GETNUMKEYS, "", "");
    rig_expect_i64(rig, 'a', 1); /* queues are no keys */
    (void)rig_query(rig, 'a', CT_TCPSTORE_DELETE_KEY, "init/", "");
    rig_expect_i64(rig, 'a', 1);
    (void)rig_query(rig, 'a', CT_TCPSTORE_DELETE_KEY, "init/", "");
    rig_expect_i64(rig, 'a', 0);
    (void)rig_query(rig, 'a', CT_TCPSTORE_DELETE_KEY, "q", "");
    rig_expect_i64(rig, 'a', 0);
    (void)rig_query(rig, 'a', CT_TCPSTORE_QUEUE_LEN, "q", "");
    rig_expect_i64(rig, 'a', 1);
}

TEST(ranks_that_count_themselves_in_are_counted_and_looks_are_no_questions)
{
    static const struct ct_tcpstore_request add = {
        .query = CT_TCPSTORE_ADD, .key = {(const uint8_t *)"init/", 5}, .number = 1};
    static const struct ct_tcpstore_request other = {
        .query = CT_TCPSTORE_ADD, .key = {(const uint8_t *)"/init/", 6}, .number = 1};
    struct store_stats stats;
    struct rig rig;

    (void)state;
    rig_init(&rig, 0);
    for (char name = 'a'; name <= 'c'; name++) {
        (void)rig_ask(&rig, name, &add, NULL);
        rig_expect_i64(&rig, name, name - 'a' + 1);
    }
    (void)rig_ask(&rig, 'a', &other, NULL); /* a key of a program */
    rig_expect_i64(&rig, 'a', 1);
    store_get_stats(rig.store, &stats);
    assert_int_equal(stats.ranks, 3);
    assert_int_equal(stats.questions, 4);
    (void)rig_query(&rig, 'a', CT_TCPSTORE_CHECK, "k", "");
    store_get_stats(rig.store, &stats);
    assert_int_equal(stats.requests, 5);
    assert_int_equal(stats.questions, 4);
    rig_deinit(&rig);
}

TEST(append_extends_up_to_its_cap)
{
    size_t length = 8 << 20;
    uint8_t *piece = malloc(length);
    struct ct_tcpstore_request append = {.query = CT_TCPSTORE_APPEND,
                                         .key = {(const uint8_t *)"k", 1},
                                         .value = {piece, length}};
    struct store_stats stats;
    struct rig rig;

    assert_non_null(piece);
    memset(piece, 'x', length);
    rig_init(&rig, 0);
    for (int i = 0; i < 8; i++)
        assert_int_equal(rig_ask(&rig, 'a', &append, NULL), 0);
    append.value.length = 1;
    assert_int_equal(rig_ask(&rig, 'a', &append, NULL), -EMSGSIZE);
    (void)rig_query(&rig, 'b', CT_TCPSTORE_DELETE_KEY, "k", "");
    store_get_stats(rig.store, &stats);
    assert_true(stats.data_bytes < 1 << 20); /* all memory was given back */
    rig_deinit(&rig);
    free(piece);
}

RIG_TEST(multi_set_changes_nothing_until_all_of_it_came)
{
    const struct ct_tcpstore_blob pairs[] = {rig_blob("a"), rig_blob("1"),
                                             rig_blob("b"), rig_blob(""),
                                             rig_blob("a"), rig_blob("2")};
    struct ct_tcpstore_request request = {.query = CT_TCPSTORE_MULTI_SET, .count = 3};
    struct ct_buf buf;
    struct rig *rig = *state;

    (void)rig_set(rig, 'a', "b", "old");
    ct_buf_init(&buf, 1000);
    assert_int_equal(ct_tcpstore_encode_request(&buf, CT_TCPSTORE_D2, &request, pairs),
                     0);
    for (size_t n = 0; n + 1 < ct_buf_length(&buf); n++) {
        assert_int_equal(rig_send(rig, 'a', ct_buf_data(&buf) + n, 1), 0);
        rig_expect_value(rig, "a", "");
        rig_expect_value(rig, "b", "old");
    }
    assert_true(store_is_mid_request(rig_client(rig, 'a')));
    rig_send(rig, 'a', ct_buf_data(&buf) + ct_buf_length(&buf) - 1, 1);
    rig_expect_nothing(rig, 'a');
    rig_expect_value(rig, "a", "2"); /* the last of two values counts */
    rig_expect_value(rig, "b", "");
    assert_int_equal(rig_number(rig, 'a', CT_TCPSTORE_ADD, "b", 1), -EINVAL);
    ct_buf_deinit(&buf);
}

RIG_TEST(queues_are_first_in_first_out_beside_the_keys)
{
    struct rig *rig = *state;

    (void)rig_query(rig, 'a', CT_TCPSTORE_QUEUE_POP, "q", "");
    rig_expect_i64(rig, 'a', 0);
    (void)rig_query(rig, 'a', CT_TCPSTORE_QUEUE_PUSH, "q", "one");
    (void)rig_query(rig, 'a', CT_TCPSTORE_QUEUE_PUSH, "q", "");
    rig_expect_nothing(rig, 'a');
    (void)rig_set(rig, 'a', "q", "value");
    rig_expect_value(rig, "q", "value");
    (void)rig_query(rig, 'a', CT_TCPSTORE_QUEUE_POP, "q", "");
    rig_expect(rig, 'a', "\2\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0one", 19);
    (void)rig_query(rig, 'a', CT_TCPSTORE_QUEUE_POP, "q", "");
    rig_expect(rig, 'a', "\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16);
    (void)rig_query(rig, 'a', CT_TCPSTORE_QUEUE_LEN, "q", "");
    rig_expect_i64(rig, 'a', 0);
    (void)rig_query(rig, 'a', CT_TCPSTORE_DELETE_KEY, "q", "");
    rig_expect_i64(rig, 'a', 1);
}

RIG_TEST(list_keys_is_in_order_of_creation)
{
    struct rig *rig = *state;

    (void)rig_query(rig, 'a', CT_TCPSTORE_LIST_KEYS, "", "");
    rig_expect_i64(rig, 'a', 0);
    (void)rig_set(rig, 'a', "b", "1");
    (void)rig_set(rig, 'a', "a", "1");
    (void)rig_wait(rig, 'b', "waited for");
    (void)rig_query(rig, 'a', CT_TCPSTORE_QUEUE_PUSH, "q", "x");
    (void)rig_query(rig, 'a', CT_TCPSTORE_LIST_KEYS, "", "");
    rig_expect(rig, 'a', "\2\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0b\1\0\0\0\0\0\0\0a", 26);
}

/* Sets the state key of a run, as torchrun's agents do first. */
static int begin_run(struct rig *rig, char client, const char *state)
{
    int rc = rig_compare_set(rig, client, state, "", "new");

    rig_expect_blob(rig, client, "new");
    return rc;
}

/* A daemon runs longer than the runs that use it. */
RIG_TEST(the_keys_of_a_torchrun_run_go_with_its_last_agent)
{
    struct store_stats empty, now;
    struct rig *rig = *state;

    rig_expect_value(rig, "none", ""); /* this client stays connected */
    assert_int_equal(rig_set(rig, 'h', "torch.rendezvous.x", "none of theirs"), 0);
    store_get_stats(rig->store, &empty);
    assert_int_equal(begin_run(rig, 'a', "/torch.rendezvous.x"), 0);
    assert_int_equal(rig_compare_set(rig, 'b', "/torch.rendezvous.x", "new", "both"),
                     0);
    rig_expect_blob(rig, 'b', "both");
    assert_int_equal(begin_run(rig, 'c', "/torch.rendezvous.x.1"), 0);
    assert_int_equal(rig_set(rig, 'a', "/torch.rendezvous.x.0/MASTER_PORT", "1"), 0);
    assert_int_equal(rig_set(rig, 'a', "/torch.rendezvous.x.12/MASTER_PORT", "2"), 0);
    assert_int_equal(rig_set(rig, 'c', "/torch.rendezvous.x.1.0/MASTER_PORT", "3"), 0);
    rig_close(rig, 'a');
    rig_expect_value(rig, "/torch.rendezvous.x.0/MASTER_PORT", "1");
    rig_close(rig, 'b');
    rig_expect_value(rig, "/torch.rendezvous.x", "");
    rig_expect_value(rig, "/torch.rendezvous.x.0/MASTER_PORT", "");
    rig_expect_value(rig, "/torch.rendezvous.x.12/MASTER_PORT", "");
    rig_expect_value(rig, "/torch.rendezvous.x.1", "new");
    rig_expect_value(rig, "/torch.rendezvous.x.1.0/MASTER_PORT", "3");
    rig_close(rig, 'c');
    store_get_stats(rig->store, &now);
    assert_int_equal(now.keys, 1);
    assert_int_equal(begin_run(rig, 'd', "/torch.rendezvous.x"), 0); /* again */
    assert_int_equal(rig_set(rig, 'd', "/torch.rendezvous.x.0/MASTER_PORT", "4"), 0);
    while (store_purge(rig->store, 1))
        ;
    rig_expect_value(rig, "/torch.rendezvous.x.0/MASTER_PORT", "4");
    rig_close(rig, 'd');
    while (store_purge(rig->store, 1))
        ;
    store_get_stats(rig->store, &now);
    assert_int_equal(now.data_bytes, empty.data_bytes);
}

RIG_TEST(names_of_runs_that_look_like_keys_of_others)
{
    struct rig *rig = *state;

    assert_int_equal(begin_run(rig, 'a', "/torch.rendezvous.x.1/y"), 0);
    assert_int_equal(rig_set(rig, 'a', "/torch.rendezvous.x.1/y.0/k", "1"), 0);
    assert_int_equal(begin_run(rig, 'b', "/torch.rendezvous.x"), 0);
    assert_int_equal(rig_set(rig, 'b', "/torch.rendezvous.x.1/k", "2"), 0);
    rig_close(rig, 'b');
    rig_expect_value(rig, "/torch.rendezvous.x.1/k", "");
    rig_expect_value(rig, "/torch.rendezvous.x.1/y.0/k", "1");
    rig_close(rig, 'a');
    rig_expect_value(rig, "/torch.rendezvous.x.1/y.0/k", "");
}

/* A run ends while a client of another one waits for its key: the client waits on, and the next run
 * releases it. */
RIG_TEST(who_waits_outlives_the_run)
{
    struct rig *rig = *state;

    assert_int_equal(begin_run(rig, 'a', "/torch.rendezvous.x"), 0);
    assert_int_equal(rig_wait(rig, 'c', "/torch.rendezvous.x.0/k"), 0);
    rig_close(rig, 'a');
    assert_int_equal(begin_run(rig, 'b', "/torch.rendezvous.x"), 0);
    assert_int_equal(rig_set(rig, 'b', "/torch.rendezvous.x.0/k", "1"), 0);
    rig_expect_u8(rig, 'c', 0);
    rig_close(rig, 'b');
    rig_expect_value(rig, "/torch.rendezvous.x.0/k", "");
}

RIG_TEST(thousands_of_keys_come_and_go)
{
    enum {
        KEYS = 5000
    };
    struct rig *rig = *state;
    char key[32];

    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < KEYS; i++) {
            (void)snprintf(key, sizeof key, "/rank/%d", i);
            (void)rig_set(rig, 'a', key, key);
        }
        for (int i = 0; i < KEYS; i += 1 + round) {
            (void)snprintf(key, sizeof key, "/rank/%d", i);
            rig_expect_value(rig, key, key);
            (void)rig_query(rig, 'a', CT_TCPSTORE_DELETE_KEY, key, "");
            rig_expect_i64(rig, 'a', 1);
        }
        for (int i = 0; i < KEYS; i++) {
            (void)snprintf(key, sizeof key, "/rank/%d", i);
            rig_expect_value(rig, key, i % (1 + round) ? key : "");
        }
    }
}
