/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/node/failover.h"

#include "agent/loop/limits.h"
#include "tests/lib/test.h"

enum {
    NOW_MS = 1000,
    SEEK_MS = 5000
};

static const uint64_t seeks[] = {0, SEEK_MS};

/* True if workers live that must end before the next world starts. */
static bool lives(enum failover_work work)
{
    return work == FAILOVER_RUNS || work == FAILOVER_ENDS || work == FAILOVER_CLEANS ||
           work == FAILOVER_FENCES || work == FAILOVER_LEAVES;
}

struct told {
    enum failover_state from, to;
    enum failover_event event;
    enum failover_work work;
    bool may_seek; /* another server may be elected */
    unsigned actions;
    uint64_t left_ms;
};

/* Calls `look` for the whole table: each event in each state, with each work. */
static void walk(void (*look)(const struct told *told))
{
    for (int from = 0; from < FAILOVER_STATES; from++)
        for (int event = 0; event < FAILOVER_EVENTS; event++)
            for (int work = 0; work < FAILOVER_WORKS; work++)
                for (int i = 0; i < 2; i++) {
                    struct failover failover = {.state = (enum failover_state)from,
                                                .is_cut = i > 0};
                    const struct failover_facts facts = {(enum failover_work)work,
                                                         seeks[i], NOW_MS};
                    struct told told = {.from = failover.state,
                                        .event = (enum failover_event)event,
                                        .work = facts.work,
                                        .may_seek = i > 0};

                    if (!failover_is_drawn(told.from, told.event, told.work))
                        continue;
                    told.actions = failover_next(&failover, told.event, &facts);
                    told.to = failover.state;
                    told.left_ms = failover_left_ms(&failover, NOW_MS);
                    look(&told);
                }
}

static void look_at_edge(const struct told *told)
{
    assert_true(told->from == told->to || failover_is_edge(told->from, told->to));
}

TEST(every_way_is_drawn)
{
    walk(look_at_edge);
}

static bool is_walked[FAILOVER_STATES][FAILOVER_STATES];

static void note_edge(const struct told *told)
{
    is_walked[told->from][told->to] = true;
}

TEST(every_drawn_way_is_gone)
{
    walk(note_edge);
    for (int from = 0; from < FAILOVER_STATES; from++)
        for (int to = 0; to < FAILOVER_STATES; to++)
            if (failover_is_edge((enum failover_state)from, (enum failover_state)to) &&
                !is_walked[from][to])
                fail_msg("nothing leads from %s to %s",
                         failover_state_name((enum failover_state)from),
                         failover_state_name((enum failover_state)to));
}

static void look_at_joining(const struct told *told)
{
    if (told->event == FAILOVER_GONE || !(told->actions & FAILOVER_JOIN))
        return;
    assert_false(lives(told->work));
    assert_int_equal(told->to, FAILOVER_LINKED);
}

TEST(nobody_joins_anew_while_its_workers_live)
{
    walk(look_at_joining);
}

static void look_at_loss(const struct told *told)
{
    const bool is_down = told->event == FAILOVER_LOST ||
                         told->event == FAILOVER_REFUSED;

    if (!is_down || told->from == FAILOVER_OVER)
        return;
    if (told->work == FAILOVER_RUNS || told->work == FAILOVER_ENDS)
        assert_true(told->actions & (FAILOVER_END_WORKERS | FAILOVER_FENCE));
    else
        assert_false(told->actions & FAILOVER_END_WORKERS);
    if (told->actions & FAILOVER_CONNECT)
        assert_false(lives(told->work)); /* it is not a member any more */
    if (told->actions & FAILOVER_SEEK)
        assert_true(told->may_seek && told->event == FAILOVER_LOST &&
                    told->left_ms == SEEK_MS);
}

TEST(a_lost_server_ends_the_workers)
{
    walk(look_at_loss);
}

static void look_at_limbo(const struct told *told)
{
    const unsigned ways = FAILOVER_SEEK | FAILOVER_FENCE | FAILOVER_CONNECT |
                          FAILOVER_FAIL;
    const bool waits_for_the_end = told->work == FAILOVER_FENCES ||
                                   told->work == FAILOVER_LEAVES ||
                                   told->work == FAILOVER_IS_OVER;

    if ((told->event == FAILOVER_LOST || told->event == FAILOVER_REFUSED) &&
        told->from != FAILOVER_OVER && !waits_for_the_end)
        assert_int_equal(__builtin_popcount(told->actions & ways), 1);
}

TEST(a_lost_server_has_one_way_on)
{
    walk(look_at_limbo);
}

static unsigned next(struct failover *failover, enum failover_event event,
                     enum failover_work work, uint64_t now_ms)
{
    const struct failover_facts facts = {work, SEEK_MS, now_ms};

    return failover_next(failover, event, &facts);
}

TEST(the_time_to_find_the_next_server_counts_from_the_last_one)
{
    struct failover failover = {.state = FAILOVER_LINKED};

    assert_int_equal(next(&failover, FAILOVER_LOST, FAILOVER_WAITS, NOW_MS),
                     FAILOVER_SEEK);
    assert_int_equal(next(&failover, FAILOVER_LOST, FAILOVER_WAITS, NOW_MS + 4000),
                     FAILOVER_SEEK);
    assert_int_equal(failover_left_ms(&failover, NOW_MS + 4000), SEEK_MS - 4000);
    assert_int_equal(next(&failover, FAILOVER_LOST, FAILOVER_WAITS, NOW_MS + SEEK_MS),
                     FAILOVER_FAIL); /* and no further search follows */
    assert_int_equal(failover.state, FAILOVER_OVER);
    failover = (struct failover){.state = FAILOVER_SEEKING,
                                 .seek_deadline_ms = NOW_MS + 1};
    assert_int_equal(next(&failover, FAILOVER_RESUMED, FAILOVER_WAITS, NOW_MS),
                     FAILOVER_SEND_AGAIN);
    assert_int_equal(next(&failover, FAILOVER_LOST, FAILOVER_WAITS, NOW_MS + 9000),
                     FAILOVER_SEEK);
    assert_int_equal(failover_left_ms(&failover, NOW_MS + 9000), SEEK_MS);
}

