/* SPDX-License-Identifier: Apache-2.0 */
/* Who waits, who is released, with exactly which bytes, and in which order. */
#include <errno.h>
#include <stdlib.h>

#include "tests/lib/store_rig.h"

RIG_TEST(wait_on_what_is_there_or_on_nothing_returns_at_once)
{
    struct ct_tcpstore_request none = {.query = CT_TCPSTORE_WAIT};
    struct rig *rig = *state;

    (void)rig_set(rig, 'a', "k", "");
    (void)rig_list(rig, 'b', CT_TCPSTORE_WAIT, "k", "k");
    rig_expect_u8(rig, 'b', 0);
    (void)rig_ask(rig, 'b', &none, NULL);
    rig_expect_u8(rig, 'b', 0);
    none.query = CT_TCPSTORE_CHECK;
    (void)rig_ask(rig, 'b', &none, NULL);
    rig_expect_u8(rig, 'b', 0);
}

static void set_add(struct rig *rig)
{
    (void)rig_number(rig, 'a', CT_TCPSTORE_ADD, "k", 0);
    rig_expect_i64(rig, 'a', 0);
}
static void set_plain(struct rig *rig)
{
    (void)rig_set(rig, 'a', "k", "");
}
static void set_append(struct rig *rig)
{
    (void)rig_query(rig, 'a', CT_TCPSTORE_APPEND, "k", "x");
}
static void set_compare(struct rig *rig)
{
    (void)rig_compare_set(rig, 'a', "k", "", "x");
    rig_expect_blob(rig, 'a', "x");
}
static void set_push(struct rig *rig)
{
    (void)rig_query(rig, 'a', CT_TCPSTORE_QUEUE_PUSH, "k", "x");
}
static void set_barrier(struct rig *rig)
{
    (void)rig_number(rig, 'a', CT_TCPSTORE_BARRIER, "k", 1);
    rig_expect_u8(rig, 'a', 0);
}

TEST(everything_that_sets_a_name_releases_its_waiters)
{
    static void (*const setters[])(struct rig * rig) = {
        set_plain, set_add, set_append, set_compare, set_push, set_barrier,
    };

    for (size_t i = 0; i < sizeof setters / sizeof *setters; i++) {
        struct rig rig;

        rig_init(&rig, 0);
        (void)rig_wait(&rig, 'b', "k");
        rig_expect_nothing(&rig, 'b');
        setters[i](&rig);
        assert_int_equal(rig.notices[1], 1);
        rig_expect_u8(&rig, 'b', 0);
        setters[0](&rig); /* releases only once */
        rig_expect_nothing(&rig, 'b');
        rig_deinit(&rig);
    }
}

RIG_TEST(multi_set_releases_who_waits_for_several)
{
    const struct ct_tcpstore_blob pairs[] = {rig_blob("x"), rig_blob("1"),
                                             rig_blob("y"), rig_blob("2")};
    struct ct_tcpstore_request request = {.query = CT_TCPSTORE_MULTI_SET, .count = 2};
    struct rig *rig = *state;

    (void)rig_list(rig, 'b', CT_TCPSTORE_WAIT, "x", "y");
    (void)rig_ask(rig, 'a', &request, pairs);
    rig_expect_u8(rig, 'b', 0);
}

RIG_TEST(what_does_not_set_the_name_releases_nobody)
{
    struct rig *rig = *state;

    (void)rig_wait(rig, 'b', "k");
    (void)rig_compare_set(rig, 'a', "k", "expected", "x");
    rig_expect_blob(rig, 'a', "expected");
    (void)rig_query(rig, 'a', CT_TCPSTORE_DELETE_KEY, "k", "");
    (void)rig_query(rig, 'a', CT_TCPSTORE_GET, "k", "");
    (void)rig_query(rig, 'a', CT_TCPSTORE_QUEUE_POP, "k", "");
    (void)rig_set(rig, 'a', "other", "x");
    rig_expect_nothing(rig, 'b');
    assert_int_equal(rig->notices[1], 0);
}

