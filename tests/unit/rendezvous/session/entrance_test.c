/* SPDX-License-Identifier: Apache-2.0 */
/* Refused agents, and the run that they wanted to join. The clock is the test's. */
#include "rendezvous/session/entrance.h"

#include <stdio.h>
#include <stdlib.h>

#include "rendezvous/session/dispatch.h"
#include "rendezvous/session/run_room.h"
#include "rendezvous/session/session_limits.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/str.h"

enum {
    BEGIN_MS = 100000,
    LEASE_MS = 5000,
    MEMBER = 1
};

static uint64_t now_ms;

uint64_t __wrap_ct_now_ms(void);
uint64_t __wrap_ct_now_ms(void)
{
    return now_ms;
}

struct rig {
    uv_loop_t loop;
    struct dispatch *dispatch;
    struct run *run;
    struct conn conn; /* closing, so that nothing is sent */
    struct peer member, refused;
};

/* A run that waits for its second node. */
static void begin(struct rig *rig)
{
    const struct ct_hello hello = {.run_id = "r",
                                   .min_nodes = 2,
                                   .max_nodes = 2,
                                   .heartbeat_ms = 1000,
                                   .lost_after_ms = LEASE_MS};
    const struct member_link link = {
        .id = MEMBER, .peer = &rig->member, .host = "node0"};
    int rc;

    now_ms = BEGIN_MS;
    assert_int_equal(uv_loop_init(&rig->loop), 0);
    assert_non_null(rig->dispatch = ct_zalloc(sizeof *rig->dispatch));
    rig->dispatch->runs.loop = &rig->loop;
    rig->dispatch->only_run_id = "r";
    dispatch_init(rig->dispatch);
    rig->conn = (struct conn){.state = CONN_CLOSING};
    rig->member = (struct peer){.dispatch = rig->dispatch, .conn = &rig->conn};
    rig->refused = (struct peer){.dispatch = rig->dispatch,
                                 .conn = &rig->conn,
                                 .refused = &rig->dispatch->refused};
    outbox_init(&rig->member.outbox, &rig->conn);
    outbox_init(&rig->refused.outbox, &rig->conn);
    assert_non_null(rig->run = run_create(&rig->dispatch->runs, &hello, &rc));
    assert_int_equal(
        run_try(rig->run, &(struct round_command){.kind = ROUND_ADD, .link = &link}),
        0);
    run_arm_timer(rig->run);
}

static void end(struct rig *rig)
{
    dispatch_close(rig->dispatch);
    (void)uv_run(&rig->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&rig->loop), 0);
    free(rig->dispatch);
}

TEST(an_instance_says_whether_a_ctrund_has_founded_the_run)
{
    for (int is_in_ctrund = 0; is_in_ctrund < 2; is_in_ctrund++) {
        const struct ct_hello hello = {
            .run_id = "s", .min_nodes = 1, .max_nodes = 1, .lost_after_ms = LEASE_MS};
        const struct run *run;
        struct rig rig;
        int rc;

        begin(&rig);
        rig.dispatch->runs.is_in_ctrund = is_in_ctrund;
        assert_non_null(run = run_create(&rig.dispatch->runs, &hello, &rc));
        assert_int_equal(!!(run->round->settings.instance & CT_INSTANCE_AT_CTRUND),
                         is_in_ctrund);
        assert_int_not_equal(run->round->settings.instance & ~CT_INSTANCE_AT_CTRUND, 0);
        end(&rig);
    }
}

/* The server was stopped meanwhile: the member's heartbeats wait to be read. */
TEST(a_refusal_does_not_end_the_lease_of_a_member)
{
    const struct ct_heartbeat heartbeat = {0};
    const struct ct_message message = {CT_MESSAGE_HEARTBEAT, .heartbeat = &heartbeat};
    struct rig rig;

    begin(&rig);
    now_ms += 2 * LEASE_MS;
    entrance_turn_away(&rig.refused, CTRUN_E_AUTH, "no");
    assert_non_null(run_find(&rig.dispatch->runs, "r")); /* else freed */
    assert_int_equal(rig.run->round->members.count, 1);
    run_step(rig.run, &(struct round_command){
                          .kind = ROUND_MESSAGE, .id = MEMBER, .message = &message});
    run_step(rig.run, &(struct round_command){.kind = ROUND_TICK});
    assert_int_equal(rig.run->round->members.count, 1);
    end(&rig);
}

