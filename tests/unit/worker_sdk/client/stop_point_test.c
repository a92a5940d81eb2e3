/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that run independently, in any order, stop at the same call. */
#include "tests/lib/test.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/client/stop_point.h"

enum {
    RANKS = 4
};

static char held[CT_STOP_VALUE_MAX]; /* the value of the key */
static int swaps;

static int swap(void *context, const char *expected, const char *desired,
                char actual[CT_STOP_VALUE_MAX], struct ctrun_error *err)
{
    swaps++;
    if (strcmp(held, expected) == 0)
        (void)ct_copy(held, sizeof held, desired);
    (void)ct_copy(actual, CT_STOP_VALUE_MAX, *held ? held : expected);
    return 0;
}

static const struct ct_stop_key key = {swap, NULL, "ctrun_should_stop"};

static int begin(void **state)
{
    held[0] = '\0';
    swaps = 0;
    return 0;
}

/* One rank makes one call; true if it stops there. */
static bool call(struct ct_stop_point *rank, bool is_asked, uint64_t now_ms)
{
    struct ctrun_error err;
    int rc = ct_stop_point_check(rank, is_asked, now_ms, &key, &err);

    if (rc < 0)
        fail_msg("%s", err.text);
    return rc > 0;
}

/* No rank waits for another: they may be any number of calls apart. Only rank `asked` gets the
 * request to stop, after `after` calls of all. */
static void run_world(unsigned seed, int asked, uint64_t after, uint64_t calls_per_ms)
{
    struct ct_stop_point ranks[RANKS] = {{0}};
    bool has_stopped[RANKS] = {false};
    uint64_t at = 0;
    int left = RANKS;

    begin(NULL);
    for (uint64_t now = 0; left > 0; now++) {
        int r = (int)((seed = seed * 1103515245u + 12345u) >> 16) % RANKS;

        if (has_stopped[r])
            continue;
        has_stopped[r] = call(&ranks[r], r == asked && now >= after,
                              5 + now / calls_per_ms);
        if (!has_stopped[r])
            continue;
        left--;
        if (at && at != ranks[r].call)
            fail_msg("seed %u: one stops at call %llu, another at %llu", seed,
                     (unsigned long long)at, (unsigned long long)ranks[r].call);
        at = ranks[r].call;
        assert_true(now < after + 2000 * calls_per_ms);
    }
}

TEST_AROUND(all_ranks_stop_at_the_same_call, begin, NULL)
{
    for (unsigned seed = 0; seed < 3000; seed++)
        run_world(seed, (int)(seed % RANKS), seed % 97, 1 + seed % 5);
}

TEST_AROUND(whoever_is_asked_before_anybody_looked_stops_all_at_once, begin, NULL)
{
    struct ct_stop_point one = {0}, other = {0};

    assert_true(call(&one, true, 1));
    assert_true(call(&other, false, 1));
    assert_true(call(&other, false, 2)); /* and at every later call */
}

TEST_AROUND(the_store_is_asked_seldom, begin, NULL)
{
    struct ct_stop_point rank = {0};

    for (uint64_t i = 0; i < 100000; i++)
        (void)call(&rank, false, 1000 + i / 10); /* 10 s of 10 calls a millisecond */
    assert_in_range(swaps, 90, 130);
}

TEST_AROUND(ranks_that_do_not_call_equally_often_are_told_so, begin, NULL)
{
    struct ct_stop_point rank = {.call = 7, .next = 8};
    struct ctrun_error err;

    (void)ct_copy(held, sizeof held, "stop 3");
    assert_int_equal(ct_stop_point_check(&rank, false, 1, &key, &err),
                     CTRUN_E_MISMATCH);
    assert_non_null(
        strstr(err.text, "at call 8 of ctrun_should_stop(), but the store still holds "
                         "'stop 3'"));
}

TEST_AROUND(a_store_that_lost_the_key_is_no_endless_loop, begin, NULL)
{
    struct ct_stop_point rank = {0};
    struct ctrun_error err;

    (void)call(&rank, false, 1);
    held[0] = '\0';
    assert_int_equal(ct_stop_point_check(&rank, false, 1, &key, &err),
                     CTRUN_E_MISMATCH);
}

TEST_AROUND(a_value_of_somebody_else_is_an_error, begin, NULL)
{
    static const char *const bad[] = {"go", "go -1", "stop 0", "halt 3", "go 1x"};
    struct ctrun_error err;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct ct_stop_point rank = {0};

        (void)ct_copy(held, sizeof held, bad[i]);
        assert_int_equal(ct_stop_point_check(&rank, false, 1, &key, &err),
                         CTRUN_E_PROTOCOL);
        assert_non_null(strstr(err.text, bad[i]));
    }
}