RIG_TEST(a_name_listed_twice_needs_one_set)
{
    struct rig *rig = *state;

    (void)rig_list(rig, 'b', CT_TCPSTORE_WAIT, "k", "k");
    (void)rig_set(rig, 'a', "k", "x");
    rig_expect_u8(rig, 'b', 0);
}

RIG_TEST(set_and_deleted_counts_as_set)
{
    struct rig *rig = *state;

    (void)rig_list(rig, 'b', CT_TCPSTORE_WAIT, "x", "y");
    (void)rig_set(rig, 'a', "x", "1");
    (void)rig_query(rig, 'a', CT_TCPSTORE_DELETE_KEY, "x", "");
    rig_expect_nothing(rig, 'b');
    (void)rig_set(rig, 'a', "y", "1");
    rig_expect_u8(rig, 'b', 0);
}

RIG_TEST(a_new_wait_replaces_the_pending_one)
{
    struct rig *rig = *state;

    (void)rig_wait(rig, 'b', "first");
    (void)rig_wait(rig, 'b', "second");
    (void)rig_set(rig, 'a', "first", "x");
    rig_expect_nothing(rig, 'b');
    (void)rig_set(rig, 'a', "second", "x");
    rig_expect_u8(rig, 'b', 0);
}

RIG_TEST(who_waits_may_ask_other_things)
{
    struct rig *rig = *state;

    (void)rig_wait(rig, 'b', "k");
    (void)rig_query(rig, 'b', CT_TCPSTORE_GETNUMKEYS, "", "");
    rig_expect_i64(rig, 'b', 0);
    (void)rig_set(rig, 'b', "k", "x"); /* its own SET releases it; no on_output() */
    rig_expect_u8(rig, 'b', 0);
    assert_int_equal(rig->notices[1], 0);
}

RIG_TEST(cancel_answers_always_and_leaves_nothing_behind)
{
    struct rig *rig = *state;

    (void)rig_query(rig, 'b', CT_TCPSTORE_CANCEL_WAIT, "", "");
    rig_expect_u8(rig, 'b', 1);
    (void)rig_wait(rig, 'b', "k");
    (void)rig_query(rig, 'b', CT_TCPSTORE_CANCEL_WAIT, "", "");
    rig_expect_u8(rig, 'b', 1);
    (void)rig_set(rig, 'a', "k", "x");
    rig_expect_nothing(rig, 'b');
}

RIG_TEST(a_legacy_client_that_speaks_has_given_up_waiting)
{
    static const uint8_t wait[] = {5, 1, 0, 0, 0, 0, 0, 0, 0,
                                   1, 0, 0, 0, 0, 0, 0, 0, 'k'};
    struct rig *rig = *state;

    (void)rig_send(rig, 'b', wait, sizeof wait);
    (void)rig_send(rig, 'b', "\6", 1);
    rig_expect_i64(rig, 'b', 0);
    (void)rig_set(rig, 'a', "k", "x");
    rig_expect_nothing(rig, 'b');
    (void)rig_query(rig, 'a', CT_TCPSTORE_DELETE_KEY, "k", "");
    /* The first byte of a request is enough. */
    (void)rig_send(rig, 'b', wait, sizeof wait);
    (void)rig_send(rig, 'b', "\2", 1);
    (void)rig_set(rig, 'a', "k", "x");
    rig_expect_nothing(rig, 'b');
}