TEST(the_nodes_that_wait_are_told_of_a_refusal_by_the_timer)
{
    struct rig rig;

    begin(&rig);
    now_ms += 100;
    assert_true(rig.run->timer_ms > now_ms);
    entrance_turn_away(&rig.refused, CTRUN_E_AUTH, "no");
    assert_int_equal(rig.run->round->waiting_due_ms, now_ms);
    assert_int_equal(rig.run->timer_ms, now_ms);
    end(&rig);
}

TEST(what_an_unknown_client_calls_itself_is_one_entry_of_letters)
{
    static const char *const names[] = {"n1", "n2",
                                        "n3: ready\xc3\xa4 (gone), n_4-b.c"};
    static struct conn_pool pool; /* counts those refused */
    struct rig rig;

    begin(&rig);
    rig.conn.pool = &pool;
    assert_int_equal(ct_addr_parse("10.0.0.9", 5, &rig.conn.remote), 0);
    for (int i = 0; i < 3; i++) {
        (void)ct_copy(rig.refused.host, sizeof rig.refused.host, names[i]);
        entrance_turn_away(&rig.refused, CTRUN_E_AUTH, "no");
    }
    assert_int_equal(rig.run->round->contacts.count, 1);
    assert_string_equal(rig.run->round->contacts.list[0].host,
                        "10.0.0.9 (calls itself n3??ready????gone???n_4-b.c)");
    end(&rig);
}

/* All its nodes were gone for so long that the run was forgotten. */
TEST(a_run_that_comes_back_still_counts_the_faults_of_hosts)
{
    const struct ct_hello hello = {.run_id = "r",
                                   .min_nodes = 2,
                                   .max_nodes = 2,
                                   .exclude_after = 2,
                                   .instance = 7};
    struct rig rig;
    int rc;

    begin(&rig);
    run_forget(rig.run);
    assert_non_null(rig.run = run_create(&rig.dispatch->runs, &hello, &rc));
    rig.run->round->faults[0] = (struct round_fault){.host = "node1", .count = 2};
    rig.run->round->faults[0].is_out = true;
    run_forget(rig.run);
    assert_non_null(rig.run = run_create(&rig.dispatch->runs, &hello, &rc));
    assert_string_equal(rig.run->round->faults[0].host, "node1");
    assert_int_equal(rig.run->round->faults[0].count, 2);
    assert_true(rig.run->round->faults[0].is_out);
    end(&rig);
}

static void assert_limits(const struct rig *rig, uint32_t limit)
{
    assert_int_equal(rig->run->round->settings.min_nodes, limit);
    assert_int_equal(rig->run->round->settings.max_nodes, limit);
}

/* They come back before the run is forgotten, or after. */
TEST(limits_that_a_user_has_set_outlive_the_loss_of_all_nodes)
{
    const struct ct_resize one = {.min_nodes = 1, .max_nodes = 1};
    const struct ct_message resize = {CT_MESSAGE_RESIZE, .resize = &one};
    struct ct_hello hello = {.run_id = "r", .min_nodes = 2, .max_nodes = 2};
    struct rig rig;
    int rc;

    begin(&rig);
    hello.instance = rig.run->round->settings.instance;
    run_step(rig.run, &(struct round_command){
                          .kind = ROUND_MESSAGE, .id = MEMBER, .message = &resize});
    round_hold(rig.run->round, now_ms);
    run_step(rig.run, &(struct round_command){
                          .kind = ROUND_GONE, .id = MEMBER, .reason = "broken"});
    assert_int_equal(run_renew(rig.run, &hello), 0);
    assert_limits(&rig, 1);
    run_forget(rig.run);
    assert_non_null(rig.run = run_create(&rig.dispatch->runs, &hello, &rc));
    assert_limits(&rig, 1);
    hello.instance = 0; /* a new launcher */
    round_hold(rig.run->round, now_ms);
    assert_int_equal(run_renew(rig.run, &hello), 0);
    assert_limits(&rig, 2);
    end(&rig);
}