/* A server is found while the workers end, and lost again. It stays true that it did not know this
 * node. */
TEST(who_is_found_is_joined_when_the_last_worker_is_gone)
{
    static const enum failover_work ends[] = {FAILOVER_ENDS, FAILOVER_CLEANS};

    for (int i = 0; i < 2; i++) {
        struct failover failover = {.state = FAILOVER_SEEKING,
                                    .seek_deadline_ms = NOW_MS + SEEK_MS};

        assert_int_equal(next(&failover, FAILOVER_WELCOMED, ends[i], NOW_MS), 0);
        assert_int_equal(failover.state, FAILOVER_FOUND);
        assert_true(next(&failover, FAILOVER_LOST, ends[i], NOW_MS) & FAILOVER_SEEK);
        assert_int_equal(failover.state, FAILOVER_FOUND);
        assert_int_equal(next(&failover, FAILOVER_GONE, ends[i], NOW_MS),
                         FAILOVER_JOIN);
        assert_int_equal(failover.state, FAILOVER_SEEKING);
        assert_int_equal(next(&failover, FAILOVER_WELCOMED, FAILOVER_WAITS, NOW_MS),
                         FAILOVER_JOIN);
        assert_int_equal(failover.state, FAILOVER_LINKED);
    }
}

/* The connection breaks while the workers end: JOIN is sent once more when it is back. */
TEST(who_is_found_resumes_after_the_last_worker_is_gone)
{
    struct failover failover = {.state = FAILOVER_SEEKING,
                                .seek_deadline_ms = NOW_MS + SEEK_MS};

    (void)next(&failover, FAILOVER_WELCOMED, FAILOVER_ENDS, NOW_MS);
    assert_int_equal(next(&failover, FAILOVER_BROKE, FAILOVER_ENDS, NOW_MS), 0);
    assert_int_equal(failover.state, FAILOVER_FOUND);
    assert_int_equal(next(&failover, FAILOVER_GONE, FAILOVER_ENDS, NOW_MS),
                     FAILOVER_JOIN);
    assert_int_equal(failover.state, FAILOVER_SEEKING);
    assert_int_equal(next(&failover, FAILOVER_RESUMED, FAILOVER_WAITS, NOW_MS),
                     FAILOVER_SEND_AGAIN);
    assert_int_equal(failover.state, FAILOVER_LINKED);
}

/* The workers end later than the search: there is no second search. */
TEST(a_search_in_vain_is_the_end_when_the_last_worker_is_gone)
{
    struct failover failover = {.state = FAILOVER_LINKED};

    assert_true(next(&failover, FAILOVER_LOST, FAILOVER_RUNS, NOW_MS) & FAILOVER_SEEK);
    assert_int_equal(next(&failover, FAILOVER_LOST, FAILOVER_ENDS, NOW_MS + SEEK_MS),
                     FAILOVER_FENCE);
    assert_int_equal(failover.state, FAILOVER_FENCING);
    assert_int_equal(next(&failover, FAILOVER_GONE, FAILOVER_FENCES, NOW_MS + SEEK_MS),
                     FAILOVER_FAIL);
    assert_int_equal(failover.state, FAILOVER_OVER);
    failover = (struct failover){.state = FAILOVER_FENCING};
    assert_int_equal(next(&failover, FAILOVER_GONE, FAILOVER_FENCES, NOW_MS),
                     FAILOVER_CONNECT); /* the only server may come back */
}

TEST(who_leaves_the_run_looks_for_nobody)
{
    struct failover failover = {.state = FAILOVER_LINKED};

    assert_int_equal(next(&failover, FAILOVER_LOST, FAILOVER_LEAVES, NOW_MS), 0);
    assert_int_equal(failover.state, FAILOVER_OVER);
    failover.state = FAILOVER_FOUND;
    assert_int_equal(next(&failover, FAILOVER_GONE, FAILOVER_LEAVES, NOW_MS), 0);
    assert_int_equal(failover.state, FAILOVER_OVER);
}

TEST(a_silent_server_is_waited_for_longer_than_one_that_refuses)
{
    assert_int_equal(failover_return_ms(true, 0, 900000), LINK_RETURN_MS);
    assert_int_equal(failover_return_ms(true, 0, 20), 20);
    assert_int_equal(failover_return_ms(false, 0, 900000), LINK_RECONNECT_MS);
    assert_int_equal(failover_return_ms(false, 1000, 900000), LINK_RECONNECT_MS - 1000);
    assert_int_equal(failover_return_ms(false, LINK_RECONNECT_MS, 900000),
                     LINK_RECONNECT_MIN_MS);
}

TEST(workers_are_gone_before_the_lease_is)
{
    assert_int_equal(failover_grace_ms(30000, 5000, 900), 500);
    assert_int_equal(failover_grace_ms(30000, 5000, 200), 200);
    assert_int_equal(failover_grace_ms(100, 5000, 900), 100);
}