RIG_TEST(a_closed_waiter_is_forgotten)
{
    struct store_stats before;
    struct store_stats after;
    struct rig *rig = *state;

    rig_expect_nothing(rig, 'a');
    store_get_stats(rig->store, &before);
    (void)rig_list(rig, 'b', CT_TCPSTORE_WAIT, "x", "y");
    rig_close(rig, 'b');
    store_get_stats(rig->store, &after);
    assert_int_equal(after.data_bytes, before.data_bytes);
    assert_int_equal(after.waiting, 0);
    (void)rig_wait(rig, 'c', "other"); /* perhaps in the same memory as b's */
    (void)rig_set(rig, 'a', "x", "1");
    (void)rig_set(rig, 'a', "y", "1");
    rig_expect_nothing(rig, 'c');
}

/* ---- Barriers --------------------------------------------------------------------------- */

static int barrier(struct rig *rig, char name, int64_t size)
{
    return rig_number(rig, name, CT_TCPSTORE_BARRIER, "bar", size);
}

RIG_TEST(the_last_of_a_barrier_releases_all)
{
    struct rig *rig = *state;

    (void)barrier(rig, 'a', 3);
    (void)barrier(rig, 'b', 3);
    rig_expect_nothing(rig, 'a');
    (void)barrier(rig, 'c', 3);
    for (char name = 'a'; name <= 'c'; name++)
        rig_expect_u8(rig, name, 0);
    rig_expect_value(rig, "bar", "3");
    (void)barrier(rig, 'd', 3); /* one more than needed returns at once */
    rig_expect_u8(rig, 'd', 0);
    rig_expect_value(rig, "bar", "4");
    (void)barrier(rig, 'd', 0);
    rig_expect_u8(rig, 'd', 0);
    (void)barrier(rig, 'd', -1);
    rig_expect_u8(rig, 'd', 0);
}

RIG_TEST(a_cancelled_participant_stays_counted)
{
    struct rig *rig = *state;

    (void)barrier(rig, 'a', 2);
    (void)rig_query(rig, 'a', CT_TCPSTORE_CANCEL_WAIT, "", "");
    rig_expect_u8(rig, 'a', 1);
    (void)barrier(rig, 'b', 2);
    rig_expect_u8(rig, 'b', 0);
    rig_expect_nothing(rig, 'a');
}

RIG_TEST(a_failed_compare_does_not_open_a_barrier)
{
    struct rig *rig = *state;

    (void)barrier(rig, 'a', 2);
    (void)rig_compare_set(rig, 'b', "bar", "", "x");
    rig_expect_blob(rig, 'b', "1");
    (void)rig_compare_set(rig, 'b', "bar", "7", "x");
    rig_expect_blob(rig, 'b', "1");
    rig_expect_nothing(rig, 'a');
    (void)rig_set(rig, 'b', "bar", "1"); /* a SET releases, as in PyTorch */
    rig_expect_u8(rig, 'a', 0);
}

RIG_TEST(a_barrier_counts_on_a_number_that_is_there)
{
    struct rig *rig = *state;

    (void)rig_set(rig, 'a', "bar", "5");
    (void)barrier(rig, 'a', 2);
    rig_expect_u8(rig, 'a', 0);
    rig_expect_value(rig, "bar", "6");
    (void)rig_set(rig, 'a', "bar", "abc");
    assert_int_equal(barrier(rig, 'a', 2), -EINVAL);
    rig_expect_value(rig, "bar", "abc");
}

/* ---- Queues ----------------------------------------------------------------------------- */

static void push(struct rig *rig, const char *key)
{
    (void)rig_query(rig, 'h', CT_TCPSTORE_QUEUE_PUSH, key, "x");
}

static void pop(struct rig *rig, char name, const char *key)
{
    (void)rig_query(rig, name, CT_TCPSTORE_QUEUE_POP, key, "");
    rig_expect(rig, name, "\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0x", 17);
}

RIG_TEST(each_push_releases_one_waiter_in_order_of_arrival)
{
    struct rig *rig = *state;

    for (char name = 'a'; name <= 'c'; name++)
        (void)rig_wait(rig, name, "q");
    for (char name = 'a'; name <= 'c'; name++) {
        push(rig, "q");
        rig_expect_u8(rig, name, 0);
        for (char other = (char)(name + 1); other <= 'c'; other++)
            rig_expect_nothing(rig, other);
    }
}