/* When the first world of a run with that lease may start. */
static uint64_t find_start_ms(struct rig *rig, uint64_t lease_ms)
{
    const struct ct_hello hello = {
        .run_id = "r", .min_nodes = 2, .max_nodes = 2, .lost_after_ms = lease_ms};
    int rc;

    assert_non_null(rig->run = run_create(&rig->dispatch->runs, &hello, &rc));
    return rig->run->round->fence_ms;
}

/* The next run of this id may have a shorter one. */
TEST(workers_of_a_run_that_is_forgotten_have_all_of_their_lease)
{
    struct rig rig;
    uint64_t until_ms;

    begin(&rig);
    run_forget(rig.run);
    (void)find_start_ms(&rig, 10 * LEASE_MS);
    round_hold(rig.run->round, now_ms);
    until_ms = rig.run->round->fence_ms;
    run_forget(rig.run);
    now_ms += LEASE_MS;
    assert_true(find_start_ms(&rig, LEASE_MS) >= until_ms);
    end(&rig);
}

TEST(workers_that_an_agent_reports_have_all_of_theirs_as_well)
{
    struct rig rig;
    uint64_t reported_ms;

    begin(&rig);
    round_hold(rig.run->round, now_ms);
    reported_ms = now_ms += LEASE_MS;
    run_memory_note(&rig.dispatch->runs.memory, "r", 1, 0, reported_ms);
    run_forget(rig.run);
    assert_true(find_start_ms(&rig, LEASE_MS) >=
                reported_ms + round_outlive_ms(LEASE_MS));
    end(&rig);
}

/* Without a token an agent may tell anything. */
TEST(workers_of_another_instance_have_all_of_their_longer_lease)
{
    struct ct_hello hello = {.run_id = "r",
                             .min_nodes = 2,
                             .max_nodes = 2,
                             .instance = 99,
                             .generation = 3,
                             .lost_after_ms = 10 * LEASE_MS};
    const struct ct_message message = {CT_MESSAGE_HELLO, .hello = &hello};
    struct rig rig;

    begin(&rig);
    entrance_on_hello(&rig.refused, &message);
    assert_int_equal(rig.run->round->fence_ms,
                     now_ms + round_outlive_ms(10 * LEASE_MS));
    assert_int_equal(rig.run->round->held_ms, rig.run->round->fence_ms);
    run_forget(rig.run);
    assert_int_equal(find_start_ms(&rig, LEASE_MS),
                     now_ms + round_outlive_ms(10 * LEASE_MS));
    run_forget(rig.run);
    hello.lost_after_ms = UINT64_MAX;
    entrance_on_hello(&rig.refused, &message);
    assert_int_equal(find_start_ms(&rig, LEASE_MS),
                     now_ms + RUN_MEMORY_REPORTED_MAX_MS);
    end(&rig);
}

/* A run without nodes, which waits until workers that an agent has told of are certainly dead. */
static struct run *desert(struct rig *rig, const char *id, const struct ct_addr *from)
{
    struct ct_hello hello = {
        .min_nodes = 2, .max_nodes = 2, .lost_after_ms = 10 * LEASE_MS};
    const struct member_link link = {
        .id = MEMBER, .peer = &rig->member, .host = "node0"};
    struct run *run;
    int rc;

    (void)snprintf(hello.run_id, sizeof hello.run_id, "%s", id);
    assert_non_null(run = run_create(&rig->dispatch->runs, &hello, &rc));
    run->founder = *from;
    assert_int_equal(
        run_try(run, &(struct round_command){.kind = ROUND_ADD, .link = &link}), 0);
    round_hold(run->round, now_ms);
    run_step(run, &(struct round_command){
                      .kind = ROUND_GONE, .id = MEMBER, .reason = "broken"});
    assert_true(round_is_deserted(run->round));
    return run;
}

