/* SPDX-License-Identifier: Apache-2.0 */
/* What the agent sees of a worker store: only of a store that ctrun serves. */
#include "launcher/run/launch_private.h"

#include "tests/lib/test.h"

void __wrap_server_get_store_marks(struct server *server, uint64_t store,
                                   struct server_store_marks *out);

void __wrap_server_get_store_marks(struct server *server, uint64_t store,
                                   struct server_store_marks *out)
{
    out->ranks = 3;
    out->asked_ms = 17;
}

/* How many ranks have counted themselves, as the agent sees it. */
static uint64_t look(enum config_backend backend, bool worker_serves, bool has_server)
{
    static struct config config;
    static struct launch launch;
    struct agent_options options = {0};
    struct agent_store_marks marks = {.ranks = 99};

    config = (struct config){
        .rdzv = {.backend = backend, .worker_serves = worker_serves}};
    launch = (struct launch){.config = &config,
                             .server = has_server ? (struct server *)&config : NULL};
    launch_fill_stores(&launch, &options);
    options.look_at_store(&launch, 1, NULL, 0, &marks);
    assert_int_equal(marks.asked_ms > 0, marks.ranks > 0);
    assert_int_equal(marks.last, -1);
    return marks.ranks;
}

TEST(ranks_are_counted_in_the_store_of_each_round_and_in_that_of_the_endpoint)
{
    assert_int_equal(look(CONFIG_C10D, false, true), 3);
    assert_int_equal(look(CONFIG_STATIC, false, true), 3);
    assert_int_equal(look(CONFIG_C10D, false, false), 0); /* it is on another node */
}

/* TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1; the server may have a store all the same. */
TEST(in_a_store_of_worker_0_no_rank_is_counted)
{
    assert_int_equal(look(CONFIG_C10D, true, true), 0);
    assert_int_equal(look(CONFIG_STATIC, true, true), 0);
}