RIG_TEST(who_pops_and_waits_again_queues_behind_the_others)
{
    struct rig *rig = *state;

    (void)rig_wait(rig, 'a', "q");
    (void)rig_wait(rig, 'b', "q");
    push(rig, "q");
    rig_expect_u8(rig, 'a', 0);
    pop(rig, 'a', "q");
    (void)rig_wait(rig, 'a', "q");
    push(rig, "q");
    rig_expect_u8(rig, 'b', 0); /* PyTorch's server would release a again */
    rig_expect_nothing(rig, 'a');
}

RIG_TEST(who_left_swallows_no_push)
{
    struct rig *rig = *state;

    for (char name = 'a'; name <= 'c'; name++)
        (void)rig_wait(rig, name, "q");
    (void)rig_query(rig, 'a', CT_TCPSTORE_CANCEL_WAIT, "", "");
    rig_expect_u8(rig, 'a', 1);
    rig_close(rig, 'b');
    push(rig, "q");
    rig_expect_u8(rig, 'c', 0);
    rig_expect_nothing(rig, 'a');
}

TEST(a_waiter_for_two_queues_needs_a_push_to_each)
{
    static const char *const orders[][2] = {{"x", "y"}, {"y", "x"}};

    for (int i = 0; i < 2; i++) {
        struct rig rig;

        rig_init(&rig, 0);
        (void)rig_list(&rig, 'a', CT_TCPSTORE_WAIT, "x", "y");
        (void)rig_wait(&rig, 'b', orders[i][0]);
        push(&rig, orders[i][0]); /* passes a, releases b */
        rig_expect_nothing(&rig, 'a');
        rig_expect_u8(&rig, 'b', 0);
        push(&rig, orders[i][1]);
        rig_expect_u8(&rig, 'a', 0);
        rig_deinit(&rig);
    }
}

RIG_TEST(a_set_on_a_queues_name_releases_all)
{
    struct rig *rig = *state;

    (void)rig_wait(rig, 'a', "q");
    (void)rig_wait(rig, 'b', "q");
    (void)rig_set(rig, 'h', "q", "value");
    rig_expect_u8(rig, 'a', 0);
    rig_expect_u8(rig, 'b', 0);
    (void)rig_query(rig, 'a', CT_TCPSTORE_QUEUE_POP, "q", "");
    rig_expect_i64(rig, 'a', 0);
}

/* ---- Many ------------------------------------------------------------------------------- */

TEST(one_set_releases_ten_thousand_with_one_byte_each)
{
    enum {
        WAITERS = 10000
    };
    static const uint8_t wait[] = {0x00, 0xce, 0xf7, 0x85, 0x3c, 6, 1, 0, 0, 0, 0,  0,
                                   0,    0,    1,    0,    0,    0, 0, 0, 0, 0, 'k'};
    struct store_client **clients = calloc(WAITERS, sizeof *clients);
    struct store_stats stats;
    size_t notices = 0;
    struct rig rig;

    assert_non_null(clients);
    rig_init(&rig, 0);
    for (int i = 0; i < WAITERS; i++) {
        clients[i] = store_add_client(rig.store, rig_on_output, &notices);
        assert_int_equal(store_receive(clients[i], wait, sizeof wait), 0);
    }
    store_get_stats(rig.store, &stats);
    assert_int_equal(stats.waiting, WAITERS);
    (void)rig_set(&rig, 'a', "k", "x");
    assert_int_equal(notices, WAITERS);
    for (int i = 0; i < WAITERS; i++) {
        assert_int_equal(ct_buf_length(store_output(clients[i])), 1);
        assert_int_equal(*ct_buf_data(store_output(clients[i])), 0);
    }
    rig_deinit(&rig);
    free(clients);
}