TEST(workers_of_a_run_that_makes_room_have_all_of_their_lease)
{
    const struct ct_addr from = {.any.sa_family = AF_INET};
    struct rig rig;
    uint64_t until_ms;

    begin(&rig);
    run_forget(rig.run);
    until_ms = desert(&rig, "r", &from)->round->fence_ms;
    for (int i = 1; i < RUNS_DESERTED_PER_ADDRESS_MAX; i++) {
        char id[16];

        (void)snprintf(id, sizeof id, "other%d", i);
        (void)desert(&rig, id, &from);
    }
    assert_true(run_room_make(&rig.dispatch->runs, &from));
    assert_null(run_find(&rig.dispatch->runs, "r"));
    assert_true(find_start_ms(&rig, LEASE_MS) >= until_ms);
    end(&rig);
}

/* Then the entry of "r", which is the oldest, is dropped. */
static void fill(struct run_memory *memory)
{
    for (int i = 0; i < RUN_MEMORY_MAX; i++) {
        char id[16];

        (void)snprintf(id, sizeof id, "other%d", i);
        run_memory_note(memory, id, 1, 0, now_ms);
    }
    assert_null(run_memory_find(memory, "r"));
}

TEST(workers_of_a_run_that_is_dropped_have_all_of_their_lease)
{
    struct rig rig;
    struct run_memory *memory;

    begin(&rig);
    run_forget(rig.run);
    memory = &rig.dispatch->runs.memory;
    run_memory_outlive(memory, "r", 1, now_ms + 10 * LEASE_MS, now_ms);
    fill(memory);
    assert_true(find_start_ms(&rig, LEASE_MS) >= now_ms + 10 * LEASE_MS);
    end(&rig);
}

TEST(other_runs_do_not_wait_for_ever_for_a_run_that_is_dropped)
{
    struct rig rig;
    struct run_memory *memory;

    begin(&rig);
    run_forget(rig.run);
    memory = &rig.dispatch->runs.memory;
    run_memory_outlive(memory, "r", 1, UINT64_MAX, now_ms);
    fill(memory);
    assert_true(find_start_ms(&rig, LEASE_MS) <= now_ms + RUN_MEMORY_LOST_MAX_MS);
    end(&rig);
}

/* Else whoever starts many runs with a long lease, and leaves them, would hold up everybody. */
TEST(few_other_runs_wait_for_a_run_that_is_dropped)
{
    const struct ct_hello hello = {
        .run_id = "mine", .min_nodes = 2, .max_nodes = 2, .lost_after_ms = LEASE_MS};
    struct rig rig;
    struct run_memory *memory;
    int rc;

    begin(&rig);
    rig.dispatch->only_run_id = NULL;
    now_ms += 10 * LEASE_MS; /* the server is old */
    run_forget(rig.run);
    memory = &rig.dispatch->runs.memory;
    run_memory_outlive(memory, "r", 1, UINT64_MAX, now_ms);
    fill(memory);
    assert_non_null(rig.run = run_create(&rig.dispatch->runs, &hello, &rc));
    assert_true(rig.run->round->fence_ms <= now_ms);
    end(&rig);
}

TEST(workers_of_a_run_that_no_memory_is_left_for_as_well)
{
    struct rig rig;
    struct run_memory *memory;

    begin(&rig);
    rig.run->round->state = ROUND_CLOSED; /* it is not kept in memory */
    run_forget(rig.run);
    memory = &rig.dispatch->runs.memory;
    ct_alloc_fail_at(1);
    run_memory_outlive(memory, "r", 1, now_ms + 10 * LEASE_MS, now_ms);
    assert_null(run_memory_find(memory, "r"));
    assert_true(find_start_ms(&rig, LEASE_MS) >= now_ms + 10 * LEASE_MS);
    end(&rig);
}
