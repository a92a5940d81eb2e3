/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a failed worker is started again alone. */
#include "launcher/run/role_restarts.h"
#include "tests/lib/test.h"

enum {
    WORKERS = 3
};

static enum role_restarts_answer ask(struct role_restarts *restarts, uint32_t limit,
                                     int local_rank, int code)
{
    const struct ct_failure failure = {
        .cause = CT_CAUSE_EXIT, .code = code, .step = -1, .may_loop = 1};
    const struct role_restarts_request request = {
        .failure = &failure,
        .limit = limit,
        .role = local_rank == 0 ? 0 : 1, /* workers 1 and 2 have the second role */
        .local_rank = local_rank,
        .workers = WORKERS,
    };

    return role_restarts_ask(restarts, &request);
}

TEST(workers_of_a_role_share_its_number_and_others_have_their_own)
{
    struct role_restarts restarts = {0};

    assert_int_equal(ask(&restarts, 2, 1, 1), ROLE_RESTARTS_GO);
    assert_int_equal(ask(&restarts, 2, 2, 1), ROLE_RESTARTS_GO);
    assert_int_equal(ask(&restarts, 2, 1, 1), ROLE_RESTARTS_USED_UP);
    assert_int_equal(ask(&restarts, 1, 0, 1), ROLE_RESTARTS_GO);
    role_restarts_deinit(&restarts);
}

TEST(a_new_round_counts_from_zero)
{
    struct role_restarts restarts = {0};

    assert_int_equal(ask(&restarts, 1, 1, 1), ROLE_RESTARTS_GO);
    assert_int_equal(ask(&restarts, 1, 1, 1), ROLE_RESTARTS_USED_UP);
    role_restarts_begin_round(&restarts);
    assert_int_equal(ask(&restarts, 1, 1, 1), ROLE_RESTARTS_GO);
    assert_int_equal(restarts.used[1], 1);
    role_restarts_deinit(&restarts);
}

TEST(a_worker_that_fails_twice_alike_is_a_loop_where_many_are_left)
{
    struct role_restarts restarts = {0};

    assert_int_equal(ask(&restarts, 4, 1, 7), ROLE_RESTARTS_GO);
    assert_int_equal(ask(&restarts, 4, 2, 7), ROLE_RESTARTS_GO); /* another worker */
    assert_int_equal(ask(&restarts, 4, 1, 8), ROLE_RESTARTS_GO); /* another end of it */
    assert_int_equal(ask(&restarts, 4, 1, 8), ROLE_RESTARTS_CRASH_LOOP);
    role_restarts_begin_round(&restarts);
    assert_int_equal(ask(&restarts, 4, 2, 7), ROLE_RESTARTS_GO);
    role_restarts_deinit(&restarts);
}

TEST(few_are_used_up_all_the_same)
{
    struct role_restarts restarts = {0};

    for (int i = 0; i < CRASH_LOOP_FEW_RESTARTS; i++)
        assert_int_equal(ask(&restarts, CRASH_LOOP_FEW_RESTARTS, 1, 7),
                         ROLE_RESTARTS_GO);
    assert_int_equal(ask(&restarts, CRASH_LOOP_FEW_RESTARTS, 1, 7),
                     ROLE_RESTARTS_USED_UP);
    role_restarts_deinit(&restarts);
}
